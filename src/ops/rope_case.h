// One case of RoPE from a short description of it.
#pragma once

#include "ops/cases.h"

namespace brim::ops {

// How q, k and their outputs lie in memory.
enum class RopeView {
  contiguous,
  transposed,      // tokens and heads swapped: what (b,s,h,d).transpose(1, 2) gives
  packed,          // slices of one buffer of tokens x (h + 2 hk) x d
  sliced,          // heads [..., 8:] of wider ones
  expanded,        // inputs are one element, every stride 0: the gradient of .sum()
  expanded_heads,  // inputs have stride 0 over heads
  inner_strided,   // every second element: the last stride is 2
  unaligned,       // contiguous, the base one element past its alignment, tables too
  mixed,           // q and k_out contiguous, k and q_out transposed
};

enum class RopeTables {
  seq,        // (s,w)
  one_seq,    // (1,s,w)
  batch_seq,  // (b,s,w)
  pos_s,      // (P,w), positions (s)
  pos_1s,     // (P,w), positions (1,s)
  pos_bs,     // (P,w), positions (b,s)
  axes_1s,    // (3,1,s,w), sections
  axes_bs,    // (3,b,s,w), sections
};
constexpr bool has_positions(RopeTables t) { return t >= RopeTables::pos_s && t <= RopeTables::pos_bs; }
constexpr bool has_axes(RopeTables t) { return t >= RopeTables::axes_1s; }

// Data besides the ordinary.
enum class RopeData {
  normal,
  special,        // zeros of both signs, infinities, NaN, subnormal and tiny numbers among the elements
  bad_positions,  // some below 0, some beyond the table
};

struct RopeSpec {
  brim_dtype q = BRIM_FLOAT32, k = BRIM_FLOAT32, table = BRIM_FLOAT32;  // k: BRIM_DTYPE_NONE when absent
  int64_t b = 2, s = 7, h = 4, hk = 2, d = 64, r = 64;
  bool infer_rotary_dim = false;
  brim_rope_layout layout = BRIM_LAYOUT_BHSD;
  brim_rope_pairing pairing = BRIM_PAIRING_HALF;
  bool inverse = false;
  bool in_place = false;
  RopeView view = RopeView::contiguous;
  RopeTables tables = RopeTables::seq;
  brim_dtype positions = BRIM_INT64;
  bool full_width = false;   // w = r, else r/2
  int64_t table_stride = 1;  // of the columns; 0: expanded from one
  bool sections_interleaved = false;
  RopeData data = RopeData::normal;

  // A table that positions pick from is longer than the sequence.
  int64_t table_rows() const { return has_positions(tables) ? s + 5 : s; }
};

Case make_rope_case(const RopeSpec& spec);

// The tensors of a case, by index.
namespace rope_tensor {
enum { kQ, kK, kQOut, kKOut, kCos, kSin, kPositions, kTensors };
}

// What brim bench and brim plan ask for (rope_bench_cases.cpp).
std::vector<Case> rope_bench_cases(const BenchRequest& request);

// What comes out, and how far it may be off (rope_expected.cpp).
std::vector<Expected> expect_rope(const RopeSpec& spec, const Values& inputs, const Oracle& oracle);
double rope_limit_ulp(brim_dtype output, bool fused);

// Compares only some parts, for cases too large to go through the reference as a whole: ranges of places in
// the sequence, or of sequences. Needs tables by `seq`.
struct Range {
  int64_t begin, count;
};
void sample_tokens(Case& c, const RopeSpec& spec, std::initializer_list<Range> places);
void sample_batches(Case& c, std::initializer_list<Range> sequences);

}  // namespace brim::ops

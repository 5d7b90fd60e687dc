// The lists of RoPE's cases: what is checked, and what is checked where memory is large.
#include "core/tensor.h"
#include "ops/all_pairs.h"
#include "ops/rope_case.h"

namespace brim::ops {
namespace {

struct Dtypes {
  brim_dtype q, k, table;
};
constexpr Dtypes kDtypes[] = {
    {BRIM_FLOAT32, BRIM_FLOAT32, BRIM_FLOAT32},   {BRIM_BFLOAT16, BRIM_BFLOAT16, BRIM_BFLOAT16},
    {BRIM_BFLOAT16, BRIM_BFLOAT16, BRIM_FLOAT32}, {BRIM_FLOAT16, BRIM_FLOAT16, BRIM_FLOAT16},
    {BRIM_FLOAT16, BRIM_FLOAT16, BRIM_FLOAT32},   {BRIM_FLOAT32, BRIM_FLOAT32, BRIM_BFLOAT16},
    {BRIM_FLOAT32, BRIM_FLOAT32, BRIM_FLOAT16},   {BRIM_BFLOAT16, BRIM_FLOAT32, BRIM_FLOAT32},
    {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_BFLOAT16}, {BRIM_FLOAT16, BRIM_FLOAT32, BRIM_FLOAT16},
    {BRIM_FLOAT64, BRIM_FLOAT64, BRIM_FLOAT64},
};
struct Heads {
  int64_t h, hk;  // hk < 0: no k
};
constexpr Heads kHeads[] = {{4, 2}, {1, 1}, {3, 5}, {5, -1}, {16, 4}, {73, 213}};
struct Tokens {
  int64_t b, s;
};
constexpr Tokens kTokens[] = {{2, 7}, {1, 1}, {1, 129}, {3, 1}, {5, 33}};
constexpr int64_t kDims[] = {64, 2, 6, 56, 92, 100, 128, 256};
constexpr int64_t kMostElements = 200'000;  // of q and k: keeps the whole list within seconds

enum class Rotary { full, inferred, half, odd_pairs };  // r = d; r = d, not given; r = d/2; r/2 odd

// The features of a case, as all_pairs combines them; the first value of each is the plainest.
enum Feature {
  kPairing,
  kInverse,
  kLayout,
  kView,
  kInPlace,
  kDtype,
  kTables,
  kPositionType,
  kSections,
  kWidth,
  kInner,
  kRotary,
  kDim,
  kHeadCount,
  kTokenCount,
  kFeatures
};
constexpr int kSizes[kFeatures] = {3,
                                   2,
                                   3,
                                   9,
                                   2,
                                   std::size(kDtypes),
                                   8,
                                   2,
                                   2,
                                   2,
                                   2,
                                   4,
                                   std::size(kDims),
                                   std::size(kHeads),
                                   std::size(kTokens)};

RopeSpec spec_of(const Combination& c) {
  RopeSpec x;
  x.pairing = c[kPairing];
  x.inverse = c[kInverse];
  x.layout = c[kLayout];
  x.view = static_cast<RopeView>(c[kView]);
  x.in_place = c[kInPlace];
  const Dtypes& types = kDtypes[c[kDtype]];
  const Heads& heads = kHeads[c[kHeadCount]];
  x.q = types.q;
  x.k = heads.hk < 0 ? BRIM_DTYPE_NONE : types.k;
  x.table = types.table;
  x.h = heads.h;
  x.hk = heads.hk < 0 ? 0 : heads.hk;
  x.tables = static_cast<RopeTables>(c[kTables]);
  x.positions = c[kPositionType] ? BRIM_INT32 : BRIM_INT64;
  x.sections_interleaved = c[kSections];
  x.full_width = c[kWidth];
  x.table_stride = 1 + c[kInner];
  x.b = kTokens[c[kTokenCount]].b;
  x.s = kTokens[c[kTokenCount]].s;
  x.d = kDims[c[kDim]];
  switch (static_cast<Rotary>(c[kRotary])) {
    case Rotary::half: x.r = x.d / 4 * 2; break;
    case Rotary::odd_pairs: x.r = x.d / 4 * 2 - (x.d / 4 % 2 == 0 ? 2 : 0); break;
    default: x.r = x.d; break;
  }
  x.infer_rotary_dim = static_cast<Rotary>(c[kRotary]) == Rotary::inferred;
  return x;
}

bool valid(const Combination& c) {
  const RopeSpec x = spec_of(c);
  const bool half = x.pairing == BRIM_PAIRING_HALF;
  const bool expanded = x.view == RopeView::expanded || x.view == RopeView::expanded_heads;
  if (x.in_place && (x.pairing == BRIM_PAIRING_TO_HALF || expanded)) return false;
  if (x.view == RopeView::packed && x.k && x.k != x.q) return false;  // one buffer has one type
  if (x.view == RopeView::mixed && x.in_place) return false;
  if (x.layout == BRIM_LAYOUT_THD && x.b != 1) return false;
  if (x.full_width && !half) return false;
  if (x.infer_rotary_dim && half && !x.full_width) return false;  // the width could be read two ways
  if (x.r < 2 || (has_axes(x.tables) && x.r < 6)) return false;
  if (c[kPositionType] && !has_positions(x.tables)) return false;
  if (c[kSections] && !has_axes(x.tables)) return false;
  return x.b * x.s * (x.h + x.hk) * x.d <= kMostElements;
}

// What the features above do not reach.
std::vector<RopeSpec> special_specs() {
  std::vector<RopeSpec> list;
  const auto add = [&](auto&& change) {
    RopeSpec x;
    change(x);
    list.push_back(x);
  };
  // More batches and more heads than one axis of a CUDA grid may have.
  add([](RopeSpec& x) { x.b = 65536, x.s = 1, x.h = 1, x.hk = 1, x.d = x.r = 4; });
  add([](RopeSpec& x) {
    x.b = 65537, x.s = 1, x.h = 1, x.hk = 1, x.d = x.r = 2, x.layout = BRIM_LAYOUT_BSHD;
  });
  add([](RopeSpec& x) { x.b = 1, x.s = 1, x.h = 65536, x.hk = 3, x.d = x.r = 4; });
  add([](RopeSpec& x) {
    x.b = 1, x.s = 1, x.h = 2, x.hk = 65537, x.d = x.r = 4, x.layout = BRIM_LAYOUT_BSHD;
  });
  add([](RopeSpec& x) {
    x.b = 1, x.s = 70000, x.h = 1, x.hk = 1, x.d = x.r = 2, x.layout = BRIM_LAYOUT_THD;
  });
  // Heads wider than any in use.
  add([](RopeSpec& x) { x.s = 3, x.h = 2, x.hk = 1, x.d = 4098, x.r = 4098; });
  // Nothing to do, one axis at a time; no rotation at all.
  for (brim_rope_layout layout : {BRIM_LAYOUT_BHSD, BRIM_LAYOUT_BSHD, BRIM_LAYOUT_THD})
    for (int axis = 0; axis < 4; ++axis)
      add([&](RopeSpec& x) {
        x.layout = layout;
        x.b = layout == BRIM_LAYOUT_THD ? 1 : axis == 0 ? 0 : 2;
        x.s = axis == 1 ? 0 : 7;
        x.h = axis == 2 ? 0 : 4;
        if (axis == 3) x.hk = 0;
      });
  for (bool in_place : {false, true})
    add([&](RopeSpec& x) {
      x.r = 0, x.infer_rotary_dim = true, x.pairing = BRIM_PAIRING_INTERLEAVED, x.in_place = in_place;
    });
  add([](RopeSpec& x) { x.d = x.r = 0; });
  // Tables expanded over their columns.
  for (brim_rope_pairing pairing : {BRIM_PAIRING_HALF, BRIM_PAIRING_INTERLEAVED, BRIM_PAIRING_TO_HALF})
    add([&](RopeSpec& x) { x.pairing = pairing, x.table_stride = 0; });
  // A head dim that is odd: only the rotary part must be even.
  add([](RopeSpec& x) { x.d = 65, x.r = 64, x.q = x.k = BRIM_BFLOAT16; });
  add([](RopeSpec& x) { x.d = 7, x.r = 4, x.pairing = BRIM_PAIRING_INTERLEAVED, x.in_place = true; });
  // Numbers that are not ordinary, in the rotated part and in the part that passes through.
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16, BRIM_FLOAT64})
    for (brim_rope_pairing pairing : {BRIM_PAIRING_HALF, BRIM_PAIRING_INTERLEAVED, BRIM_PAIRING_TO_HALF})
      add([&](RopeSpec& x) {
        x.q = x.k = x.table = dtype;
        x.pairing = pairing;
        x.r = 32;
        x.data = RopeData::special;
      });
  // Positions outside the table: FIELD-CASES 62.
  for (RopeTables tables : {RopeTables::pos_s, RopeTables::pos_1s, RopeTables::pos_bs})
    for (brim_dtype positions : {BRIM_INT32, BRIM_INT64})
      for (bool in_place : {false, true})
        add([&](RopeSpec& x) {
          x.q = x.k = BRIM_BFLOAT16;
          x.tables = tables;
          x.positions = positions;
          x.in_place = in_place;
          x.r = 48;
          x.layout = in_place ? BRIM_LAYOUT_BSHD : BRIM_LAYOUT_BHSD;
          x.data = RopeData::bad_positions;
        });
  add([](RopeSpec& x) {
    x.b = 1, x.layout = BRIM_LAYOUT_THD, x.tables = RopeTables::pos_s, x.pairing = BRIM_PAIRING_TO_HALF;
    x.data = RopeData::bad_positions;
  });
  return list;
}

// Kernels and SIMD bodies are compiled per type, pair order and vector width, and treat what passes through
// and what is in place in their own ways: these five meet in all combinations, not in pairs only.
std::vector<RopeSpec> specialised_specs() {
  std::vector<RopeSpec> list;
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16})
    for (brim_rope_pairing pairing : {BRIM_PAIRING_HALF, BRIM_PAIRING_INTERLEAVED, BRIM_PAIRING_TO_HALF})
      for (int64_t r : {64, 56, 92, 6})  // r/2 elements of 16 bits are a multiple of 16, 8, 4 and 2 bytes
        for (bool partial : {false, true})
          for (bool in_place : {false, true}) {
            if (in_place && pairing == BRIM_PAIRING_TO_HALF) continue;
            RopeSpec x;
            x.q = x.k = dtype;
            x.pairing = pairing;
            x.r = r;
            x.d = partial ? r + r / 2 : r;
            x.in_place = in_place;
            x.layout = partial ? BRIM_LAYOUT_BSHD : BRIM_LAYOUT_BHSD;
            list.push_back(x);
          }
  return list;
}

// Past a CPU's last cache and half a GPU's, where stores go around the caches: every type and pair order.
std::vector<Case> streaming_cases() {
  std::vector<Case> cases;
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16})
    for (brim_rope_pairing pairing : {BRIM_PAIRING_HALF, BRIM_PAIRING_INTERLEAVED, BRIM_PAIRING_TO_HALF}) {
      const int64_t tokens = dtype == BRIM_FLOAT32 ? 1750 : 3500;  // 34 MiB of q and k
      const RopeSpec x{.q = dtype,
                       .k = dtype,
                       .b = 1,
                       .s = tokens,
                       .h = 32,
                       .hk = 8,
                       .d = 128,
                       .r = 64,
                       .layout = BRIM_LAYOUT_BSHD,
                       .pairing = pairing};
      cases.push_back(make_rope_case(x));
      sample_tokens(cases.back(), x, {{0, 3}, {511, 2}, {tokens / 2, 3}, {tokens - 3, 3}});
    }
  return cases;
}

std::vector<Case> check_list() {
  std::vector<Case> cases = streaming_cases();
  for (const Combination& c : all_pairs(kSizes, valid)) cases.push_back(make_rope_case(spec_of(c)));
  for (const RopeSpec& x : specialised_specs()) cases.push_back(make_rope_case(x));
  for (const RopeSpec& x : special_specs()) cases.push_back(make_rope_case(x));
  return cases;
}

// Beyond 2^31 elements, in each of the ways an index can grow: FIELD-CASES 09 and 10.
std::vector<Case> large_list() {
  std::vector<Case> cases;
  const auto add = [&](RopeSpec x) {
    x.q = x.k = x.table = BRIM_BFLOAT16;
    cases.push_back(make_rope_case(x));
    // Element 2^31 of token-major q lies in token 621378 of 648000, or in sequence 58254 of 65536.
    if (x.b == 1)
      sample_tokens(cases.back(), x, {{0, 2}, {310689, 2}, {621377, 4}, {647998, 2}});
    else
      sample_batches(cases.back(), {{0, 1}, {58253, 3}, {65535, 1}});
  };
  add({.b = 1, .s = 648000, .h = 48, .hk = 1, .d = 72, .r = 72, .layout = BRIM_LAYOUT_BSHD});
  add({.b = 1, .s = 648000, .h = 48, .hk = 1, .d = 72, .r = 72, .in_place = true});
  RopeSpec packed{.b = 1, .s = 648000, .h = 48, .hk = 1, .d = 72, .r = 72, .layout = BRIM_LAYOUT_THD};
  packed.pairing = BRIM_PAIRING_INTERLEAVED;
  packed.view = RopeView::packed;
  add(packed);
  add({.b = 65536, .s = 6, .h = 64, .hk = 8, .d = 96, .r = 96});
  return cases;
}

constexpr CaseList kLists{check_list, large_list, rope_bench_cases};

}  // namespace

// The two entries take the same args: backward is the transposed rotation, and so is the oracle's.
const CaseList& case_list_rope_forward() { return kLists; }
const CaseList& case_list_rope_backward() { return kLists; }

}  // namespace brim::ops

// Problems for the tests of RoPE's launch plans.
#pragma once

#include "cuda/rope_plan.h"

namespace brim::cuda {
namespace {

using ops::RopeProblem;
using ops::RopeStrides;

enum class Storage { bhsd, bshd, packed, padded, transposed, expanded };
constexpr Storage kStorages[] = {Storage::bhsd,   Storage::bshd,       Storage::packed,
                                 Storage::padded, Storage::transposed, Storage::expanded};

constexpr PairOrder kHalf = PairOrder::half, kInterleaved = PairOrder::interleaved;
constexpr PairOrder kOrders[][2] = {
    {kHalf, kHalf}, {kInterleaved, kInterleaved}, {kInterleaved, kHalf}, {kHalf, kInterleaved}};

int64_t used(int64_t size, int64_t stride) { return size > 1 ? stride : 0; }

// Element strides of (b, s, h, d) in a storage; `all_heads` share a token in the packed one.
RopeStrides strides(Storage storage, int64_t b, int64_t s, int64_t h, int64_t all_heads, int64_t d) {
  RopeStrides t{};
  switch (storage) {
    case Storage::bhsd: t = {h * s * d, d, s * d, 1}; break;
    case Storage::bshd: t = {s * h * d, h * d, d, 1}; break;
    case Storage::packed: t = {s * all_heads * d, all_heads * d, d, 1}; break;
    case Storage::padded: t = {s * h * (d + 16), h * (d + 16), d + 16, 1}; break;
    case Storage::transposed: t = {h * s * d, 1, s * d, s}; break;
    case Storage::expanded: break;  // as the gradient of a sum
  }
  return {used(b, t.batch), used(s, t.seq), used(h, t.head), used(d, t.dim)};
}

struct Shape {
  int64_t batch, seq, heads, k_heads, d, r;
};

RopeProblem problem(const Shape& n, brim_dtype dtype, brim_dtype k_dtype, PairOrder in, PairOrder out,
                    Storage storage, bool in_place) {
  RopeProblem p{};
  p.dtype = dtype;
  p.k_dtype = n.k_heads ? k_dtype : BRIM_DTYPE_NONE;
  p.table_dtype = BRIM_FLOAT32;
  p.batch = n.batch;
  p.seq = n.seq;
  p.q_heads = n.heads;
  p.k_heads = n.k_heads;
  p.head_dim = n.d;
  p.rotary_dim = n.r;
  p.table_rows = n.seq;
  p.in_order = in;
  p.out_order = out;
  const bool expanded = storage == Storage::expanded;  // inputs only
  p.in_place = in_place && !expanded;
  const auto both = [&](int64_t heads, RopeStrides* from, RopeStrides* to) {
    *from = *to = strides(storage, n.batch, n.seq, heads, n.heads + n.k_heads, n.d);
    if (expanded) *to = strides(Storage::bshd, n.batch, n.seq, heads, n.heads + n.k_heads, n.d);
  };
  both(n.heads, &p.q, &p.q_out);
  if (n.k_heads) both(n.k_heads, &p.k, &p.k_out);
  p.cos = p.sin = {0, 0, n.r / 2, 1};
  // What the strides alone allow; the addresses may allow less.
  const int size = std::max(core::element_size(dtype), core::element_size(p.k_dtype));
  uint64_t bits = 0;
  for (const RopeStrides* s : {&p.q, &p.k}) bits |= static_cast<uint64_t>(s->batch | s->seq | s->head) * size;
  p.alignment = core::alignment_of(bits);
  p.table_alignment = 16;
  p.base_alignment = 16;
  return p;
}

}  // namespace
}  // namespace brim::cuda

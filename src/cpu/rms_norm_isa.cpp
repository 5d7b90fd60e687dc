// RMSNorm's bodies, compiled once per instruction set: which types they run on, and what comes before and after
// the rows. simd.h says what such a file must not use.
#include "cpu/rms_norm_backward.h"
#include "cpu/rms_norm_forward.h"

namespace brim::cpu {
namespace {

template <class T>
struct Type {
  using type = T;
};

// body(Type of p.dtype, Type of p.sum_dtype)
template <class Body>
HWY_INLINE void dispatch_types(const RmsNormProblem& p, Body&& body) {
  const bool wide = p.dtype != p.sum_dtype;  // float32 beside 16 bits
  switch (p.dtype) {
    case BRIM_FLOAT64: return body(Type<double>(), Type<double>());
    case BRIM_BFLOAT16:
      return wide ? body(Type<bfloat16>(), Type<float>()) : body(Type<bfloat16>(), Type<bfloat16>());
    case BRIM_FLOAT16:
      return wide ? body(Type<float16>(), Type<float>()) : body(Type<float16>(), Type<float16>());
    default: return body(Type<float>(), Type<float>());
  }
}

template <class Body>
HWY_INLINE void dispatch_weight(const RmsNormProblem& p, Body&& body) {
  if (p.dtype == BRIM_FLOAT64) return body(Type<double>());  // without a weight too
  switch (p.weight_dtype) {
    case BRIM_BFLOAT16: return body(Type<bfloat16>());
    case BRIM_FLOAT16: return body(Type<float16>());
    default: return body(Type<float>());
  }
}

template <class W>
void make_factors(const RmsNormCall& call) {
  using C = Arithmetic<W>;
  constexpr int64_t kMost = 256;
  const hn::ScalableTag<C> d;
  const RmsNormProblem& p = call.problem;
  C *const natural = static_cast<C*>(call.factors), *const paired = static_cast<C*>(call.paired_factors);
  const W* const weight = static_cast<const W*>(call.args->weight.data);
  const auto offset = hn::Set(d, static_cast<C>(p.offset));
  const bool none = p.weight_dtype == BRIM_DTYPE_NONE, gather = !none && p.weight_stride != 1;
  W gathered[kMost];
  for (int64_t first = 0, n; first < p.hidden; first += n) {
    n = p.hidden - first < kMost ? p.hidden - first : kMost;
    if (gather)
      for (int64_t i = 0; i < n; ++i) gathered[i] = weight[(first + i) * p.weight_stride];
    const W* const from = gather ? gathered : weight + first;
    each_vectors(d, 0, n, [=](auto vectors, int64_t j, auto count) BRIM_INLINE_LAMBDA {
      constexpr int kVectors = decltype(vectors)::value;
      hn::Vec<decltype(d)> v[kVectors];
      for (auto& f : v) f = hn::Set(d, C{1});
      if (!none) load_group<Order::natural>(d, from + j, count, v);
      if (!none)
        for (auto& f : v) f = short_nans(d, hn::Add(offset, f));
      if (natural) store_group<Order::natural, Store::plain>(d, v, natural + first + j, count);
      if constexpr (kVectors == 2 && sizeof(C) == 4) {
        const auto even = hn::ConcatEven(d, v[1], v[0]);
        v[1] = hn::ConcatOdd(d, v[1], v[0]);
        v[0] = even;
      }
      if (paired) store_group<Order::natural, Store::plain>(d, v, paired + first + j, count);
    });
  }
}

// kVectors of columns in this order, of which n are wanted.
template <Order kOrder, int kVectors, class W>
HWY_INLINE void sum_columns(const RmsNormCall& call, int64_t first, int64_t n) {
  using C = Arithmetic<W>;
  const hn::ScalableTag<C> d;
  constexpr int64_t kLanes = lanes_of<decltype(d)>();
  const int64_t stride = call.problem.dweight_stride, blocks = call.problem.has_dy ? call.blocks : 0;
  const C* from = static_cast<const C*>(call.partials) + first;
  W* const to = static_cast<W*>(call.args->dweight.data) + first * stride;
  hn::Vec<decltype(d)> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (int64_t block = 0; block < blocks; ++block, from += call.pitch)
    for (int i = 0; i < kVectors; ++i) sums[i] = hn::Add(sums[i], hn::LoadU(d, from + i * kLanes));
  W narrowed[kVectors * kLanes];
  for (int i = 0; i < kVectors; ++i) store<Store::plain>(d, short_nans(d, sums[i]), narrowed + i * kLanes);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t in_group = i % (2 * kLanes);
    const int64_t at = kOrder == Order::paired ? i - in_group + in_group / 2 + in_group % 2 * kLanes : i;
    to[i * stride] = narrowed[at];
  }
}

// Columns begin .. end-1. Neighbouring lines are read of each block's row.
template <Order kOrder, class W>
void sum_all_columns(const RmsNormCall& call, int64_t begin, int64_t end) {
  constexpr int64_t kLanes = lanes_of<hn::ScalableTag<Arithmetic<W>>>(), kVectors = 8;
  int64_t j = begin;
  for (; j + kVectors * kLanes <= end; j += kVectors * kLanes)
    sum_columns<kOrder, kVectors, W>(call, j, kVectors * kLanes);
  for (; j + 2 * kLanes <= end; j += 2 * kLanes) sum_columns<kOrder, 2, W>(call, j, 2 * kLanes);
  for (; j < end; j += kLanes)
    sum_columns<Order::natural, 1, W>(call, j, end - j < kLanes ? end - j : kLanes);
}

template <class X, class S>
void backward_block(const RmsNormCall& call, int64_t index) {
  using C = Arithmetic<X>;
  const hn::ScalableTag<C> d;
  const RmsNormProblem& p = call.problem;
  const int64_t begin = index * call.rows_per_block, left = p.rows - begin;
  C* const dweight = call.partials ? static_cast<C*>(call.partials) + index * call.pitch : nullptr;
  if (dweight)
    for (int64_t j = 0; j < call.pitch; j += lanes_of<decltype(d)>()) hn::StoreU(hn::Zero(d), d, dweight + j);
  backward<X, S>(call, {begin, left < call.rows_per_block ? p.rows : begin + call.rows_per_block, dweight});
}

}  // namespace

namespace BRIM_THIS_ISA {

void rms_norm_factors(const RmsNormCall& call) {
  dispatch_weight(call.problem, [&](auto weight) { make_factors<typename decltype(weight)::type>(call); });
}

void rms_norm_rows(const RmsNormCall& call, int64_t begin, int64_t end) {
  const RmsNormProblem& p = call.problem;
  dispatch_types(p, [&](auto x, auto s) BRIM_INLINE_LAMBDA {
    using X = typename decltype(x)::type;
    using S = typename decltype(s)::type;
    const auto run = [&](auto round) BRIM_INLINE_LAMBDA {
      constexpr bool kRound = decltype(round)::value;
      if (p.add) return forward<X, S, true, kRound>(call, begin, end);
      if constexpr (std::is_same_v<X, S>) forward<X, S, false, kRound>(call, begin, end);
    };
    if constexpr (sizeof(S) == 2)
      if (p.round_xhat) return run(std::true_type());
    run(std::false_type());
  });
  if (call.writing != RowWriting::plain) hwy::FlushStream();
}

void rms_norm_blocks(const RmsNormCall& call, int64_t begin, int64_t end) {
  dispatch_types(call.problem, [&](auto x, auto s) BRIM_INLINE_LAMBDA {
    for (int64_t block = begin; block < end; ++block)
      backward_block<typename decltype(x)::type, typename decltype(s)::type>(call, block);
  });
  if (call.writing != RowWriting::plain) hwy::FlushStream();
}

void rms_norm_dweight(const RmsNormCall& call, int64_t begin, int64_t end) {
  dispatch_weight(call.problem, [&](auto weight) BRIM_INLINE_LAMBDA {
    using W = typename decltype(weight)::type;
    const int64_t hidden = call.problem.hidden, first = begin * kRmsNormColumns;
    const int64_t last = end * kRmsNormColumns < hidden ? end * kRmsNormColumns : hidden;
    call.paired_partials ? sum_all_columns<Order::paired, W>(call, first, last)
                         : sum_all_columns<Order::natural, W>(call, first, last);
  });
}

}  // namespace BRIM_THIS_ISA
}  // namespace brim::cpu

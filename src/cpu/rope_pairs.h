// RoPE's body, innermost: the pairs of one head. For rope_isa.cpp only.
#pragma once

#include "cpu/rope.h"
#include "cpu/simd.h"

namespace brim::cpu {
namespace {

using ops::PairOrder;

// Whether vectors hold several elements: two of angles then make one of 16-bit elements.
constexpr bool kWide = HWY_TARGET != HWY_SCALAR;

// How a row of the tables stands in memory.
enum class Form {
  plain,
  doubled,  // each column twice, beside its pair's two elements, the sine with the sign of either place
  split     // in every two vectors of columns the even ones first, then the odd ones
};

template <class T>
constexpr Form form_of(PairOrder in, PairOrder out) {
  if (in == PairOrder::interleaved && out == PairOrder::interleaved && sizeof(T) > 2) return Form::doubled;
  const bool half = in == PairOrder::half && out == PairOrder::half;
  return kWide && half && hwy::IsSame<T, bfloat16>() ? Form::split : Form::plain;
}

// A run of pairs of one head; `half` lies between a pair's first element and its second, in half order.
template <class T>
struct Run {
  const T* in;
  T* out;
  int64_t half;
  const Arithmetic<T>*cos, *sin;
  int64_t ahead;  // from `in` to what is to be fetched meanwhile
};

// Into L2, not L1: a line for L1 occupies one of its few miss slots all the way from memory.
template <class T>
HWY_INLINE void fetch(const T* p) {
  __builtin_prefetch(p, 0, 2);
}

// As many pairs as D has lanes, from pair j on: loaded, widened, rotated.
template <PairOrder In, class D, class T>
HWY_INLINE void load_rotated(D d, const Run<T>& run, int64_t j, hn::Vec<D>& y1, hn::Vec<D>& y2) {
  hn::Vec<D> x1, x2;
  const T* next = run.in + run.ahead;
  if constexpr (In == PairOrder::half) {
    fetch(next + j);
    fetch(next + run.half + j);
    x1 = load(d, run.in + j);
    x2 = load(d, run.in + run.half + j);
  } else {
    fetch(next + 2 * j);
    load_pairs(d, run.in + 2 * j, x1, x2);
  }
  const auto c = hn::LoadU(d, run.cos + j), s = hn::LoadU(d, run.sin + j);
  y1 = hn::NegMulAdd(x2, s, hn::Mul(x1, c));
  y2 = hn::MulAdd(x1, s, hn::Mul(x2, c));
}

template <PairOrder In, PairOrder Out, Store S, class D, class T>
HWY_INLINE void rotate_one(D d, const Run<T>& run, int64_t j) {
  hn::Vec<D> y1, y2;
  load_rotated<In>(d, run, j, y1, y2);
  if constexpr (Out == PairOrder::half) {
    store<S>(d, y1, run.out + j);
    store<S>(d, y2, run.out + run.half + j);
  } else {
    store_pairs<S>(d, y1, y2, run.out + 2 * j);
  }
}

// Two vectors of pairs, whose halves make one whole vector each of 16-bit elements.
template <PairOrder In, Store S, class D, class T>
HWY_INLINE void rotate_two(D d, const Run<T>& run, int64_t j) {
  hn::Vec<D> y1, y2, z1, z2;
  load_rotated<In>(d, run, j, y1, y2);
  load_rotated<In>(d, run, j + static_cast<int64_t>(hn::Lanes(d)), z1, z2);
  store2<S>(d, y1, z1, run.out + j);
  store2<S>(d, y2, z2, run.out + run.half + j);
}

// bfloat16 in half order, from split tables: the even elements and the odd ones of a vector are two vectors
// of floats without being moved.
template <Store S, class D, class T>
HWY_INLINE void rotate_split(D d, const Run<T>& run, int64_t j) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> a1, b1, a2, b2;
  fetch(run.in + run.ahead + j);
  fetch(run.in + run.ahead + run.half + j);
  load_pairs(d, run.in + j, a1, b1);
  load_pairs(d, run.in + run.half + j, a2, b2);
  const auto ac = hn::LoadU(d, run.cos + j), bc = hn::LoadU(d, run.cos + j + lanes);
  const auto as = hn::LoadU(d, run.sin + j), bs = hn::LoadU(d, run.sin + j + lanes);
  store_pairs<S>(d, hn::NegMulAdd(a2, as, hn::Mul(a1, ac)), hn::NegMulAdd(b2, bs, hn::Mul(b1, bc)),
                 run.out + j);
  store_pairs<S>(d, hn::MulAdd(a1, as, hn::Mul(a2, ac)), hn::MulAdd(b1, bs, hn::Mul(b2, bc)),
                 run.out + run.half + j);
}

// Pairs j .. n-1 in ever narrower vectors, so that every pair goes through the same instructions. Out of
// line: most heads are made of whole vectors.
template <size_t kLanes, PairOrder In, PairOrder Out, class T>
HWY_INLINE int64_t rotate_narrow(const Run<T>& run, int64_t j, int64_t n) {
  using C = Arithmetic<T>;
  if constexpr (hn::MaxLanes(hn::ScalableTag<C>()) > kLanes || kLanes == 1) {
    const hn::CappedTag<C, kLanes> d;
    for (; j + static_cast<int64_t>(kLanes) <= n; j += kLanes) rotate_one<In, Out, Store::plain>(d, run, j);
  }
  return j;
}
template <PairOrder In, PairOrder Out, class T>
HWY_NOINLINE void rotate_rest(Run<T> run, int64_t j, int64_t n) {
  j = rotate_narrow<8, In, Out>(run, j, n);
  j = rotate_narrow<4, In, Out>(run, j, n);
  rotate_narrow<1, In, Out>(run, j, n);
}

// Streams only whole vectors: with Store::stream the caller has made sure that n is made of them.
template <PairOrder In, PairOrder Out, Store S, class T>
HWY_INLINE void rotate_run(const Run<T>& run, int64_t n) {
  const hn::ScalableTag<Arithmetic<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr bool kTwo = kWide && sizeof(T) == 2 && Out == PairOrder::half;
  int64_t j = 0;
  if constexpr (kTwo && form_of<T>(In, Out) == Form::split)
    for (; j + 2 * lanes <= n; j += 2 * lanes) rotate_split<S>(d, run, j);
  else if constexpr (kTwo)
    for (; j + 2 * lanes <= n; j += 2 * lanes) rotate_two<In, S>(d, run, j);
  for (; j + lanes <= n; j += lanes) rotate_one<In, Out, kTwo ? Store::plain : S>(d, run, j);
  if (HWY_UNLIKELY(j < n)) rotate_rest<In, Out>(run, j, n);
}

// Interleaved 32- and 64-bit elements stay where they are: each is multiplied by its column's cosine, its
// neighbour by the sine with the sign of its place, from doubled tables. fma(x2, -s, x1*c) is fma(-x2, s,
// x1*c).
template <Store S, class T>
HWY_INLINE void rotate_doubled(const Run<T>& run, int64_t n) {
  int64_t i = 0;
  if constexpr (kWide) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= 2 * n; i += lanes) {
      fetch(run.in + run.ahead + i);
      const auto x = hn::LoadU(d, run.in + i);
      const auto c = hn::LoadU(d, run.cos + i), s = hn::LoadU(d, run.sin + i);
      put<S>(d, hn::MulAdd(hn::Reverse2(d, x), s, hn::Mul(x, c)), run.out + i);
    }
  }
  const hn::CappedTag<T, 1> d;
  for (; i < 2 * n; i += 2) {
    const auto x1 = hn::LoadU(d, run.in + i), x2 = hn::LoadU(d, run.in + i + 1);
    const auto c = hn::LoadU(d, run.cos + i), s = hn::LoadU(d, run.sin + i + 1);
    hn::StoreU(hn::NegMulAdd(x2, s, hn::Mul(x1, c)), d, run.out + i);
    hn::StoreU(hn::MulAdd(x1, s, hn::Mul(x2, c)), d, run.out + i + 1);
  }
}

}  // namespace
}  // namespace brim::cpu

// RoPE's body, innermost: the pairs of one head. For rope_isa.cpp only.
#pragma once

#include <type_traits>

#include "cpu/rope.h"
#include "cpu/simd.h"

namespace brim::cpu {
namespace {

using ops::PairOrder;

// How a row of the tables stands in memory.
enum class Form {
  plain,
  doubled,  // each column twice, beside its pair's two elements, the sine with the sign of either place
  split     // by SplitSteps, in each the even columns first, then the odd ones
};

template <class T>
constexpr Form form_of(PairOrder in, PairOrder out) {
  if (in == PairOrder::interleaved && out == PairOrder::interleaved && sizeof(T) > 2) return Form::doubled;
  const bool half = in == PairOrder::half && out == PairOrder::half;
  return half && hwy::IsSame<T, bfloat16>() ? Form::split : Form::plain;
}

// A run of pairs of one head; `half` lies between a pair's first element and its second, in half order.
template <class T>
struct Run {
  const T* in;
  T* out;
  int64_t half;
  const Arithmetic<T>*cos, *sin;
};

// ---- steps: kPairs pairs of a run from pair j on, rotated, kept until they are stored ----

template <PairOrder In, class D, class T>
HWY_INLINE void load_rotated(D d, const Run<T>& run, int64_t j, hn::Vec<D>& y1, hn::Vec<D>& y2) {
  hn::Vec<D> x1, x2;
  if constexpr (In == PairOrder::half) {
    x1 = load(d, run.in + j);
    x2 = load(d, run.in + run.half + j);
  } else {
    load_pairs(d, run.in + 2 * j, x1, x2);
  }
  const auto c = hn::LoadU(d, run.cos + j), s = hn::LoadU(d, run.sin + j);
  y1 = hn::NegMulAdd(x2, s, hn::Mul(x1, c));
  y2 = hn::MulAdd(x1, s, hn::Mul(x2, c));
}

// As many pairs as D has lanes.
template <PairOrder In, PairOrder Out, class D, class T>
struct OneStep {
  static constexpr int64_t kPairs = lanes_of<D>();
  hn::Vec<D> y1, y2;

  HWY_INLINE void rotate(const Run<T>& run, int64_t j, int64_t) { load_rotated<In>(D(), run, j, y1, y2); }
  template <Store S>
  HWY_INLINE void store_first(const Run<T>& run, int64_t j) const {
    if constexpr (Out == PairOrder::half)
      store<S>(D(), y1, run.out + j);
    else
      store_pairs<S>(D(), y1, y2, run.out + 2 * j);
  }
  template <Store S>
  HWY_INLINE void store_second(const Run<T>& run, int64_t j) const {
    if constexpr (Out == PairOrder::half) store<S>(D(), y2, run.out + run.half + j);
  }
};

// To half order: two vectors of pairs, whose halves make one whole vector each of 16-bit elements.
template <PairOrder In, class D, class T>
struct TwoStep {
  static constexpr int64_t kPairs = 2 * lanes_of<D>();
  using W = hn::Repartition<uint16_t, D>;
  hn::Vec<W> y1, y2;

  HWY_INLINE void rotate(const Run<T>& run, int64_t j, int64_t) {
    const D d;
    hn::Vec<D> a1, a2, b1, b2;
    load_rotated<In>(d, run, j, a1, a2);
    load_rotated<In>(d, run, j + lanes_of<D>(), b1, b2);
    y1 = narrow2(d, T{}, a1, b1);
    y2 = narrow2(d, T{}, a2, b2);
  }
  template <Store S>
  HWY_INLINE void store_first(const Run<T>& run, int64_t j) const {
    put<S>(W(), y1, bits_of(run.out + j));
  }
  template <Store S>
  HWY_INLINE void store_second(const Run<T>& run, int64_t j) const {
    put<S>(W(), y2, bits_of(run.out + run.half + j));
  }
};

// bfloat16 in half order, from split tables: the even elements and the odd ones of a vector are two vectors
// of floats without being moved.
template <class D>
struct SplitStep {
  static constexpr int64_t kPairs = 2 * lanes_of<D>();
  using Pairs = DWords<D>;
  hn::Vec<Pairs> y1, y2;

  HWY_INLINE void rotate(const Run<bfloat16>& run, int64_t j, int64_t column) {
    const D d;
    hn::Vec<D> a1, b1, a2, b2;
    load_pairs(d, run.in + j, a1, b1);
    load_pairs(d, run.in + run.half + j, a2, b2);
    rotate(a1, b1, a2, b2, run.cos + column, run.sin + column);
  }
  HWY_INLINE void rotate(hn::Vec<D> a1, hn::Vec<D> b1, hn::Vec<D> a2, hn::Vec<D> b2, const float* cos,
                         const float* sin) {
    const D d;
    const auto ac = hn::LoadU(d, cos), bc = hn::LoadU(d, cos + lanes_of<D>());
    const auto as = hn::LoadU(d, sin), bs = hn::LoadU(d, sin + lanes_of<D>());
    y1 = narrow_pairs(d, bfloat16{}, hn::NegMulAdd(a2, as, hn::Mul(a1, ac)),
                      hn::NegMulAdd(b2, bs, hn::Mul(b1, bc)));
    y2 =
        narrow_pairs(d, bfloat16{}, hn::MulAdd(a1, as, hn::Mul(a2, ac)), hn::MulAdd(b1, bs, hn::Mul(b2, bc)));
  }
  template <Store S>
  HWY_INLINE void store_first(const Run<bfloat16>& run, int64_t j) const {
    put<S>(Pairs(), y1, reinterpret_cast<uint32_t*>(run.out + j));
  }
  template <Store S>
  HWY_INLINE void store_second(const Run<bfloat16>& run, int64_t j) const {
    put<S>(Pairs(), y2, reinterpret_cast<uint32_t*>(run.out + run.half + j));
  }
};

// The only step of a head whose pairs are fewer than its lanes, but more than half as many: its first halves
// reach into the second halves, which are loaded before and stored after, and these are cut off at the head's
// end. For AVX-512, whose masks cost nothing.
template <class D>
struct MaskedSplitStep : SplitStep<D> {
  using W = hn::Repartition<uint16_t, D>;

  HWY_INLINE void rotate(const Run<bfloat16>& run, int64_t, int64_t) {
    const D d;
    hn::Vec<D> a1, b1, a2, b2;
    load_pairs(d, run.in, a1, b1);
    const auto second = hn::MaskedLoad(pairs_of(run), W(), bits_of(run.in + run.half));
    widen_pairs(d, hn::BitCast(DWords<D>(), second), a2, b2);
    SplitStep<D>::rotate(a1, b1, a2, b2, run.cos, run.sin);
  }
  template <Store S>
  HWY_INLINE void store_first(const Run<bfloat16>& run, int64_t) const {
    SplitStep<D>::template store_first<S>(run, 0);
  }
  template <Store S>
  HWY_INLINE void store_second(const Run<bfloat16>& run, int64_t) const {
    hn::BlendedStore(hn::BitCast(W(), this->y2), pairs_of(run), W(), bits_of(run.out + run.half));
  }
  static HWY_INLINE hn::Mask<W> pairs_of(const Run<bfloat16>& run) {
    return hn::FirstN(W(), static_cast<size_t>(run.half));
  }
};

// Interleaved 32- and 64-bit elements stay where they are: each is multiplied by its column's cosine, its
// neighbour by the sine with the sign of its place, from doubled tables. fma(x2, -s, x1*c) is fma(-x2, s,
// x1*c).
template <class D>
struct DoubledStep {
  static constexpr int64_t kPairs = lanes_of<D>() / 2;
  using T = hn::TFromD<D>;
  hn::Vec<D> y;

  HWY_INLINE void rotate(const Run<T>& run, int64_t j, int64_t) {
    const D d;
    const auto x = hn::LoadU(d, run.in + 2 * j);
    const auto c = hn::LoadU(d, run.cos + 2 * j), s = hn::LoadU(d, run.sin + 2 * j);
    y = hn::MulAdd(hn::Reverse2(d, x), s, hn::Mul(x, c));
  }
  template <Store S>
  HWY_INLINE void store_first(const Run<T>& run, int64_t j) const {
    put<S>(D(), y, run.out + 2 * j);
  }
  template <Store S>
  HWY_INLINE void store_second(const Run<T>&, int64_t) const {}
};

// ---- runs ----

// Pairs 0 .. n-1 in `steps` steps, the last of which ends at n, over what the step before it has done where n
// is not made of whole ones. It is loaded before anything is stored, because out may be in. kSteps is `steps`
// where that is known, else 0.
template <class Step, int kSteps, Store S, class T>
HWY_INLINE void rotate_steps(const Run<T>& run, int64_t n, int64_t steps) {
  const int64_t tail = n - Step::kPairs, tail_column = (steps - 1) * Step::kPairs;
  if constexpr (kSteps != 0) {  // all kept, then stored in the order of memory
    Step step[kSteps];
    for (int i = 0; i < kSteps - 1; ++i) step[i].rotate(run, i * Step::kPairs, i * Step::kPairs);
    step[kSteps - 1].rotate(run, tail, tail_column);
    for (int i = 0; i < kSteps - 1; ++i) step[i].template store_first<S>(run, i * Step::kPairs);
    step[kSteps - 1].template store_first<S>(run, tail);
    for (int i = 0; i < kSteps - 1; ++i) step[i].template store_second<S>(run, i * Step::kPairs);
    step[kSteps - 1].template store_second<S>(run, tail);
  } else {
    Step last;
    last.rotate(run, tail, tail_column);
    for (int64_t j = 0; j < tail_column; j += Step::kPairs) {
      Step step;
      step.rotate(run, j, j);
      step.template store_first<S>(run, j);
      step.template store_second<S>(run, j);
    }
    last.template store_first<S>(run, tail);
    last.template store_second<S>(run, tail);
  }
}

// The steps of kPairs pairs, a power of two, of a type and order.
template <PairOrder In, PairOrder Out, class T, int64_t kPairs>
using PlainStep = std::conditional_t<form_of<T>(In, Out) == Form::doubled,
                                     DoubledStep<hn::CappedTag<Arithmetic<T>, 2 * kPairs>>,
                                     OneStep<In, Out, hn::CappedTag<Arithmetic<T>, kPairs>, T>>;
template <PairOrder In, PairOrder Out, class T>
constexpr int64_t widest_step() {
  const int64_t lanes = lanes_of<hn::ScalableTag<Arithmetic<T>>>();
  if (form_of<T>(In, Out) == Form::doubled) return lanes / 2;
  return sizeof(T) == 2 && Out == PairOrder::half ? 2 * lanes : lanes;
}
template <PairOrder In, PairOrder Out, class T, int64_t kPairs>
using StepOf = std::conditional_t<
    form_of<T>(In, Out) == Form::split, SplitStep<hn::CappedTag<float, (kPairs + 1) / 2>>,
    std::conditional_t<(kPairs > lanes_of<hn::ScalableTag<Arithmetic<T>>>()),
                       TwoStep<In, hn::ScalableTag<Arithmetic<T>>, T>, PlainStep<In, Out, T, kPairs>>>;

// How many pairs a step takes when a head has n: those of the widest, or half as many. 0: n is less,
// rotate_any serves.
template <PairOrder In, PairOrder Out, class T>
HWY_INLINE int64_t step_pairs(int64_t n) {
  constexpr int64_t kWidest = widest_step<In, Out, T>(), kHalf = kWidest / 2;
  if (n >= kWidest) return kWidest;
  if (kNativeMasks && form_of<T>(In, Out) == Form::split && n > kHalf) return kWidest;  // MaskedSplitStep
  return kWidest >= 16 && n >= kHalf ? kHalf : 0;
}

// Any n, in steps of kPairs or, where n is less, of the largest power of two that it holds. From plain or
// doubled tables.
template <PairOrder In, PairOrder Out, int64_t kPairs, class T>
HWY_INLINE void rotate_any(const Run<T>& run, int64_t n) {
  if constexpr (kPairs > 1)
    if (n < kPairs) return rotate_any<In, Out, kPairs / 2>(run, n);
  if (n > 0) rotate_steps<PlainStep<In, Out, T, kPairs>, 0, Store::plain>(run, n, (n + kPairs - 1) / kPairs);
}

}  // namespace
}  // namespace brim::cpu

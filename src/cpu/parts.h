// Rows of any length in vectors: whole ones, and parts of one at the ends; and sums over them. For <op>_isa.cpp
// only.
#pragma once

#include <type_traits>

#include "cpu/simd.h"

namespace brim::cpu {
namespace {

// How many of a vector's lanes there are: all, or the first n.
struct Whole {};
struct Part {
  int64_t n;
};

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* p, Whole) {
  return load(d, p);
}
// The other lanes are 0.
template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* p, Part part) {
  if constexpr (!kNativeMasks) {
    T lanes[lanes_of<D>()] = {};
    for (int64_t i = 0; i < part.n; ++i) lanes[i] = p[i];
    return load(d, lanes);
  } else if constexpr (sizeof(T) == 2) {
    const Words<D> dw;
    return widen(d, T{}, hn::MaskedLoad(hn::FirstN(dw, static_cast<size_t>(part.n)), dw, bits_of(p)));
  } else {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(part.n)), d, p);
  }
}

template <class D, class T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* p, Whole) {
  store<Store::plain>(d, v, p);
}
template <class D, class T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* p, Part part) {
  if constexpr (!kNativeMasks) {
    T lanes[lanes_of<D>()];
    store<Store::plain>(d, v, lanes);
    for (int64_t i = 0; i < part.n; ++i) p[i] = lanes[i];
  } else if constexpr (sizeof(T) == 2) {
    const Words<D> dw;
    hn::BlendedStore(narrow(d, T{}, v), hn::FirstN(dw, static_cast<size_t>(part.n)), dw, bits_of(p));
  } else {
    hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(part.n)), d, p);
  }
}
// How two vectors hold 2 * lanes elements: one half each, or as pairs, the even ones in the first and the odd ones in
// the second, which 16-bit elements become with less work. Singles are as they are.
enum class Order { natural, paired };

// One or two vectors of neighbouring elements.
template <Order kOrder, class D, class T, int kVectors, class Count>
HWY_INLINE void load_group(D d, const T* p, Count count, hn::Vec<D> (&v)[kVectors]) {
  if constexpr (kVectors == 2 && kOrder == Order::paired && std::is_same_v<T, bfloat16>)
    load_pairs(d, p, v[0], v[1]);
  else
    for (int i = 0; i < kVectors; ++i) v[i] = load(d, p + i * lanes_of<D>(), count);
}
template <Order kOrder, Store kStore, class D, class T, int kVectors, class Count>
HWY_INLINE void store_group(D d, const hn::Vec<D> (&v)[kVectors], T* p, Count count) {
  if constexpr (kVectors == 1) {
    store(d, v[0], p, count);
  } else if constexpr (sizeof(T) != 2) {
    store<kStore>(d, v[0], p);
    store<kStore>(d, v[1], p + lanes_of<D>());
  } else if constexpr (kOrder == Order::paired) {
    store_pairs<kStore>(d, v[0], v[1], p);
  } else {
    put<kStore>(hn::Repartition<uint16_t, D>(), narrow2(d, T{}, v[0], v[1]), bits_of(p));
  }
}

template <class D>
HWY_INLINE hn::Vec<D> clear_others(D, hn::Vec<D> v, Whole) {
  return v;
}
template <class D>
HWY_INLINE hn::Vec<D> clear_others(D d, hn::Vec<D> v, Part part) {
  return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(part.n)), v);
}

// v rounded to T and widened again.
template <class D, class T>
HWY_INLINE hn::Vec<D> round_to(D d, T, hn::Vec<D> v) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return hn::BitCast(d, hn::And(rounded_high(d, v), hn::Set(DWords<D>(), 0xffff0000u)));
  else if constexpr (std::is_same_v<T, float16>)
    return widen(d, T{}, narrow(d, T{}, v));
  else
    return v;
}

// body(how many vectors, as a constant; first element; Whole or Part) for elements 0 .. n-1: two vectors at a time
// from element `head` on.
template <class D, class Body>
HWY_INLINE void each_vectors(D, int64_t head, int64_t n, Body&& body) {
  constexpr int64_t kLanes = lanes_of<D>();
  using One = std::integral_constant<int, 1>;
  int64_t j = 0;
  const auto ones = [&](int64_t end) BRIM_INLINE_LAMBDA {
    for (; j + kLanes <= end; j += kLanes) body(One(), j, Whole());
    if (j < end) body(One(), j, Part{end - j});
    j = end;
  };
  if (head > 0) ones(head < n ? head : n);
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) body(std::integral_constant<int, 2>(), j, Whole());
  ones(n);
}

// A sum over a row in an order that depends on its length alone. A row may be added in pieces, all but the last
// of kSumBlock elements.
template <class D>
struct Sum {
  static constexpr int kChains = 4;
  hn::Vec<D> chains[kChains];

  HWY_INLINE Sum() {
    for (auto& chain : chains) chain = hn::Zero(D());
  }
  // term(how many vectors, as a constant; first element; Whole or Part; as many chains to add to)
  template <class Term>
  HWY_INLINE void add(int64_t n, Term&& term) {
    constexpr int64_t kLanes = lanes_of<D>();
    using One = std::integral_constant<int, 1>;
    using Two = std::integral_constant<int, 2>;
    int64_t j = 0;
    for (; j + kChains * kLanes <= n; j += kChains * kLanes)
      for (int i = 0; i < kChains; i += 2) term(Two(), j + i * kLanes, Whole(), chains + i);
    if (j + 2 * kLanes <= n) {
      term(Two(), j, Whole(), chains);
      j += 2 * kLanes;
    }
    if (j + kLanes <= n) {
      term(One(), j, Whole(), chains);
      j += kLanes;
    }
    if (j < n) term(One(), j, Part{n - j}, chains);
  }
  HWY_INLINE hn::TFromD<D> total() const {
    return hn::GetLane(
        hn::SumOfLanes(D(), hn::Add(hn::Add(chains[0], chains[1]), hn::Add(chains[2], chains[3]))));
  }
};
inline constexpr int64_t kSumBlock = 512;

}  // namespace
}  // namespace brim::cpu

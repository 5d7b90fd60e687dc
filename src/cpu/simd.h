// Words for SIMD bodies, for <op>_isa.cpp files only: Highway in static mode, and loads and stores that widen
// a storage type to its arithmetic type and round back once, to nearest even.
//
// Such a file is compiled once per instruction set with that set's flags, and everything in it but its entry
// has internal linkage: an inline or std function emitted here could be the copy that the linker picks for
// the whole library, and then runs AVX-512 on a machine without it. So: no std containers or algorithms, only
// always_inline from other headers.
#pragma once

#define HWY_COMPILE_ONLY_STATIC
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/float16.h"

// After a lambda's parameters: inlined where it is called, so that its constants stay in registers over the
// loops around it.
#define BRIM_INLINE_LAMBDA __attribute__((always_inline))

static_assert(HWY_TARGET == BRIM_HWY_TARGET,
              "the flags of this file do not give the Highway target they are meant to");

namespace brim::cpu {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using core::bfloat16;
using core::float16;

template <class T>
struct ArithmeticOf {
  using type = float;
};
template <>
struct ArithmeticOf<double> {
  using type = double;
};
template <class T>
using Arithmetic = typename ArithmeticOf<T>::type;

template <class D>
constexpr int64_t lanes_of() {
  return static_cast<int64_t>(hn::MaxLanes(D()));
}

inline constexpr bool kNativeMasks = HWY_TARGET <= HWY_AVX3;

// Where a store goes: through the caches, or past them (aligned, whole vectors; the reader needs the body's
// fence).
enum class Store { plain, stream };

template <Store S, class D>
HWY_INLINE void put(D d, hn::Vec<D> v, hn::TFromD<D>* p) {
  if constexpr (S == Store::stream)
    hn::Stream(v, d, p);
  else
    hn::StoreU(v, d, p);
}

template <class T>
HWY_INLINE uint16_t* bits_of(T* p) {
  return reinterpret_cast<uint16_t*>(p);
}
template <class T>
HWY_INLINE const uint16_t* bits_of(const T* p) {
  return reinterpret_cast<const uint16_t*>(p);
}

// ---- 16-bit elements in vectors: as many as D has lanes ----

template <class D>
using Words = hn::Rebind<uint16_t, D>;
template <class D>
using DWords = hn::RebindToUnsigned<D>;

template <class D>
HWY_INLINE hn::Vec<D> widen(D d, bfloat16, hn::Vec<Words<D>> w) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(DWords<D>(), w)));
}

// Rounding to bfloat16 asks nothing of NaNs, so their lower halves must be clear, or the carry could make
// numbers of them. Those widened from 16 bits are; others go through this first; arithmetic passes a NaN's
// bits on.
template <class D>
HWY_INLINE hn::Vec<D> short_nans(D d, hn::Vec<D> v) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const DWords<D> du;
    const auto quiet = hn::Or(hn::And(hn::BitCast(du, v), hn::Set(du, 0xffff0000u)), hn::Set(du, 0x400000u));
    return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, quiet), v);
  } else {
    return v;
  }
}

// bfloat16 in the upper half of each lane, the lower half is rubbish. (Highway 1.0.3's own conversion
// truncates.)
template <class D>
HWY_INLINE hn::Vec<DWords<D>> rounded_high(D, hn::Vec<D> v) {
  const DWords<D> du;
  const auto bits = hn::BitCast(du, v);
#if HWY_TARGET <= HWY_AVX3
  const auto odd = hn::TestBit(bits, hn::Set(du, 0x10000u));
  return hn::Add(bits, hn::IfThenElse(odd, hn::Set(du, 0x8000u), hn::Set(du, 0x7fffu)));
#else
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
#endif
}

template <class D>
HWY_INLINE hn::Vec<Words<D>> narrow(D d, bfloat16, hn::Vec<D> v) {
  return hn::TruncateTo(Words<D>(), hn::ShiftRight<16>(rounded_high(d, v)));
}

// Without F16C Highway truncates and turns infinity into a number: by hand there, as in core/float16.h.
#if HWY_TARGET == HWY_SSE4

template <class D>
HWY_INLINE hn::Vec<D> widen(D d, float16, hn::Vec<Words<D>> w) {
  const DWords<D> du;
  const auto h = hn::PromoteTo(du, w);
  const auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::And(h, hn::Set(du, 0x7fffu));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(du, 0x38000000u));
  // Subnormal: the fraction below a leading 2^-14, which is then taken away: exact, and no subnormal float32
  // on the way.
  const auto tiny = hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Add(shifted, hn::Set(du, 0x38800000u))),
                                            hn::BitCast(d, hn::Set(du, 0x38800000u))));
  const auto special = hn::Or(shifted, hn::Set(du, 0x7f800000u));
  const auto is_tiny = hn::Lt(magnitude, hn::Set(du, 0x400u)),
             is_special = hn::Gt(magnitude, hn::Set(du, 0x7bffu));
  return hn::BitCast(
      d, hn::Or(sign, hn::IfThenElse(is_special, special, hn::IfThenElse(is_tiny, tiny, normal))));
}

template <class D>
HWY_INLINE hn::Vec<Words<D>> narrow(D d, float16, hn::Vec<D> v) {
  const DWords<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const auto rebias = hn::Sub(magnitude, hn::Set(du, 0x38000000u));
  const auto odd = hn::And(hn::ShiftRight<13>(rebias), hn::Set(du, 1u));
  const auto normal = hn::ShiftRight<13>(hn::Add(rebias, hn::Add(odd, hn::Set(du, 0xfffu))));
  // Subnormal: adding 0.5 rounds to a multiple of 2^-24 and leaves it in the fraction.
  const auto tiny = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))),
                            hn::Set(du, 0x3f000000u));
  const auto nan = hn::Or(hn::Set(du, 0x7e00u), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x1ffu)));
  auto h = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000u)), tiny, normal);
  h = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fefffu)), hn::Set(du, 0x7c00u), h);  // 65520 and up
  h = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), nan, h);
  return hn::TruncateTo(Words<D>(), hn::Or(sign, h));
}

#else

template <class D>
HWY_INLINE hn::Vec<D> widen(D d, float16, hn::Vec<Words<D>> w) {
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), w));
}
template <class D>
HWY_INLINE hn::Vec<Words<D>> narrow(D, float16, hn::Vec<D> v) {
  return hn::BitCast(Words<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
}

#endif

// Keeps a loaded vector in a register: the compiler prefers to load it again at each use, and loads are what
// Zen 4 runs out of first, at one of 64 bytes a cycle.
template <class V>
HWY_INLINE V loaded_once(V v) {
#if HWY_TARGET <= HWY_AVX3
  __asm__("" : "+v"(v.raw));
#else
  __asm__("" : "+x"(v.raw));
#endif
  return v;
}

// ---- as many contiguous elements as D has lanes ----

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* p) {
  if constexpr (sizeof(T) == 2)
    return widen(d, T{}, hn::LoadU(Words<D>(), bits_of(p)));
  else
    return hn::LoadU(d, p);
}

template <Store S, class D, class T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* p) {
  if constexpr (sizeof(T) == 2)
    put<S>(Words<D>(), narrow(d, T{}, v), bits_of(p));
  else
    put<S>(d, v, p);
}

// Twice as many 16-bit elements, rounded, in one whole vector.
template <class D>
HWY_INLINE hn::Vec<hn::Repartition<uint16_t, D>> narrow2(D d, bfloat16, hn::Vec<D> lower, hn::Vec<D> upper) {
  const hn::Repartition<uint16_t, D> dw;
  return hn::ConcatOdd(dw, hn::BitCast(dw, rounded_high(d, upper)), hn::BitCast(dw, rounded_high(d, lower)));
}
template <class D>
HWY_INLINE hn::Vec<hn::Repartition<uint16_t, D>> narrow2(D d, float16, hn::Vec<D> lower, hn::Vec<D> upper) {
  const hn::Repartition<uint16_t, D> dw;
  return hn::Combine(dw, narrow(d, float16{}, upper), narrow(d, float16{}, lower));
}

// ---- interleaved pairs: as many as D has lanes, element 2i to `first`, 2i + 1 to `second` ----

template <class D>
HWY_INLINE void load_pairs(D d, const hn::TFromD<D>* p, hn::Vec<D>& first, hn::Vec<D>& second) {
  hn::LoadInterleaved2(d, p, first, second);
}
template <class D>
HWY_INLINE void widen_pairs(D d, hn::Vec<DWords<D>> pairs, hn::Vec<D>& first, hn::Vec<D>& second) {
  first = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
  second = hn::BitCast(d, hn::And(pairs, hn::Set(DWords<D>(), 0xffff0000u)));
}
template <class D>
HWY_INLINE void load_pairs(D d, const bfloat16* p, hn::Vec<D>& first, hn::Vec<D>& second) {
  const auto pairs = hn::LoadU(DWords<D>(), reinterpret_cast<const uint32_t*>(p));
  widen_pairs(d, loaded_once(pairs), first, second);
}
template <class D>
HWY_INLINE void load_pairs(D d, const float16* p, hn::Vec<D>& first, hn::Vec<D>& second) {
  const auto pair = hn::LoadU(DWords<D>(), reinterpret_cast<const uint32_t*>(p));
  first = widen(d, float16{}, hn::TruncateTo(Words<D>(), pair));
  second = widen(d, float16{}, hn::TruncateTo(Words<D>(), hn::ShiftRight<16>(pair)));
}

// Pairs of 16-bit elements, rounded.
template <class D>
HWY_INLINE hn::Vec<DWords<D>> narrow_pairs(D, bfloat16, hn::Vec<D> first, hn::Vec<D> second) {
  const DWords<D> du;
  const hn::Repartition<uint16_t, DWords<D>> dw;
  const auto a = hn::BitCast(du, first), b = hn::BitCast(du, second);
  // Both elements' upper halves side by side, and their lower halves, which say whether to round up: more than
  // a half, or a half with an odd upper half.
#if HWY_TARGET <= HWY_AVX3
  // Shuffled under a mask, one instruction each instead of a shift and a blend.
  const hn::Repartition<uint8_t, DWords<D>> db;
  alignas(16) static constexpr uint8_t kSwapped[16] = {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13};
  const auto swapped = hn::LoadDup128(db, kSwapped);
  const auto even = hn::MaskFromVec(hn::BitCast(db, hn::Set(du, 0xffffu)));
  const auto odd = hn::MaskFromVec(hn::BitCast(db, hn::Set(du, 0xffff0000u)));
  const auto a8 = hn::BitCast(db, a), b8 = hn::BitCast(db, b);
  const auto upper = hn::BitCast(dw, hn::IfThenElse(even, hn::TableLookupBytes(a8, swapped), b8));
  const auto lower = hn::BitCast(dw, hn::IfThenElse(odd, hn::TableLookupBytes(b8, swapped), a8));
#else
  const auto upper = hn::OddEven(hn::BitCast(dw, b), hn::BitCast(dw, hn::ShiftRight<16>(a)));
  const auto lower = hn::OddEven(hn::BitCast(dw, hn::ShiftLeft<16>(b)), hn::BitCast(dw, a));
#endif
  const auto one = hn::Set(dw, uint16_t{1});
  const auto up = hn::Gt(hn::Or(lower, hn::And(upper, one)), hn::Set(dw, uint16_t{0x8000}));
  return hn::BitCast(du, hn::IfThenElse(up, hn::Add(upper, one), upper));
}
template <class D>
HWY_INLINE hn::Vec<DWords<D>> narrow_pairs(D d, float16, hn::Vec<D> first, hn::Vec<D> second) {
  const DWords<D> du;
  return hn::Or(hn::PromoteTo(du, narrow(d, float16{}, first)),
                hn::ShiftLeft<16>(hn::PromoteTo(du, narrow(d, float16{}, second))));
}

template <Store S, class D, class T>
HWY_INLINE void store_pairs(D d, hn::Vec<D> first, hn::Vec<D> second, T* p) {
  static_assert(S == Store::plain || sizeof(T) == 2, "Highway has no streaming StoreInterleaved2");
  if constexpr (sizeof(T) == 2)
    put<S>(DWords<D>(), narrow_pairs(d, T{}, first, second), reinterpret_cast<uint32_t*>(p));
  else
    hn::StoreInterleaved2(first, second, d, p);
}

}  // namespace
}  // namespace brim::cpu

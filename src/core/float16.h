// The 16-bit storage types on the host, and the one rounding (to nearest even) from wider arithmetic.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "brim/tensor.h"

namespace brim::core {

struct bfloat16 {
  uint16_t bits;
};
struct float16 {
  uint16_t bits;
};

inline float from_bits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
inline uint32_t to_bits(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(bfloat16 x) { return from_bits(static_cast<uint32_t>(x.bits) << 16); }
inline float widen(float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Moves exponent and fraction into place, then scales by 2^112: exact, subnormals included.
  return from_bits(sign | to_bits(from_bits(magnitude << 13) * from_bits(0x77800000u)));
}

inline bfloat16 to_bfloat16(float x) {
  const uint32_t bits = to_bits(x);
  if (std::isnan(x)) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

inline float16 to_float16(float x) {
  const uint32_t bits = to_bits(x), sign = bits >> 16 & 0x8000u;
  const float magnitude = from_bits(bits & 0x7fffffffu);
  if (std::isnan(x)) return {static_cast<uint16_t>(sign | 0x7e00u | (bits >> 13 & 0x1ffu))};
  if (magnitude >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00u)};
  // Below the smallest normal number: adding 0.5 leaves the multiple of 2^-24 in the fraction.
  if (magnitude < 6.103515625e-05f)
    return {static_cast<uint16_t>(sign | (to_bits(magnitude + 0.5f) - 0x3f000000u))};
  const uint32_t rebias = to_bits(magnitude) - 0x38000000u;
  return {static_cast<uint16_t>(sign | ((rebias + 0xfffu + (rebias >> 13 & 1u)) >> 13))};
}

// float64 to float32 rounded to odd, so that a second rounding to 16 bits is a single correct one.
inline float to_float_odd(double x) {
  const float f = static_cast<float>(x);
  if (std::isnan(x) || std::isinf(f) || static_cast<double>(f) == x || (to_bits(f) & 1u)) return f;
  const bool up = static_cast<double>(f) < x;
  return from_bits(up == (f >= 0 && !std::signbit(f)) ? to_bits(f) + 1 : to_bits(f) - 1);
}

template <class T>
T narrow(double x);
template <>
inline double narrow<double>(double x) {
  return x;
}
template <>
inline float narrow<float>(double x) {
  return static_cast<float>(x);
}
template <>
inline bfloat16 narrow<bfloat16>(double x) {
  return to_bfloat16(to_float_odd(x));
}
template <>
inline float16 narrow<float16>(double x) {
  return to_float16(to_float_odd(x));
}

}  // namespace brim::core

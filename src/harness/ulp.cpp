#include "harness/ulp.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dispatch.h"

namespace brim::harness {
namespace {

struct Format {
  int precision;       // bits of the significand, the hidden one included
  int least_exponent;  // of the smallest normal number, 2^least
};
Format format_of(brim_dtype dtype) {
  switch (dtype) {
    case BRIM_BFLOAT16: return {8, -126};
    case BRIM_FLOAT16: return {11, -14};
    case BRIM_FLOAT64: return {53, -1022};
    default: return {24, -126};
  }
}

}  // namespace

double ulp(brim_dtype dtype, double magnitude) {
  const Format f = format_of(dtype);
  const int exponent = magnitude == 0 ? f.least_exponent : std::max(std::ilogb(magnitude), f.least_exponent);
  return std::ldexp(1.0, exponent - f.precision + 1);
}

double rounded(brim_dtype dtype, double value) {
  return core::dispatch_float(dtype, [&](auto tag) {
    return static_cast<double>(core::widen(core::narrow<typename decltype(tag)::type>(value)));
  });
}

double ulp_error(brim_dtype dtype, double got, double expected, double magnitude) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got) ? 0 : kInfinite;
  if (got == expected) return magnitude == 0 && std::signbit(got) != std::signbit(expected) ? kInfinite : 0;
  if (std::isinf(got)) return rounded(dtype, expected) == got ? 0 : kInfinite;
  if (magnitude == 0 || std::isinf(expected)) return kInfinite;
  return std::abs(got - expected) / ulp(dtype, magnitude);
}

}  // namespace brim::harness

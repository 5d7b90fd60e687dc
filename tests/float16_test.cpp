// The 16-bit storage types against oracles of another make: a value built from its fields by ldexp, and a
// rounding that compares exact distances. The compiler's own _Float16 joins in where it has one.
#include "core/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace brim::core {
namespace {

struct Format {
  int exponent_bits, fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int infinity() const { return ((1 << exponent_bits) - 1) << fraction_bits; }
};
constexpr Format kBfloat16{8, 7}, kFloat16{5, 10};

// The value of a pattern of `format`, from its definition. Bits above the infinity's are NaN.
double value_of(Format format, int bits) {
  const double sign = bits & 0x8000 ? -1 : 1;
  const int magnitude = bits & 0x7fff, exponent = magnitude >> format.fraction_bits;
  const int fraction = magnitude & ((1 << format.fraction_bits) - 1);
  if (magnitude > format.infinity()) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude == format.infinity()) return sign * std::numeric_limits<double>::infinity();
  const int scale = 1 - format.bias() - format.fraction_bits;
  return exponent == 0 ? sign * std::ldexp(fraction, scale)
                       : sign * std::ldexp(fraction + (1 << format.fraction_bits), exponent - 1 + scale);
}

// The pattern nearest to a number, ties to the even pattern, found by bisection over the patterns and exact
// comparisons. Infinity stands where the next number would be, as IEEE 754 has it.
int nearest(Format format, double x) {
  const double magnitude = std::fabs(x);
  const auto value = [&](int bits) {
    return bits < format.infinity() ? value_of(format, bits) : std::ldexp(1, 1 << (format.exponent_bits - 1));
  };
  int low = 0, high = format.infinity();
  if (magnitude >= value(high)) low = high;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (value(middle) <= magnitude ? low : high) = middle;
  }
  if (low < high) {
    // Neighbours of a 16-bit format have an exact middle in double, so comparing with it needs no rounding.
    const double middle = (value(low) + value(high)) / 2;
    if (magnitude > middle || (magnitude == middle && low % 2 == 1)) low = high;
  }
  return low | (std::signbit(x) ? 0x8000 : 0);
}

template <class T>
constexpr Format format_of();
template <>
constexpr Format format_of<bfloat16>() {
  return kBfloat16;
}
template <>
constexpr Format format_of<float16>() {
  return kFloat16;
}

float16 from_float(float16, float x) { return to_float16(x); }
bfloat16 from_float(bfloat16, float x) { return to_bfloat16(x); }

template <class T>
class Float16Test : public testing::Test {
 protected:
  static void expect_nearest(double x) {
    ASSERT_EQ(narrow<T>(x).bits, nearest(format_of<T>(), x)) << "from the double " << std::hexfloat << x;
    const float f = static_cast<float>(x);
    ASSERT_EQ(from_float(T{}, f).bits, nearest(format_of<T>(), f)) << "from the float " << std::hexfloat << f;
  }
};
using Types = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(Float16Test, Types);

TYPED_TEST(Float16Test, EveryPatternWidensToItsValueAndComesBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    const TypeParam x{static_cast<uint16_t>(bits)};
    const double value = value_of(format_of<TypeParam>(), bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(widen(x))) << bits;
      // A NaN stays a NaN of the same sign, quiet.
      const int quiet = bits | 1 << (format_of<TypeParam>().fraction_bits - 1);
      ASSERT_EQ(narrow<TypeParam>(static_cast<double>(widen(x))).bits, quiet);
      ASSERT_EQ(from_float(TypeParam{}, widen(x)).bits, quiet);
      continue;
    }
    ASSERT_EQ(static_cast<double>(widen(x)), value) << bits;
    ASSERT_EQ(std::signbit(widen(x)), bits >= 0x8000) << bits;
    ASSERT_EQ(from_float(TypeParam{}, widen(x)).bits, bits);
    ASSERT_EQ(narrow<TypeParam>(value).bits, bits);
  }
}

// Around every number: the middle to its neighbour, and the doubles and floats just beside the middle.
// Overflow included.
TYPED_TEST(Float16Test, MiddlesGoToTheEvenPattern) {
  constexpr Format format = format_of<TypeParam>();
  const double infinity = std::numeric_limits<double>::infinity();
  for (int bits = 0; bits < format.infinity(); ++bits) {
    const double low = value_of(format, bits);
    const double high =
        bits + 1 < format.infinity() ? value_of(format, bits + 1) : 2 * low - value_of(format, bits - 1);
    const double middle = (low + high) / 2;
    for (double sign : {1.0, -1.0}) {
      for (double x : {middle, std::nextafter(middle, 0), std::nextafter(middle, infinity),
                       std::nextafter(low, infinity), std::nextafter(high, 0)})
        ASSERT_NO_FATAL_FAILURE(this->expect_nearest(sign * x));
      const float f = static_cast<float>(middle);
      for (float x : {std::nextafterf(f, 0), std::nextafterf(f, std::numeric_limits<float>::infinity())})
        ASSERT_NO_FATAL_FAILURE(this->expect_nearest(sign * static_cast<double>(x)));
    }
  }
}

TYPED_TEST(Float16Test, RandomDoublesOfEveryMagnitude) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300000; ++i) {
    double x;
    uint64_t bits = random();
    if (i % 2) {  // exponents that the format and its edges use
      const int low = 1 - format_of<TypeParam>().bias() - format_of<TypeParam>().fraction_bits - 3;
      const int high = format_of<TypeParam>().bias() + 3;
      bits = (bits & 0x800fffffffffffffull) |
             static_cast<uint64_t>(1023 + low + static_cast<int>(random() % (high - low))) << 52;
    }
    std::memcpy(&x, &bits, 8);
    if (std::isnan(x)) continue;
    ASSERT_NO_FATAL_FAILURE(this->expect_nearest(x));
  }
}

TYPED_TEST(Float16Test, Extremes) {
  using Double = std::numeric_limits<double>;
  using Float = std::numeric_limits<float>;
  for (double sign : {1.0, -1.0})
    for (double x : {0.0, Double::denorm_min(), Double::min(), Double::max(), Double::infinity(),
                     static_cast<double>(Float::denorm_min()), static_cast<double>(Float::min()),
                     static_cast<double>(Float::max()), 65504.0, 65519.999999999, 65520.0, 65536.0})
      this->expect_nearest(sign * x);
}

#ifdef __FLT16_MANT_DIG__
TEST(Float16, AgreesWithTheCompilersOwn) {
  const auto theirs = [](float x) {
    const _Float16 y = static_cast<_Float16>(x);
    uint16_t bits;
    std::memcpy(&bits, &y, 2);
    return bits;
  };
  std::mt19937 random(3);
  for (int i = 0; i < 2000000; ++i) {
    const float x = from_bits(static_cast<uint32_t>(random()));
    if (std::isnan(x)) continue;
    ASSERT_EQ(to_float16(x).bits, theirs(x)) << std::hexfloat << x;
  }
}
#endif

TEST(RoundToOdd, KeepsTheBitsThatASecondRoundingNeeds) {
  EXPECT_EQ(to_float_odd(1.0), 1.0f);
  EXPECT_EQ(to_bits(to_float_odd(1.0 + 0x1p-40)), to_bits(1.0f) + 1);
  EXPECT_EQ(to_bits(to_float_odd(1.0 - 0x1p-40)), to_bits(1.0f) - 1);
  EXPECT_EQ(to_bits(to_float_odd(-1.0 - 0x1p-40)), to_bits(-1.0f) + 1);
  EXPECT_EQ(to_bits(to_float_odd(0x1p-200)), 1u);
  EXPECT_EQ(to_bits(to_float_odd(-0x1p-200)), 0x80000001u);
}

}  // namespace
}  // namespace brim::core

// RoPE on the CPU as a call: the reference in double as oracle, paths by name, refusals that write nothing.
#include <cmath>

#include "cpu_rope_case.h"

namespace brim::test {
namespace {

class CpuRopeCall : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kS = 37, kH = 3, kD = 90;

  void make(brim_dtype dtype, brim_dtype table, uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::vector<int64_t> shape{1, kH, kS, kD}, strides{kH * kS * kD, kS * kD, kD, 1};
    q_ = Tensor(dtype, shape, strides);
    out_ = Tensor(dtype, shape, strides);
    cos_ = Tensor(table, {kS, kD / 2}, {kD / 2, 1});
    sin_ = Tensor(table, {kS, kD / 2}, {kD / 2, 1});
    q_.fill(random, 3);
    cos_.fill(random, 1);
    sin_.fill(random, 1);
    args_.q = q_.view();
    args_.q_out = out_.view();
    args_.cos = cos_.view();
    args_.sin = sin_.view();
    args_.rotary_dim = kD;
    args_.run.path = GetParam();
  }

  Tensor q_, out_, cos_, sin_;
  RopeArgs args_;
};

// The distance between neighbours of `dtype` at x.
double ulp(brim_dtype dtype, double x) {
  const int digits = dtype == BRIM_FLOAT32    ? 24
                     : dtype == BRIM_BFLOAT16 ? 8
                     : dtype == BRIM_FLOAT16  ? 11
                                              : 53;
  const int lowest = dtype == BRIM_FLOAT16 ? -13 : dtype == BRIM_FLOAT64 ? -1021 : -125;
  int exponent = lowest;
  if (x != 0) std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent, lowest) - digits);
}

// With m the larger of a sum's two products, in ulps of the arithmetic type at m: a half for the product that
// is rounded before the fused multiply-add (two without one), and since |y| <= 2m at most one for the
// rounding of the sum. A 16-bit output is rounded once more, by at most one of its own ulps at m.
double bound(brim_dtype dtype, bool fused, double m) {
  const double error = (fused ? 1.5 : 2.0) * ulp(dtype == BRIM_FLOAT64 ? BRIM_FLOAT64 : BRIM_FLOAT32, m);
  return core::element_size(dtype) == 2 ? error + ulp(dtype, m) : error;
}

Tensor in_double(const Tensor& t) {
  const TensorView& v = t.view();
  Tensor wide(BRIM_FLOAT64, {v.shape, v.shape + v.rank}, {v.strides, v.strides + v.rank});
  t.each([&](int64_t offset) {
    const double x = t.value(offset);
    std::memcpy(wide.at(offset), &x, sizeof x);
  });
  return wide;
}

TEST_P(CpuRopeCall, WithinTheBoundOfTheReference) {
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16, BRIM_FLOAT64})
    for (brim_rope_pairing pairing : {BRIM_PAIRING_HALF, BRIM_PAIRING_INTERLEAVED, BRIM_PAIRING_TO_HALF}) {
      const brim_dtype table = dtype == BRIM_FLOAT64 ? dtype : BRIM_FLOAT32;
      make(dtype, table, pairing);
      args_.pairing = pairing;
      ASSERT_EQ(rope_forward(args_).code, BRIM_OK);

      const Tensor q = in_double(q_), exact = in_double(out_), cos = in_double(cos_), sin = in_double(sin_);
      RopeArgs wide = args_;
      wide.q = q.view();
      wide.q_out = exact.view();
      wide.cos = cos.view();
      wide.sin = sin.view();
      wide.run = {};
      wide.run.backend = BRIM_BACKEND_REFERENCE;
      ASSERT_EQ(rope_forward(wide).code, BRIM_OK);

      const ops::RopeProblem p = ops::make_rope_problem(args_);
      double worst = 0;  // of the bound, which is to be exact, not generous
      for (int64_t head = 0; head < kH * kS; ++head)
        for (int64_t j = 0; j < kD / 2; ++j)
          for (int second = 0; second < 2; ++second) {
            const int64_t row = head % kS * (kD / 2) + j;
            const double x1 = q.value(head * kD + pair_element(p.in_order, j, kD, 0));
            const double x2 = q.value(head * kD + pair_element(p.in_order, j, kD, 1));
            const double c = cos.value(row), s = sin.value(row);
            const double m = std::max(std::fabs((second ? x2 : x1) * c), std::fabs((second ? x1 : x2) * s));
            const int64_t at = head * kD + pair_element(p.out_order, j, kD, second);
            worst = std::max(
                worst, std::fabs(out_.value(at) - exact.value(at)) / bound(dtype, has_fma(GetParam()), m));
          }
      EXPECT_LE(worst, 1.0) << core::dtype_name(dtype) << " pairing " << pairing;
      // float64 is held against a float64 reference with the same formula: there the fused form is exactly
      // it.
      if (dtype != BRIM_FLOAT64) { EXPECT_GE(worst, 0.3) << "the bound is loose or nothing was computed"; }
    }
}

TEST_P(CpuRopeCall, DescribesItsPath) {
  make(BRIM_FLOAT32, BRIM_FLOAT32, 1);
  char text[200];
  ASSERT_EQ(brim_describe_plan(BRIM_OP_rope_forward, &args_, text, sizeof text).code, BRIM_OK);
  EXPECT_EQ(std::string(text).rfind(std::string(GetParam()) + " threads=1 units=", 0), 0u) << text;
}

TEST_P(CpuRopeCall, BadPositionsAreNamedAndNothingIsWritten) {
  make(BRIM_FLOAT32, BRIM_FLOAT32, 1);
  int64_t positions[kS] = {};
  args_.positions = view(positions, BRIM_INT64, {kS});
  const Tensor before = out_.clone();
  for (int64_t bad : {kS, int64_t{-1}, int64_t{1} << 40}) {
    positions[kS - 1] = bad;
    const Status status = rope_forward(args_);
    EXPECT_EQ(status.code, BRIM_OUT_OF_RANGE);
    EXPECT_EQ(std::string(status.message),
              "rope: position_ids[36] is " + std::to_string(bad) + ", table has 37 rows");
  }
  out_.each([&](int64_t offset) { ASSERT_EQ(out_.bits(offset), before.bits(offset)); });
}

INSTANTIATE_TEST_SUITE_P(Isa, CpuRopeCall, testing::ValuesIn(present_isas()),
                         [](const auto& isa) { return isa_test_name(isa.param); });

TEST(CpuIsa, UnknownPathIsRefusedNamingThosePresent) {
  float x[2] = {1, 2}, y[2];
  RopeArgs args;
  args.q = view(x, BRIM_FLOAT32, {1, 1, 1, 2});
  args.q_out = view(y, BRIM_FLOAT32, {1, 1, 1, 2});
  args.cos = args.sin = view(x, BRIM_FLOAT32, {1, 1});
  args.rotary_dim = 2;
  args.run.path = "sse9";
  const Status status = rope_forward(args);
  EXPECT_EQ(status.code, BRIM_NOT_AVAILABLE);
  std::string names;
  for (const char* isa : present_isas()) names += (names.empty() ? "" : ", ") + std::string(isa);
  EXPECT_EQ(std::string(status.message),
            "rope: the cpu backend has no path 'sse9' on this machine; present: " + names);
}

TEST(CpuIsa, TheWidestIsChosen) {
  cpu::Isa isa;
  ASSERT_EQ(cpu::choose_isa("rope", nullptr, &isa).code, BRIM_OK);
  EXPECT_STREQ(cpu::isa_name(isa), present_isas().back());
}

#if defined(__GNUC__) && !defined(__clang__)
TEST(CpuIsa, PresenceIsTheCompilersOpinion) {
  EXPECT_EQ(cpu::isa_present(cpu::Isa::x86_64_v2), __builtin_cpu_supports("x86-64-v2") != 0);
  EXPECT_EQ(cpu::isa_present(cpu::Isa::avx2), __builtin_cpu_supports("x86-64-v3") != 0);
  EXPECT_EQ(cpu::isa_present(cpu::Isa::avx512), __builtin_cpu_supports("x86-64-v4") != 0);
}
#endif

}  // namespace
}  // namespace brim::test

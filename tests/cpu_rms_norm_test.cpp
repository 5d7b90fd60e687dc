// The norms on the CPU, every instruction set present: against the reference, and every way of cutting a call up bit
// for bit against every other. How far results may be off is ops_test's matter, on more cases.
#include "cpu_rms_norm_case.h"

#include <omp.h>

#include "entry/paths.h"

namespace brim::test {
namespace {

std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (const entry::Path& path : entry::paths(BRIM_BACKEND_CPU, BRIM_OP_rms_norm_forward))
    names.push_back(path.name);
  return names;
}

void expect_same_bits(const NormCase& c, const NormCase::Outputs& a, const NormCase::Outputs& b,
                      const char* what) {
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t different = 0;
    a[i].each([&](int64_t offset) { different += a[i].bits(offset) != b[i].bits(offset); });
    ASSERT_EQ(different, 0) << what << ", output " << i << ": " << c.describe();
  }
}

// Two ulps of the type, or as much of the numbers that a sum is made of.
void expect_near(const NormCase& c, const NormCase::Outputs& out, const NormCase::Outputs& expected,
                 double scale) {
  for (size_t i = 0; i < out.size(); ++i)
    out[i].each([&](int64_t offset) {
      const brim_dtype type = out[i].view().dtype;
      const double ulp = type == BRIM_BFLOAT16 ? 0x1p-7 : type == BRIM_FLOAT16 ? 0x1p-10 : 0;
      const double sum =
          c.x.view().dtype == BRIM_FLOAT64 || c.sum.view().dtype == BRIM_FLOAT64 ? 1e-14 : 1e-5;
      const double value = out[i].value(offset), wanted = expected[i].value(offset);
      ASSERT_LE(std::abs(value - wanted), 2 * ulp * std::abs(wanted) + sum * (std::abs(wanted) + scale))
          << "output " << i << " at " << offset << ": " << c.describe();
    });
}

class CpuRmsNorm : public testing::TestWithParam<std::string> {
 protected:
  const char* path() const { return GetParam().c_str(); }

  // Near the reference, and the same bits however it is cut up.
  void check(const NormSpec& spec, uint64_t seed = 1) {
    const NormCase c(spec, seed);
    const NormCase::Outputs out = c.call(path());
    expect_near(c, out, c.call(path(), true), std::sqrt(static_cast<double>(spec.outer * spec.rows)));
    expect_same_bits(c, out, c.call(path()), "again");
    expect_same_bits(c, out, c.cut(path()), "past the caches");
  }
};

struct Types {
  brim_dtype x, s, weight;
};
constexpr Types kTypes[] = {
    {BRIM_FLOAT32, BRIM_FLOAT32, BRIM_FLOAT32},    {BRIM_BFLOAT16, BRIM_BFLOAT16, BRIM_BFLOAT16},
    {BRIM_FLOAT16, BRIM_FLOAT16, BRIM_FLOAT16},    {BRIM_FLOAT64, BRIM_FLOAT64, BRIM_FLOAT64},
    {BRIM_BFLOAT16, BRIM_BFLOAT16, BRIM_FLOAT32},  {BRIM_FLOAT16, BRIM_FLOAT16, BRIM_FLOAT32},
    {BRIM_FLOAT32, BRIM_FLOAT32, BRIM_BFLOAT16},   {BRIM_FLOAT32, BRIM_FLOAT32, BRIM_DTYPE_NONE},
    {BRIM_FLOAT64, BRIM_FLOAT64, BRIM_DTYPE_NONE}, {BRIM_BFLOAT16, BRIM_FLOAT32, BRIM_BFLOAT16},
    {BRIM_FLOAT16, BRIM_FLOAT32, BRIM_FLOAT16}};

NormSpec spec_of(const Types& types, bool add, bool backward) {
  NormSpec spec;
  spec.add = add;
  spec.backward = backward;
  spec.x = types.x;
  spec.s = types.s;
  spec.weight = types.weight;
  return spec;
}

template <class Body>
void each_entry(Body&& body) {
  for (const Types& types : kTypes)
    for (bool add : {false, true})
      for (bool backward : {false, true})
        if (add || types.x == types.s) body(spec_of(types, add, backward));
}

TEST_P(CpuRmsNorm, EveryWidth) {
  each_entry([&](NormSpec spec) {
    for (int64_t hidden = 1; hidden <= 300 && !HasFatalFailure(); hidden += hidden < 70 ? 1 : 23) {
      spec.hidden = hidden;
      spec.rows = 6;
      check(spec, static_cast<uint64_t>(hidden));
    }
  });
}

TEST_P(CpuRmsNorm, EveryLayoutAndCasting) {
  each_entry([&](NormSpec spec) {
    for (int64_t step : {1, 2})
      for (int64_t gap : {0, 3, 64})
        for (int64_t shift : {0, 1, 5})
          for (int64_t hidden : {160, 1029}) {
            if (HasFatalFailure()) return;
            spec.outer = 2;
            spec.rows = 3;
            spec.hidden = hidden;
            spec.gap = gap;
            spec.step = step;
            spec.shift = shift;
            spec.casting = static_cast<brim_rms_norm_casting>((gap + shift) % 3);
            spec.offset = shift == 1 ? 1 : 0;
            check(spec);
          }
  });
}

TEST_P(CpuRmsNorm, WhatIsAbsent) {
  for (const Types& types : kTypes)
    for (int absent = 0; absent < 6; ++absent)
      for (bool add : {false, true}) {
        if (!add && types.x != types.s) continue;
        NormSpec spec = spec_of(types, add, absent > 0);
        spec.hidden = 92;
        spec.rows = 9;
        bool* const wanted[] = {&spec.rstd, &spec.dx, &spec.dweight, &spec.dresidual, &spec.dsum, &spec.dy};
        *wanted[absent] = false;
        if ((!add && absent > 2) || (!add && absent == 1 && !types.weight)) continue;
        check(spec);
      }
}

// What a row comes out as does not depend on how many there are: not even where the others make a call large.
TEST_P(CpuRmsNorm, RowsByThemselves) {
  each_entry([&](NormSpec spec) {
    spec.dweight = false;
    spec.rows = 13;
    for (int64_t hidden : {64, 96, 1029}) {
      spec.hidden = hidden;
      const NormCase all(spec);
      const NormCase::Outputs out = all.cut(path());
      NormSpec one = spec;
      one.rows = 1;
      for (int64_t row : {0, 7, 12}) {
        NormCase single(one);
        const auto take = [&](const Tensor& from, Tensor& to) {
          if (!core::present(to.view())) return;
          const int64_t n = to.view().rank == 1 ? 1 : hidden;
          std::memcpy(to.at(0), from.at(row * n), static_cast<size_t>(n) * to.size());
        };
        take(all.x, single.x);
        take(all.residual, single.residual);
        take(all.sum, single.sum);
        take(all.dy, single.dy);
        take(all.dsum, single.dsum);
        take(all.rstd, single.rstd);
        if (spec.weight) std::memcpy(single.weight.at(0), all.weight.at(0), hidden * all.weight.size());
        const NormCase::Outputs alone = single.call(path());
        for (size_t i = 0; i < out.size(); ++i) {
          const int64_t begin = alone[i].view().rank == 1 ? row : row * hidden;
          alone[i].each(
              [&](int64_t o) { ASSERT_EQ(alone[i].bits(o), out[i].bits(begin + o)) << all.describe(); });
        }
      }
    }
  });
}

TEST_P(CpuRmsNorm, ThreadsDoNotChangeBits) {
  const int before = omp_get_max_threads();
  for (bool add : {false, true})
    for (bool backward : {false, true}) {
      NormSpec spec = spec_of(kTypes[1], add, backward);
      spec.rows = 517;
      spec.hidden = 264;
      const NormCase c(spec);
      omp_set_num_threads(1);
      const NormCase::Outputs out = c.call(path());
      for (int threads : {2, 3, 7}) {
        omp_set_num_threads(threads);
        expect_same_bits(c, out, c.call(path()), "threads");
      }
    }
  omp_set_num_threads(before);
}

using cpu::RowWriting;

TEST_P(CpuRmsNorm, WritesLargeOutputsPastTheCaches) {
  const auto writing = [&](int64_t hidden, int64_t shift, int64_t step, brim_dtype s = BRIM_BFLOAT16) {
    NormSpec spec = spec_of({BRIM_BFLOAT16, s, BRIM_BFLOAT16}, true, false);
    spec.hidden = hidden;
    spec.shift = shift;
    spec.step = step;
    RowWriting result{};
    NormCase(spec).cut(path(), &result);
    return result;
  };
  EXPECT_EQ(writing(64, 0, 1), RowWriting::stream);
  EXPECT_EQ(writing(64, 1, 1), RowWriting::plain);
  EXPECT_EQ(writing(4097, 0, 1), RowWriting::heads);
  EXPECT_EQ(writing(4096, 3, 1), RowWriting::heads);
  EXPECT_EQ(writing(4096, 0, 2), RowWriting::plain);
  EXPECT_EQ(writing(4096, 0, 1, BRIM_FLOAT32), RowWriting::stream);
  EXPECT_EQ(writing(4097, 0, 1, BRIM_FLOAT32), RowWriting::plain);  // x and sum are not side by side
}

// Float32 sums of 10^5 rows: one sign, which is the worst for a sum.
TEST_P(CpuRmsNorm, DweightOfManyRows) {
  NormSpec spec = spec_of(kTypes[4], false, true);
  spec.rows = 100'000;
  spec.hidden = 40;
  spec.dx = false;
  NormCase c(spec);
  for (Tensor* t : {&c.x, &c.dy})
    t->each([&](int64_t o) {
      uint16_t bits;
      std::memcpy(&bits, t->at(o), 2);
      bits &= 0x7fff;
      std::memcpy(t->at(o), &bits, 2);
    });
  c.rstd.each([&](int64_t o) {
    const float one = 1.25f;
    std::memcpy(c.rstd.at(o), &one, 4);
  });
  const Tensor dweight = std::move(c.call(path())[5]), wanted = std::move(c.call(path(), true)[5]);
  dweight.each(
      [&](int64_t o) { EXPECT_NEAR(dweight.value(o) / wanted.value(o), 1, 2e-6) << "column " << o; });
}

// Whatever its bits, a NaN of a float32 weight or residual comes out as one of bfloat16.
TEST_P(CpuRmsNorm, NansOfEveryKind) {
  for (bool backward : {false, true}) {
    NormSpec spec = spec_of({BRIM_BFLOAT16, BRIM_FLOAT32, BRIM_FLOAT32}, true, backward);
    NormCase c(spec);
    for (Tensor* t : {&c.weight, &c.residual, &c.dsum, &c.rstd}) {
      if (!core::present(t->view())) continue;
      for (uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7f800001u}) {
        NormCase with(spec);
        Tensor& same = t == &c.weight     ? with.weight
                       : t == &c.residual ? with.residual
                       : t == &c.dsum     ? with.dsum
                                          : with.rstd;
        std::memcpy(same.at(1), &bits, 4);
        const NormCase::Outputs out = with.call(path()), wanted = with.call(path(), true);
        for (size_t i = 0; i < out.size(); ++i)
          out[i].each([&](int64_t o) {
            ASSERT_EQ(std::isnan(out[i].value(o)), std::isnan(wanted[i].value(o)))
                << "output " << i << " at " << o;
          });
      }
    }
  }
}

TEST_P(CpuRmsNorm, WorkspaceIsChecked) {
  const NormCase c(spec_of(kTypes[1], false, true));
  Tensor dweight(BRIM_BFLOAT16, {64}, {1});
  RmsNormArgs a;
  a.x = c.x.view();
  a.weight = c.weight.view();
  a.rstd = c.rstd.view();
  a.dy = c.dy.view();
  a.dweight = dweight.view();
  a.run.path = path();
  size_t bytes = 0;
  ASSERT_EQ(brim_workspace_size(BRIM_OP_rms_norm_backward, &a, &bytes).code, BRIM_OK);
  ASSERT_GT(bytes, 0u);
  EXPECT_EQ(rms_norm_backward(a).code, BRIM_INVALID_ARGUMENT);
  std::vector<double> space(bytes / sizeof(double) + 2);
  a.workspace = space.data();
  a.workspace_bytes = bytes - 1;
  EXPECT_EQ(rms_norm_backward(a).code, BRIM_INVALID_ARGUMENT);
  a.workspace = reinterpret_cast<char*>(space.data()) + 4;
  a.workspace_bytes = bytes;
  EXPECT_EQ(rms_norm_backward(a).code, BRIM_INVALID_ARGUMENT);
  a.workspace = space.data();
  EXPECT_EQ(rms_norm_backward(a).code, BRIM_OK);
}

INSTANTIATE_TEST_SUITE_P(Isa, CpuRmsNorm, testing::ValuesIn(isas()), [](const auto& isa) {
  std::string name = isa.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace brim::test

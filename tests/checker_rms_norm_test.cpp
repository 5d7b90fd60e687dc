// The checker must notice what is wrong with a norm: a good call is spoiled in one place.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/check.h"
#include "ops/rms_norm_case.h"

namespace brim {
namespace {

using harness::CheckResult;
using harness::Outcome;

using Spoil = void (*)(brim_rms_norm_args&);

// The spec's case with `spoil` done to the args of the call under test, not to the oracle's, which are float64.
CheckResult check_norm(ops::RmsNormSpec spec, Spoil spoil) {
  spec.x = spec.s = spec.weight = BRIM_BFLOAT16;
  ops::Case c = ops::make_rms_norm_case(spec);
  c.bind = [bind = c.bind, spoil](std::span<const TensorView> views, const brim_run& run) {
    std::shared_ptr<void> args = bind(views, run);
    auto& norm = *static_cast<brim_rms_norm_args*>(args.get());
    if (norm.weight.dtype != BRIM_FLOAT64) spoil(norm);
    return args;
  };
  const brim_op op = spec.add ? (spec.backward ? BRIM_OP_add_rms_norm_backward : BRIM_OP_add_rms_norm_forward)
                              : (spec.backward ? BRIM_OP_rms_norm_backward : BRIM_OP_rms_norm_forward);
  return harness::Checker(c, op, 1).run(harness::make_devices(), BRIM_BACKEND_REFERENCE,
                                        {"reference", false});
}

struct Row {
  const char* name;
  bool add, backward;
  Spoil spoil;
  const char* words;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

#define SPOIL(...) [](brim_rms_norm_args& a) { __VA_ARGS__; }

const Row kRows[] = {
    {"AnotherCasting", false, false, SPOIL(a.casting = BRIM_CASTING_GEMMA), "y["},
    {"AnotherCastingOfTheAdd", true, false, SPOIL(a.casting = BRIM_CASTING_GEMMA), "y["},
    {"AnOffset", false, false, SPOIL(a.offset = 0.0078125), "y["},
    {"AnOffsetBackward", false, true, SPOIL(a.offset = 0.0625), "dx["},
    {"AnEps", false, false, SPOIL(a.eps = 1e-5), "rstd["},
    {"OneWeightForAll", false, false, SPOIL(a.weight.strides[0] = 0), "y["},
    {"OneRstdForAll", true, true, SPOIL(a.rstd.strides[0] = 0), "dx["},
    {"NoRstd", false, false, SPOIL(a.rstd = {}), "of rstd were not written"},
    {"NoDweight", true, true, SPOIL(a.dweight = {}), "of dweight were not written"},
    {"NoDresidual", true, true, SPOIL(a.dresidual = {}), "of dresidual were not written"},
    {"DsumDropped", true, true, SPOIL(a.dsum = {}), "dx["},
    {"DyDropped", true, true, SPOIL(a.dy = {}), "dx["},
    {"DyForTheSum", true, true, SPOIL(std::swap(a.dy.data, a.sum.data)), "dx["},
    {"ResidualDropped", true, false, SPOIL(a.residual.data = a.x.data), "sum["},
    {"AnInputOverwritten", false, false, SPOIL(a.y = a.x), "of y were not written"},
    {"ARefusal", false, true, SPOIL(a.casting = 7), "the call was refused: rms_norm_backward: casting"},
};

class NormChecker : public testing::TestWithParam<Row> {};
TEST_P(NormChecker, Notices) {
  const Row& row = GetParam();
  ops::RmsNormSpec spec;
  spec.add = row.add;
  spec.backward = row.backward;
  const CheckResult good = check_norm(spec, [](brim_rms_norm_args&) {});
  EXPECT_EQ(good.outcome, Outcome::ok) << good.message;
  EXPECT_GT(good.max_ulp, 0);
  EXPECT_LE(good.max_ulp, good.limit_ulp);
  const CheckResult spoiled = check_norm(spec, row.spoil);
  EXPECT_EQ(spoiled.outcome, Outcome::failed);
  EXPECT_NE(spoiled.message.find(row.words), std::string::npos) << spoiled.message;
}
INSTANTIATE_TEST_SUITE_P(Rows, NormChecker, testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace brim

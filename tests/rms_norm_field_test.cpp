// The norms' cases from the field with the numbers that must come out (shared/FIELD-CASES.md, by their numbers there), on
// every CPU backend and path: an oracle of its own kind, which shares no code with the reference. Forward.
#include "rms_norm_field.h"

namespace brim {
namespace {

INSTANTIATE_TEST_SUITE_P(Paths, NormField, testing::ValuesIn(runs()), path_name);

TEST_P(NormField, Case25TransposedInput) {
  vector<double> base;
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 4; ++j) base.push_back(i + 1);
  Data x(BRIM_FLOAT32, base), w(BRIM_FLOAT32, filled(8, 1)), y(BRIM_FLOAT32, filled(32, NAN));
  RmsNormArgs args = args_of({.eps = 0});
  args.x = x.as({4, 8}, {1, 4});
  args.weight = w.as({8});
  args.y = y.as({4, 8});
  RUN(BRIM_OP_rms_norm_forward, args);
  const vector<double> got = y.values();
  for (size_t row = 0; row < 4; ++row)
    for (size_t i = 0; i < 8; ++i)
      EXPECT_NEAR(got[row * 8 + i], static_cast<double>(i + 1) / 5.0497524691810387, 1e-6);
}

TEST_P(NormField, Case28SliceOfAFusedProjection) {
  Data big(BRIM_FLOAT32, random_numbers(2 * 3 * 192, 28)), w(BRIM_FLOAT32, random_numbers(64, 1));
  vector<double> packed;
  for (int token = 0; token < 6; ++token)
    for (int j = 64; j < 128; ++j) packed.push_back(big.values()[static_cast<size_t>(token * 192 + j)]);
  Data alone(BRIM_FLOAT32, packed), y(BRIM_FLOAT32, filled(384, NAN)),
      expected(BRIM_FLOAT32, filled(384, NAN));
  RmsNormArgs args = args_of({});
  args.weight = w.as({64});
  args.x = alone.as({2, 3, 64});
  args.y = expected.as({2, 3, 64});
  RUN(BRIM_OP_rms_norm_forward, args);
  args.x = big.as({2, 3, 64}, {576, 192, 1});
  args.x.data = static_cast<float*>(args.x.data) + 64;
  args.y = y.as({2, 3, 64});
  RUN(BRIM_OP_rms_norm_forward, args);
  EXPECT_EQ(y.values(), expected.values());
  // The axes swapped, which cannot be merged.
  args.x = view(args.x.data, BRIM_FLOAT32, {3, 2, 64}, {192, 576, 1});
  args.y = y.as({3, 2, 64});
  RUN(BRIM_OP_rms_norm_forward, args);
  for (size_t i = 0; i < 384; ++i)
    EXPECT_EQ(y.values()[i], expected.values()[(i / 64 % 2 * 3 + i / 128) * 64 + i % 64]);
}

TEST_P(NormField, Case16UnalignedBasesGiveTheSame) {
  const int64_t rows = 5, hidden = 96;
  vector<vector<double>> first;
  for (int shifted = -1; shifted < 6; ++shifted) {
    const auto off = [&](int tensor) { return static_cast<int64_t>(tensor == shifted); };
    Data x(BRIM_BFLOAT16, random_numbers(rows * hidden, 1), off(0)),
        w(BRIM_BFLOAT16, random_numbers(hidden, 2), off(1)),
        dy(BRIM_BFLOAT16, random_numbers(rows * hidden, 3), off(2)),
        y(BRIM_BFLOAT16, filled(rows * hidden, NAN), off(3)),
        dx(BRIM_BFLOAT16, filled(rows * hidden, NAN), off(4)), dw(BRIM_BFLOAT16, filled(hidden, NAN), off(5)),
        rstd(BRIM_FLOAT32, filled(rows, NAN));
    RmsNormArgs args = args_of({});
    args.x = x.as({rows, hidden});
    args.weight = w.as({hidden});
    args.rstd = rstd.as({rows});
    args.y = y.as({rows, hidden});
    RUN(BRIM_OP_rms_norm_forward, args);
    args.y = {};
    args.dy = dy.as({rows, hidden});
    args.dx = dx.as({rows, hidden});
    args.dweight = dw.as({hidden});
    RUN(BRIM_OP_rms_norm_backward, args);
    // A sum's order may depend on alignment: within a neighbour of the 16 bits.
    const vector<vector<double>> got{y.values(), dx.values(), dw.values()};
    if (shifted < 0) first = got;
    for (size_t t = 0; t < got.size(); ++t)
      for (size_t i = 0; i < got[t].size(); ++i)
        EXPECT_NEAR(got[t][i], first[t][i], std::abs(first[t][i]) * 0x1p-7 + 1e-5) << shifted << " " << t;
  }
}

TEST_P(NormField, Case33EpsIsNotThatOfTheType) {
  OneRow small(BRIM_BFLOAT16, filled(32, 0.0625), BRIM_BFLOAT16, filled(32, 1), {});
  RUN(BRIM_OP_rms_norm_forward, small.args);
  EXPECT_EQ(small.y.values(), filled(32, 1));
  OneRow exact(BRIM_FLOAT32, filled(32, 0.0625), BRIM_FLOAT32, filled(32, 1), {});
  RUN(BRIM_OP_rms_norm_forward, exact.args);
  for (double v : exact.y.values()) EXPECT_NEAR(v, 0.999872, 1e-6);
  OneRow large(BRIM_BFLOAT16, filled(32, 0.0625), BRIM_FLOAT32, filled(32, 1),
               {.eps = 0.0078125, .casting = BRIM_CASTING_GEMMA});
  RUN(BRIM_OP_rms_norm_forward, large.args);
  for (double v : large.y.values()) EXPECT_NEAR(v, 0.577350, 0x1p-9);
}

TEST_P(NormField, Case34Float16IsSquaredInFloat32) {
  const struct {
    double x, y, tolerance;
  } rows[] = {{300, 1, 0}, {60000, 1, 0}, {0x1p-24, 0x1p-24 / std::sqrt(0x1p-48 + 1e-6), 0x1p-25}};
  for (const auto& row : rows) {
    OneRow call(BRIM_FLOAT16, filled(16, row.x), BRIM_FLOAT16, filled(16, 1), {});
    RUN(BRIM_OP_rms_norm_forward, call.args);
    for (double v : call.y.values()) EXPECT_NEAR(v, row.y, row.tolerance) << row.x;
    Data dy(BRIM_FLOAT16, random_numbers(16, 34)), dx(BRIM_FLOAT16, filled(16, NAN));
    call.args.y = {};
    call.args.dy = dy.as({16});
    call.args.dx = dx.as({16});
    RUN(BRIM_OP_rms_norm_backward, call.args);
    for (double v : dx.values()) EXPECT_TRUE(std::isfinite(v)) << row.x;
  }
}

// The sum overflows to infinity as float16 does, and its neighbours never hear of it.
TEST_P(NormField, Case34AnOverflowingSumStaysInItsRow) {
  vector<double> values = filled(3 * 16, 0.5);
  values[16] = 40000;
  Data x(BRIM_FLOAT16, values), residual(BRIM_FLOAT16, values), w(BRIM_FLOAT16, filled(16, 1)),
      y(BRIM_FLOAT16, filled(48, NAN)), sum(BRIM_FLOAT16, filled(48, NAN));
  RmsNormArgs args = args_of({});
  args.x = x.as({3, 16});
  args.residual = residual.as({3, 16});
  args.weight = w.as({16});
  args.y = y.as({3, 16});
  args.sum = sum.as({3, 16});
  RUN(BRIM_OP_add_rms_norm_forward, args);
  EXPECT_EQ(sum.values()[16], INFINITY);
  for (size_t i = 0; i < 48; ++i) {
    if (i / 16 != 1) { EXPECT_EQ(y.values()[i], 1); }
    if (i != 16) { EXPECT_EQ(sum.values()[i], 1); }
  }
}

TEST_P(NormField, Case36WhereTheProductIsRounded) {
  const vector<double> x{3, 5}, w{1.0078125, 1.0078125};
  for (const auto& [casting, expected] : {std::pair{BRIM_CASTING_LLAMA, vector<double>{0.73046875, 1.21875}},
                                          {BRIM_CASTING_GEMMA, {0.734375, 1.21875}},
                                          {BRIM_CASTING_NONE, {0.734375, 1.21875}}}) {
    OneRow call(BRIM_BFLOAT16, x, BRIM_BFLOAT16, w, {.eps = 0, .casting = casting});
    RUN(BRIM_OP_rms_norm_forward, call.args);
    EXPECT_EQ(call.y.values(), expected) << casting;
  }
}

TEST_P(NormField, Case36TheOffsetIsAddedInFloat32) {
  OneRow call(BRIM_BFLOAT16, {1.5, 1.75, 1.25, .75, .75, 0, 0, 0}, BRIM_BFLOAT16, filled(8, 15.8125),
              {.eps = 0, .offset = 1, .casting = BRIM_CASTING_GEMMA});
  RUN(BRIM_OP_rms_norm_forward, call.args);
  EXPECT_EQ(call.y.values(), (vector<double>{25.25, 29.375, 21, 12.625, 12.625, 0, 0, 0}));
}

TEST_P(NormField, Case37AFloat32WeightCounts) {
  for (brim_rms_norm_casting casting : {BRIM_CASTING_LLAMA, BRIM_CASTING_GEMMA}) {
    // 250 * 1.00390625 is 250.9765625, which rounds to 251; as bfloat16 the weight would be 1 and y 250.
    OneRow call(BRIM_BFLOAT16, {1, 0, 0, 0}, BRIM_FLOAT32, filled(4, 125 * 1.00390625),
                {.eps = 0, .casting = casting});
    RUN(BRIM_OP_rms_norm_forward, call.args);
    EXPECT_EQ(call.y.values()[0], 251) << casting;
  }
}

TEST_P(NormField, Case40TheRoundedSumIsNormalised) {
  Data x(BRIM_BFLOAT16, {-1.4609375, 1.390625, 1.0546875, -0.98046875}),
      residual(BRIM_BFLOAT16,
               {-0.00018215179443359375, -0.00201416015625, 0.006072998046875, 0.01153564453125}),
      w(BRIM_BFLOAT16, filled(4, 1)), y(BRIM_BFLOAT16, filled(4, NAN)), sum(BRIM_BFLOAT16, filled(4, NAN));
  RmsNormArgs args = args_of({});
  args.x = x.as({4});
  args.residual = residual.as({4});
  args.weight = w.as({4});
  args.y = y.as({4});
  args.sum = sum.as({4});
  RUN(BRIM_OP_add_rms_norm_forward, args);
  EXPECT_EQ(sum.values(), (vector<double>{-1.4609375, 1.390625, 1.0625, -0.96875}));
  EXPECT_EQ(y.values()[2], 0.859375);
}

TEST_P(NormField, Case43TheAddTakesTheSameOptions) {
  const int64_t rows = 4, hidden = 96;
  for (brim_dtype type : {BRIM_BFLOAT16, BRIM_FLOAT16, BRIM_FLOAT32})
    for (brim_rms_norm_casting casting : {BRIM_CASTING_LLAMA, BRIM_CASTING_GEMMA, BRIM_CASTING_NONE})
      for (double offset : {0.0, 1.0})
        for (double eps : {1e-6, 0.5}) {
          Data x(type, random_numbers(rows * hidden, 43)), w(type, random_numbers(hidden, 44)),
              zeros(type, filled(rows * hidden, 0)), sum(type, filled(rows * hidden, NAN)),
              y(type, filled(rows * hidden, NAN)), expected(type, filled(rows * hidden, NAN)),
              rstd(BRIM_FLOAT32, filled(rows, NAN)), rstd_of_add(BRIM_FLOAT32, filled(rows, NAN));
          RmsNormArgs args = args_of({.eps = eps, .offset = offset, .casting = casting});
          args.x = x.as({rows, hidden});
          args.weight = w.as({hidden});
          args.y = expected.as({rows, hidden});
          args.rstd = rstd.as({rows});
          RUN(BRIM_OP_rms_norm_forward, args);
          args.residual = zeros.as({rows, hidden});
          args.sum = sum.as({rows, hidden});
          args.y = y.as({rows, hidden});
          args.rstd = rstd_of_add.as({rows});
          RUN(BRIM_OP_add_rms_norm_forward, args);
          EXPECT_EQ(y.values(), expected.values());
          EXPECT_EQ(rstd_of_add.values(), rstd.values());
          EXPECT_EQ(sum.values(), x.values());
        }
}

// DESIGN: a row's result does not depend on how many others are in the call.
TEST_P(NormField, RowsDoNotDependOnTheirNeighbours) {
  const int64_t hidden = 1000;
  for (brim_dtype type : {BRIM_BFLOAT16, BRIM_FLOAT32}) {
    Data x(type, random_numbers(67 * hidden, 5)), w(type, random_numbers(hidden, 6)),
        all(type, filled(67 * hidden, NAN)), one(type, filled(hidden, NAN));
    RmsNormArgs args = args_of({});
    args.weight = w.as({hidden});
    args.x = x.as({67, hidden});
    args.y = all.as({67, hidden});
    RUN(BRIM_OP_rms_norm_forward, args);
    const vector<double> expected = all.values();
    for (int64_t row : {0, 16, 66}) {
      args.x = view(static_cast<std::byte*>(x.as({1}).data) + row * hidden * core::element_size(type), type,
                    {hidden});
      args.y = one.as({hidden});
      RUN(BRIM_OP_rms_norm_forward, args);
      EXPECT_EQ(one.values(),
                vector<double>(expected.begin() + row * hidden, expected.begin() + (row + 1) * hidden));
    }
  }
}

}  // namespace
}  // namespace brim

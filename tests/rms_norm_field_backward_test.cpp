// The norms' cases from the field (shared/FIELD-CASES.md, by their numbers there): backward.
#include "rms_norm_field.h"

namespace brim {
namespace {

class NormFieldBackward : public NormField {};
INSTANTIATE_TEST_SUITE_P(Paths, NormFieldBackward, testing::ValuesIn(runs()), path_name);

// rstd, by hand.
Data rstd_of(Data& x, int64_t hidden, double eps) {
  vector<double> list;
  const vector<double> values = x.values();
  for (size_t first = 0; first < values.size(); first += static_cast<size_t>(hidden)) {
    double squares = 0;
    for (size_t j = 0; j < static_cast<size_t>(hidden); ++j) squares += values[first + j] * values[first + j];
    list.push_back(1 / std::sqrt(squares / static_cast<double>(hidden) + eps));
  }
  return {BRIM_FLOAT32, list};
}

// A call of rows and its gradients.
struct Rows {
  int64_t rows, hidden;
  Data x, w, dy, rstd, dx, dw;
  RmsNormArgs args;

  Rows(brim_dtype type, int64_t row_count, int64_t width, const vector<double>& x_values,
       const vector<double>& dy_values)
      : rows(row_count),
        hidden(width),
        x(type, x_values),
        w(type, random_numbers(hidden, 2)),
        dy(type, dy_values),
        rstd(rstd_of(x, hidden, 1e-6)),
        dx(type, filled(rows * hidden, NAN)),
        dw(type, filled(hidden, NAN)),
        args(args_of({})) {
    args.x = x.as({rows, hidden});
    args.weight = w.as({hidden});
    args.dy = dy.as({rows, hidden});
    args.rstd = rstd.as({rows});
    args.dx = dx.as({rows, hidden});
    args.dweight = dw.as({hidden});
  }
};

void expect_all_near(const vector<double>& got, const vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << i;
}

TEST_P(NormFieldBackward, Case24AnyStridesOfTheIncomingGradient) {
  const int64_t hidden = 64;
  const vector<double> x = random_numbers(32 * hidden, 1), wide = random_numbers(2 * 32 * hidden, 2);
  const struct {
    std::initializer_list<int64_t> strides;
  } views[] = {{{64, 256, 1}}, {{0, 0, 0}}, {{1024, 128, 2}}};
  for (const auto& [strides] : views) {
    const int64_t* const step = strides.begin();
    vector<double> packed;
    for (int64_t a = 0; a < 4; ++a)
      for (int64_t b = 0; b < 8; ++b)
        for (int64_t j = 0; j < hidden; ++j)
          packed.push_back(wide[static_cast<size_t>(a * step[0] + b * step[1] + j * step[2])]);
    Rows contiguous(BRIM_FLOAT32, 32, hidden, x, packed), strided(BRIM_FLOAT32, 32, hidden, x, packed);
    RUN(BRIM_OP_rms_norm_backward, contiguous.args);
    Data dy(BRIM_FLOAT32, wide);
    strided.args.x = strided.x.as({4, 8, hidden});
    strided.args.dx = strided.dx.as({4, 8, hidden});
    strided.args.dy = dy.as({4, 8, hidden}, strides);
    RUN(BRIM_OP_rms_norm_backward, strided.args);
    expect_all_near(strided.dx.values(), contiguous.dx.values(), 1e-5);
    expect_all_near(strided.dw.values(), contiguous.dw.values(), 1e-5);
  }
}

TEST_P(NormFieldBackward, Case24FewerRowsThanThreadsOrBlocks) {
  for (int64_t rows : {1, 2, 3, 131, 132, 133}) {
    Rows call(BRIM_FLOAT32, rows, 64, random_numbers(rows * 64, 1), random_numbers(rows * 64, 2));
    RUN(BRIM_OP_rms_norm_backward, call.args);
    vector<double> expected(64);
    for (size_t i = 0; i < static_cast<size_t>(rows * 64); ++i)
      expected[i % 64] += call.dy.values()[i] * call.x.values()[i] * call.rstd.values()[i / 64];
    expect_all_near(call.dw.values(), expected, 1e-4);
  }
}

TEST_P(NormFieldBackward, Case35TheSumOverRowsIsOfFloat32) {
  const int64_t rows = 32832, hidden = 128;
  Rows call(BRIM_BFLOAT16, rows, hidden, filled(rows * hidden, 1), filled(rows * hidden, 1));
  call.rstd = Data(BRIM_FLOAT32, filled(rows, 1));
  call.args.rstd = call.rstd.as({rows});
  RUN(BRIM_OP_rms_norm_backward, call.args);
  EXPECT_EQ(call.dw.values(), filled(hidden, 32768));
  // And in float32, beside a float32 weight (37).
  Data w(BRIM_FLOAT32, filled(hidden, 1)), dw(BRIM_FLOAT32, filled(hidden, NAN));
  call.args.weight = w.as({hidden});
  call.args.dweight = dw.as({hidden});
  RUN(BRIM_OP_rms_norm_backward, call.args);
  EXPECT_EQ(dw.values(), filled(hidden, 32832));
}

TEST_P(NormFieldBackward, Case84TheIncomingGradientsStayAsTheyAre) {
  for (brim_op op : {BRIM_OP_rms_norm_backward, BRIM_OP_add_rms_norm_backward}) {
    Rows call(BRIM_BFLOAT16, 5, 100, random_numbers(500, 1), random_numbers(500, 2));
    Data dsum(BRIM_BFLOAT16, random_numbers(500, 3));
    const auto before = std::pair(call.dy.storage, dsum.storage);
    if (op == BRIM_OP_add_rms_norm_backward) {
      std::swap(call.args.x, call.args.sum);
      call.args.dsum = dsum.as({5, 100});
    }
    RUN(op, call.args);
    EXPECT_EQ(std::pair(call.dy.storage, dsum.storage), before);
  }
}

// The residual's gradient joins after the norm's Jacobian, not before.
TEST_P(NormFieldBackward, TheSumsOwnGradientIsAddedToThatOfTheNorm) {
  Rows norm(BRIM_FLOAT32, 5, 100, random_numbers(500, 1), random_numbers(500, 2)),
      add(BRIM_FLOAT32, 5, 100, random_numbers(500, 1), random_numbers(500, 2));
  Data dsum(BRIM_FLOAT32, random_numbers(500, 3));
  RUN(BRIM_OP_rms_norm_backward, norm.args);
  std::swap(add.args.x, add.args.sum);
  add.args.dsum = dsum.as({5, 100});
  RUN(BRIM_OP_add_rms_norm_backward, add.args);
  vector<double> expected = norm.dx.values();
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += dsum.values()[i];
  expect_all_near(add.dx.values(), expected, 1e-5);
  EXPECT_EQ(add.dw.values(), norm.dw.values());
}

// dx against differences of the forward formula in float64.
TEST_P(NormFieldBackward, DxIsTheSlopeOfTheForward) {
  const size_t hidden = 24;
  for (double offset : {0.0, 1.0}) {
    Rows call(BRIM_FLOAT32, 1, hidden, random_numbers(hidden, 1), random_numbers(hidden, 2));
    call.args.offset = offset;
    RUN(BRIM_OP_rms_norm_backward, call.args);
    const vector<double> x = call.x.values(), w = call.w.values(), dy = call.dy.values();
    const auto loss = [&](size_t at, double step) {
      double squares = 0, sum = 0;
      for (size_t j = 0; j < hidden; ++j) {
        const double v = x[j] + (j == at ? step : 0);
        squares += v * v;
        sum += v * (offset + w[j]) * dy[j];
      }
      return sum / std::sqrt(squares / static_cast<double>(hidden) + 1e-6);
    };
    for (size_t j = 0; j < hidden; ++j)
      EXPECT_NEAR(call.dx.values()[j], (loss(j, 1e-4) - loss(j, -1e-4)) / 2e-4, 1e-5) << j;
  }
}

TEST_P(NormFieldBackward, Case93EmptyTensorsGiveZeros) {
  for (brim_op op : {BRIM_OP_rms_norm_backward, BRIM_OP_add_rms_norm_backward}) {
    Data nothing(BRIM_BFLOAT16, {}), w(BRIM_BFLOAT16, filled(2520, 1)), dw(BRIM_BFLOAT16, filled(2520, NAN)),
        rstd(BRIM_FLOAT32, {});
    RmsNormArgs args = args_of({});
    (op == BRIM_OP_rms_norm_backward ? args.x : args.sum) = nothing.as({3, 0, 2520});
    args.dy = args.dx = nothing.as({3, 0, 2520});
    args.rstd = rstd.as({0});
    args.weight = w.as({2520});
    args.dweight = dw.as({2520});
    RUN(op, args);
    EXPECT_EQ(dw.values(), filled(2520, 0));
  }
}

TEST_P(NormFieldBackward, Case94ZerosOnOneAxis) {
  Data x(BRIM_FLOAT32, filled(4, 0)), w(BRIM_FLOAT32, filled(4, 1)), dy(BRIM_FLOAT32, filled(4, -1));
  for (int time = 0; time < 10; ++time) {
    Data y(BRIM_FLOAT32, filled(4, NAN)), dx(BRIM_FLOAT32, filled(4, NAN)), dw(BRIM_FLOAT32, filled(4, NAN)),
        rstd(BRIM_FLOAT32, {NAN});
    RmsNormArgs args = args_of({.eps = 1e-5});
    args.x = x.as({4});
    args.weight = w.as({4});
    args.rstd = rstd.as({1});
    args.y = y.as({4});
    RUN(BRIM_OP_rms_norm_forward, args);
    EXPECT_EQ(y.values(), filled(4, 0));
    args.y = {};
    args.dy = dy.as({4});
    args.dx = dx.as({4});
    args.dweight = dw.as({4});
    RUN(BRIM_OP_rms_norm_backward, args);
    EXPECT_EQ(dw.values(), filled(4, 0));
    expect_all_near(dx.values(), filled(4, -316.2278), 1e-3);
  }
}

TEST_P(NormFieldBackward, Case108TheSameBitsEveryTime) {
  const int64_t rows = 1024, hidden = 192;
  Rows first(BRIM_BFLOAT16, rows, hidden, random_numbers(rows * hidden, 1), random_numbers(rows * hidden, 2));
  RUN(BRIM_OP_rms_norm_backward, first.args);
  const vector<double> dx = first.dx.values(), dw = first.dw.values();
  for (int time = 0; time < 5; ++time) {
    RUN(BRIM_OP_rms_norm_backward, first.args);
    EXPECT_EQ(first.dx.values(), dx);
    EXPECT_EQ(first.dw.values(), dw);
  }
}

}  // namespace
}  // namespace brim

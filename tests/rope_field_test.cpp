// RoPE's cases from the field with the numbers that must come out (shared/FIELD-CASES.md, by their numbers
// there), on every CPU backend and path: an oracle of its own kind, which shares no code with the reference.
#include <gtest/gtest.h>

#include <cmath>

#include "brim/brim.hpp"
#include "core/float16.h"
#include "entry/paths.h"

namespace brim {
namespace {

// cos and sin of position p and column j of a head with rotary width r, base 10000.
struct Tables {
  std::vector<float> cos, sin;
  int64_t rows, width;

  Tables(int64_t row_count, int64_t r, double base = 10000) : rows(row_count), width(r / 2) {
    for (int64_t p = 0; p < rows; ++p)
      for (int64_t j = 0; j < width; ++j) {
        const double angle =
            static_cast<double>(p) * std::pow(base, -2.0 * static_cast<double>(j) / static_cast<double>(r));
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
  }
  void use_in(RopeArgs& args) const {
    args.cos = view(cos.data(), BRIM_FLOAT32, {rows, width});
    args.sin = view(sin.data(), BRIM_FLOAT32, {rows, width});
    args.rotary_dim = 2 * width;
  }
};

struct Run {
  brim_backend backend;
  entry::Path path;
};
std::vector<Run> runs() {
  std::vector<Run> runs;
  for (brim_backend backend : {BRIM_BACKEND_REFERENCE, BRIM_BACKEND_CPU})
    for (const entry::Path& path : entry::paths(backend, BRIM_OP_rope_forward))
      runs.push_back({backend, path});
  return runs;
}

class RopeField : public testing::TestWithParam<Run> {
 protected:
  void run(RopeArgs& args, bool backward = false) {
    args.run.backend = GetParam().backend;
    args.run.path = GetParam().path.name;
    const Status status = backward ? rope_backward(args) : rope_forward(args);
    ASSERT_TRUE(ok(status)) << status.message;
  }

  // One head at position 1, alone.
  std::vector<float> rotate(const std::vector<float>& x, int64_t r,
                            brim_rope_pairing pairing = BRIM_PAIRING_HALF, bool backward = false,
                            int64_t position = 1) {
    const int64_t d = static_cast<int64_t>(x.size());
    const Tables tables(position + 1, r);
    std::vector<float> y(x.size(), -1);
    RopeArgs args;
    tables.use_in(args);
    args.q = view(x.data(), BRIM_FLOAT32, {1, 1, 1, d});
    args.q_out = view(y.data(), BRIM_FLOAT32, {1, 1, 1, d});
    args.positions = view(&position, BRIM_INT64, {1});
    args.pairing = pairing;
    run(args, backward);
    return y;
  }

  static void expect_near(const std::vector<float>& got, const std::vector<double>& expected,
                          double tolerance = 2e-6) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << i;
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, RopeField, testing::ValuesIn(runs()),
                         [](const testing::TestParamInfo<Run>& test) {
                           std::string name = test.param.path.name;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

TEST_P(RopeField, Case29GradientOfASum) {
  const float one = 1;
  const Tables tables(2, 2);
  const int64_t heads = 3;
  std::vector<float> dx(heads * 2, -1);
  const int64_t position = 1;
  RopeArgs args;
  tables.use_in(args);
  args.q = view(&one, BRIM_FLOAT32, {1, heads, 1, 2}, {0, 0, 0, 0});
  args.q_out = view(dx.data(), BRIM_FLOAT32, {1, heads, 1, 2});
  args.positions = view(&position, BRIM_INT64, {1});
  run(args, true);
  expect_near(dx, {1.381773, -0.301169, 1.381773, -0.301169, 1.381773, -0.301169});
}

TEST_P(RopeField, Case30And69PartialRotaryInAWiderBuffer) {
  const std::vector<double> expected = {-1.984111, 1.959901, 2.462378, 4.019800, 5, 6, 7, 8};
  expect_near(rotate({1, 2, 3, 4, 5, 6, 7, 8}, 4), expected);

  std::vector<float> wide(3 * 20, 99);  // three heads of 8, 20 apart
  for (int h = 0; h < 3; ++h)
    for (int i = 0; i < 8; ++i) wide[static_cast<size_t>(h * 20 + i)] = static_cast<float>(i + 1);
  std::vector<float> y(3 * 8, -1);
  const Tables tables(2, 4);
  const int32_t position = 1;
  RopeArgs args;
  tables.use_in(args);
  args.q = view(wide.data(), BRIM_FLOAT32, {1, 3, 1, 8}, {60, 20, 20, 1});
  args.q_out = view(y.data(), BRIM_FLOAT32, {1, 3, 1, 8});
  args.positions = view(&position, BRIM_INT32, {1});
  run(args);
  for (int h = 0; h < 3; ++h) {
    expect_near({y.begin() + h * 8, y.begin() + h * 8 + 8}, expected);
    for (int i = 4; i < 8; ++i) EXPECT_EQ(y[static_cast<size_t>(h * 8 + i)], i + 1);
  }
}

TEST_P(RopeField, Case63PositionsOfEachBatchRow) {
  const Tables tables(4, 4);
  const int64_t positions[2][4] = {{0, 1, 2, 3}, {3, 3, 3, 3}};
  float x[2][4][4] = {}, y[2][4][4];
  for (auto& sequence : x)
    for (auto& token : sequence) token[0] = 1;
  RopeArgs args;
  tables.use_in(args);
  args.layout = BRIM_LAYOUT_BSHD;
  args.q = view(x, BRIM_FLOAT32, {2, 4, 1, 4});
  args.q_out = view(y, BRIM_FLOAT32, {2, 4, 1, 4});
  args.positions = view(positions, BRIM_INT64, {2, 4});
  run(args);
  for (int p = 0; p < 4; ++p) {
    EXPECT_NEAR(y[0][p][0], std::cos(p), 1e-6);
    expect_near({y[1][p], y[1][p] + 4}, {-0.989992, 0, 0.141120, 0});
  }
}

TEST_P(RopeField, Case66NeighboursOfQAndKKeepTheirBits) {
  constexpr int64_t kGuard = 256, kQ = 2 * 3 * 4 * 8, kK = 2 * 3 * 2 * 8;
  std::vector<float> buffer(3 * kGuard + kQ + kK, 1234.5f);
  float *q = buffer.data() + kGuard, *k = q + kQ + kGuard;
  for (int64_t i = 0; i < kQ; ++i) q[i] = 1;
  for (int64_t i = 0; i < kK; ++i) k[i] = 1;
  const Tables tables(8, 8);
  const int64_t positions[2][3] = {{1, 2, 3}, {4, 5, 6}};
  RopeArgs args;
  tables.use_in(args);
  args.layout = BRIM_LAYOUT_BSHD;
  args.q = args.q_out = view(q, BRIM_FLOAT32, {2, 3, 4, 8});
  args.k = args.k_out = view(k, BRIM_FLOAT32, {2, 3, 2, 8});
  args.positions = view(positions, BRIM_INT64, {2, 3});
  run(args);
  for (int64_t i = 0; i < kGuard; ++i) {
    ASSERT_EQ(buffer[i], 1234.5f);
    ASSERT_EQ(q[kQ + i], 1234.5f);
    ASSERT_EQ(k[kK + i], 1234.5f);
  }
}

TEST_P(RopeField, Case68Pairings) {
  expect_near(rotate({1, 2, 3, 4}, 4), {-1.984111, 1.959901, 2.462378, 4.019800});
  expect_near(rotate({1, 2, 3, 4}, 4, BRIM_PAIRING_INTERLEAVED), {-1.142640, 1.922076, 2.959851, 4.029800});
  // to_half: the interleaved rotation, written to the places of the half order.
  expect_near(rotate({1, 2, 3, 4}, 4, BRIM_PAIRING_TO_HALF), {-1.142640, 2.959851, 1.922076, 4.029800});
  expect_near(rotate({-1.142640f, 2.959851f, 1.922076f, 4.029800f}, 4, BRIM_PAIRING_TO_HALF, true),
              {1, 2, 3, 4});
  // Far out, where a pairing that is accepted and ignored shows.
  const double c0 = std::cos(100.0), s0 = std::sin(100.0), c1 = std::cos(1.0), s1 = std::sin(1.0);
  expect_near(rotate({1, 2, 3, 4}, 4, BRIM_PAIRING_HALF, false, 100),
              {c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + s0, 4 * c1 + 2 * s1});
  expect_near(rotate({1, 2, 3, 4}, 4, BRIM_PAIRING_INTERLEAVED, false, 100),
              {c0 - 2 * s0, 2 * c0 + s0, 3 * c1 - 4 * s1, 4 * c1 + 3 * s1});
}

TEST_P(RopeField, Case72EveryHeadOfQAndKTurns) {
  for (const auto& [h, hk] :
       {std::pair<int64_t, int64_t>{2, 1}, {1, 1}, {3, 1}, {5, 5}, {16, 4}, {64, 8}, {1, 3}}) {
    const std::vector<float> q(static_cast<size_t>(h * 2), 1), k(static_cast<size_t>(hk * 2), 1);
    std::vector<float> q_out(q.size()), k_out(k.size());
    const Tables tables(2, 2);
    const int64_t position = 1;
    RopeArgs args;
    tables.use_in(args);
    args.q = view(q.data(), BRIM_FLOAT32, {1, h, 1, 2});
    args.k = view(k.data(), BRIM_FLOAT32, {1, hk, 1, 2});
    args.q_out = view(q_out.data(), BRIM_FLOAT32, {1, h, 1, 2});
    args.k_out = view(k_out.data(), BRIM_FLOAT32, {1, hk, 1, 2});
    args.positions = view(&position, BRIM_INT64, {1});
    run(args);
    for (const auto* out : {&q_out, &k_out})
      for (size_t i = 0; i < out->size(); i += 2)
        expect_near({(*out)[i], (*out)[i + 1]}, {-0.301169, 1.381773});
  }
}

TEST_P(RopeField, Case74LongContextInBfloat16) {
  const Tables tables(1002, 2);
  const int64_t position = 1001;
  const core::bfloat16 x[2] = {core::to_bfloat16(1), core::to_bfloat16(0)};
  core::bfloat16 y[2];
  RopeArgs args;
  tables.use_in(args);
  args.q = view(x, BRIM_BFLOAT16, {1, 1, 1, 2});
  args.q_out = view(y, BRIM_BFLOAT16, {1, 1, 1, 2});
  args.positions = view(&position, BRIM_INT64, {1});
  run(args);
  EXPECT_EQ(core::widen(y[0]), -0.392578125f);
  EXPECT_EQ(core::widen(y[1]), 0.921875f);
}

// 16-bit q with float32 tables is float32 arithmetic rounded once, bit for bit where there is a fused
// multiply-add; without it a neighbour may come out.
TEST_P(RopeField, Case75MixedTypesRoundOnce) {
  const size_t d = 64, tokens = 33;
  const Tables tables(tokens, d);
  std::vector<core::bfloat16> x(tokens * d), y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = core::to_bfloat16(static_cast<float>(std::sin(static_cast<double>(i) * 1.7) * 3));
  RopeArgs args;
  tables.use_in(args);
  args.q = view(x.data(), BRIM_BFLOAT16, {1, 1, tokens, d});
  args.q_out = view(y.data(), BRIM_BFLOAT16, {1, 1, tokens, d});
  run(args);
  size_t different = 0;
  const auto expect_bits = [&](core::bfloat16 got, float exact) {
    const int distance = std::abs(got.bits - core::to_bfloat16(exact).bits);
    different += distance != 0;
    ASSERT_LE(distance, GetParam().path.fused ? 0 : 1);
  };
  for (size_t t = 0; t < tokens; ++t)
    for (size_t j = 0; j < d / 2; ++j) {
      const float c = tables.cos[t * d / 2 + j], s = tables.sin[t * d / 2 + j];
      const size_t first = t * d + j, second = first + d / 2;
      const float x1 = core::widen(x[first]), x2 = core::widen(x[second]);
      expect_bits(y[first], std::fma(-x2, s, x1 * c));
      expect_bits(y[second], std::fma(x1, s, x2 * c));
    }
  EXPECT_LE(different, tokens * d / 1000);
}

TEST_P(RopeField, Case83OutOfPlaceLeavesItsInputsAlone) {
  for (int64_t stride : {1, 2}) {
    std::vector<float> x(2 * 8), y(2 * 8);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) + 1;
    const std::vector<float> before = x;
    const Tables tables(1, 4);
    RopeArgs args;
    tables.use_in(args);
    args.q = view(x.data(), BRIM_FLOAT32, {1, 2, 1, 4}, {0, 4 * stride, 0, stride});
    args.q_out = view(y.data(), BRIM_FLOAT32, {1, 2, 1, 4});
    run(args);
    EXPECT_EQ(x, before);
  }
}

TEST_P(RopeField, Case89BackwardUndoesForward) {
  for (brim_rope_pairing pairing : {BRIM_PAIRING_HALF, BRIM_PAIRING_INTERLEAVED, BRIM_PAIRING_TO_HALF}) {
    std::vector<float> x(16);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 16;
    const std::vector<float> back = rotate(rotate(x, 12, pairing, false, 77), 12, pairing, true, 77);
    expect_near(back, {x.begin(), x.end()}, 1e-6);
  }
}

}  // namespace
}  // namespace brim

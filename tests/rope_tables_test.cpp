// brim_rope_tables: the six rules against numbers from transformers 5.24, rounding, layouts, cases 74 and 78,
// refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "brim/brim.hpp"
#include "core/float16.h"

namespace {

using brim::RopeTablesArgs;

// Owns both tables, row-major, of `rows` rows and `width` columns.
template <class T>
struct Tables {
  std::vector<T> cos, sin;
  RopeTablesArgs args;
  int64_t width;

  Tables(brim_dtype dtype, int64_t rows, int64_t table_width, int64_t rotary_dim)
      : cos(rows * table_width), sin(rows * table_width), width(table_width) {
    args.cos = brim::view(cos.data(), dtype, {rows, width});
    args.sin = brim::view(sin.data(), dtype, {rows, width});
    args.rotary_dim = rotary_dim;
  }
  T c(int64_t row, int64_t column) const { return cos[row * width + column]; }
  T s(int64_t row, int64_t column) const { return sin[row * width + column]; }
};

Tables<double> doubles(int64_t rows, int64_t rotary_dim) {
  return {BRIM_FLOAT64, rows, rotary_dim / 2, rotary_dim};
}

struct Rule {
  const char* name;
  int64_t seq_len;
  double inverse_frequency[4], attention;
  void (*set)(RopeTablesArgs&);
};

const double kShort[] = {1, 1.5, 2, 2.5}, kLong[] = {1, 4, 9, 16};

void set_yarn(RopeTablesArgs& a) {
  a.rule = BRIM_ROPE_YARN;
  a.factor = 4;
  a.original_max_position_embeddings = 2048;
}
void set_longrope(RopeTablesArgs& a) {
  a.rule = BRIM_ROPE_LONGROPE;
  a.short_factor = kShort;
  a.long_factor = kLong;
  a.original_max_position_embeddings = 2048;
}
void set_dynamic(RopeTablesArgs& a) {
  a.rule = BRIM_ROPE_DYNAMIC;
  a.factor = 2;
}

// What ROPE_INIT_FUNCTIONS of transformers gives for head_dim 8, rope_theta 10000, max_position_embeddings
// 8192.
const Rule kRules[] = {
    {"default", 0, {1, 0.1, 0.01, 0.001}, 1, [](RopeTablesArgs&) {}},
    {"linear",
     0,
     {0.25, 0.025, 0.0025, 0.00025},
     1,
     [](RopeTablesArgs& a) {
       a.rule = BRIM_ROPE_LINEAR;
       a.factor = 4;
     }},
    {"dynamic at its own length", 8192, {1, 0.1, 0.01, 0.001}, 1, set_dynamic},
    {"dynamic beyond", 20000, {1, 0.0636235476, 0.00404795539, 0.000257545267}, 1, set_dynamic},
    {"yarn", 0, {1, 0.1, 0.00625, 0.00025}, 1.13862944, set_yarn},
    {"yarn of DeepSeek, not truncated",
     0,
     {1, 0.1, 0.00579010462, 2.5e-05},
     1.15572199,
     [](RopeTablesArgs& a) {
       a.rule = BRIM_ROPE_YARN;
       a.factor = 40;
       a.original_max_position_embeddings = 4096;
       a.mscale = 1;
       a.mscale_all_dim = 0.5;
       a.beta_fast = 16;
       a.beta_slow = 2;
       a.truncate_off = 1;
     }},
    {"longrope short", 2048, {1, 1 / 15., 0.005, 0.0004}, 1.08711461, set_longrope},
    {"longrope long", 2049, {1, 0.025, 0.01 / 9, 6.25e-05}, 1.08711461, set_longrope},
    {"llama3",
     0,
     {1, 0.1, 0.00308676064, 0.000125},
     1,
     [](RopeTablesArgs& a) {
       a.rule = BRIM_ROPE_LLAMA3;
       a.factor = 8;
       a.low_freq_factor = 1;
       a.high_freq_factor = 4;
       a.original_max_position_embeddings = 1024;
     }},
};

TEST(RopeTables, RulesGiveTransformersNumbers) {
  for (const Rule& rule : kRules) {
    SCOPED_TRACE(rule.name);
    Tables<double> t = doubles(300, 8);
    t.args.max_position_embeddings = 8192;
    t.args.seq_len = rule.seq_len;
    rule.set(t.args);
    const brim::Status status = brim::rope_tables(t.args);
    ASSERT_TRUE(brim::ok(status)) << status.message;
    for (int j = 0; j < 4; ++j) {
      const double f = std::atan2(t.s(1, j), t.c(1, j));
      EXPECT_NEAR(f, rule.inverse_frequency[j], 1e-6 * rule.inverse_frequency[j]);
      for (int64_t p : {0, 1, 7, 299}) {  // every row turns by p times the angle of row 1
        EXPECT_NEAR(t.c(p, j), rule.attention * std::cos(static_cast<double>(p) * f), 1e-6);
        EXPECT_NEAR(t.s(p, j), rule.attention * std::sin(static_cast<double>(p) * f), 1e-6);
      }
    }
  }
}

TEST(RopeTables, OneRoundingIntoEveryType) {
  const int64_t rows = 2000, r = 64;
  Tables<double> exact = doubles(rows, r);
  Tables<float> single(BRIM_FLOAT32, rows, r / 2, r);
  Tables<brim::core::bfloat16> bf16(BRIM_BFLOAT16, rows, r / 2, r);
  Tables<brim::core::float16> fp16(BRIM_FLOAT16, rows, r / 2, r);
  ASSERT_TRUE(brim::ok(brim::rope_tables(exact.args)));
  ASSERT_TRUE(brim::ok(brim::rope_tables(single.args)));
  ASSERT_TRUE(brim::ok(brim::rope_tables(bf16.args)));
  ASSERT_TRUE(brim::ok(brim::rope_tables(fp16.args)));
  for (size_t i = 0; i < exact.cos.size(); ++i) {
    const double c = exact.cos[i];
    ASSERT_EQ(single.cos[i], static_cast<float>(c)) << i;
    ASSERT_EQ(bf16.cos[i].bits, brim::core::narrow<brim::core::bfloat16>(c).bits) << i;
    ASSERT_EQ(fp16.sin[i].bits, brim::core::narrow<brim::core::float16>(exact.sin[i]).bits) << i;
  }
}

TEST(RopeTables, FullWidthRepeatsTheHalves) {
  Tables<float> half(BRIM_FLOAT32, 9, 300, 600),
      full(BRIM_FLOAT32, 9, 600, 600);  // more columns than one block
  ASSERT_TRUE(brim::ok(brim::rope_tables(half.args)));
  ASSERT_TRUE(brim::ok(brim::rope_tables(full.args)));
  for (int64_t p = 0; p < 9; ++p)
    for (int64_t j = 0; j < 600; ++j) {
      ASSERT_EQ(full.c(p, j), half.c(p, j % 300));
      ASSERT_EQ(full.s(p, j), half.s(p, j % 300));
    }
}

TEST(RopeTables, AnyStridesAndNothingBetweenIsWritten) {
  const int64_t rows = 5, width = 4;
  Tables<float> plain(BRIM_FLOAT32, rows, width, 8);
  std::vector<float> memory(2 * rows * width * 3, 7.0f);
  RopeTablesArgs args = plain.args;  // column-major, every third element, cos and sin in turns
  args.cos = brim::view(memory.data(), BRIM_FLOAT32, {rows, width}, {6, 6 * rows});
  args.sin = brim::view(memory.data() + 3, BRIM_FLOAT32, {rows, width}, {6, 6 * rows});
  ASSERT_TRUE(brim::ok(brim::rope_tables(plain.args)));
  ASSERT_TRUE(brim::ok(brim::rope_tables(args)));
  for (int64_t p = 0; p < rows; ++p)
    for (int64_t j = 0; j < width; ++j) {
      const float* at = &memory[6 * p + 6 * rows * j];
      EXPECT_EQ(at[0], plain.c(p, j));
      EXPECT_EQ(at[3], plain.s(p, j));
      for (int i : {1, 2, 4, 5}) EXPECT_EQ(at[i], 7.0f);
    }
}

TEST(RopeTables, Case74AnglesAreFormedInFloat64) {
  Tables<float> t(BRIM_FLOAT32, 1858, 16, 32);
  ASSERT_TRUE(brim::ok(brim::rope_tables(t.args)));
  EXPECT_NEAR(t.c(1857, 1), 0.306693, 1e-6);
  Tables<float> one(BRIM_FLOAT32, 1002, 1, 2);
  ASSERT_TRUE(brim::ok(brim::rope_tables(one.args)));
  EXPECT_NEAR(one.c(1001, 0), -0.391940, 1e-6);
  EXPECT_NEAR(one.s(1001, 0), 0.919991, 1e-6);
  Tables<float> far(BRIM_FLOAT32, 1000004, 64, 128);
  ASSERT_TRUE(brim::ok(brim::rope_tables(far.args)));
  EXPECT_NEAR(far.c(1000003, 1), 0.86415, 1e-5);  // float32 angles give 0.87221
}

TEST(RopeTables, Case78LongropeSwitchesOnePastTheOriginalLength) {
  const auto angle = [](int64_t rows, int64_t seq_len) {
    Tables<double> t = doubles(rows, 8);
    set_longrope(t.args);
    t.args.original_max_position_embeddings = 4096;
    t.args.max_position_embeddings = 8192;
    t.args.seq_len = seq_len;
    EXPECT_TRUE(brim::ok(brim::rope_tables(t.args)));
    return std::atan2(t.s(1, 1), t.c(1, 1));
  };
  EXPECT_NEAR(angle(4096, 0), 0.1 / 1.5, 1e-12);
  EXPECT_NEAR(angle(4097, 0), 0.1 / 4, 1e-12);
  EXPECT_NEAR(angle(8192, 4096), 0.1 / 1.5, 1e-12);  // seq_len decides, not the number of rows
  EXPECT_NEAR(angle(2, 4097), 0.1 / 4, 1e-12);
}

TEST(RopeTables, NoRows) {
  RopeTablesArgs args;
  args.cos = args.sin = brim::view(nullptr, BRIM_FLOAT32, {0, 4});
  args.rotary_dim = 8;
  const brim::Status status = brim::rope_tables(args);
  EXPECT_TRUE(brim::ok(status)) << status.message;
}

struct Refusal {
  brim_code code;
  const char* text;
  void (*change)(RopeTablesArgs&);
};

const double kZero[] = {1, 0, 1, 1};

const Refusal kRefusals[] = {
    {BRIM_INVALID_ARGUMENT, "rope_tables: rotary_dim is 7, expected an even positive number",
     [](RopeTablesArgs& a) { a.rotary_dim = 7; }},
    {BRIM_INVALID_ARGUMENT,
     "rope_tables: cos has shape (6,4), expected (max_position,12) or (max_position,6)",
     [](RopeTablesArgs& a) { a.rotary_dim = 12; }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: sin has shape (6,3), expected that of cos, (6,4)",
     [](RopeTablesArgs& a) { a.sin.shape[1] = 3; }},
    {BRIM_INVALID_DTYPE, "rope_tables: cos is int32, expected one of",
     [](RopeTablesArgs& a) { a.cos.dtype = BRIM_INT32; }},
    {BRIM_INVALID_DTYPE, "rope_tables: sin is bfloat16, cos is float32; they must have one type",
     [](RopeTablesArgs& a) { a.sin.dtype = BRIM_BFLOAT16; }},
    {BRIM_INVALID_DTYPE, "rope_tables: sin has no element type: it is absent, but needed",
     [](RopeTablesArgs& a) { a.sin = {}; }},
    {BRIM_DEVICE_ERROR, "rope_tables: cos is on cuda:0, which the cpu or reference backend cannot reach",
     [](RopeTablesArgs& a) { a.cos.device = a.sin.device = BRIM_CUDA; }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: the output cos overlaps sin",
     [](RopeTablesArgs& a) { a.sin = a.cos; }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: the output sin of shape (6,4) and strides (0,1) overlaps itself",
     [](RopeTablesArgs& a) { a.sin.strides[0] = 0; }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: base is -2, expected a positive number",
     [](RopeTablesArgs& a) { a.base = -2; }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: rule is 6, expected 0 to 5", [](RopeTablesArgs& a) { a.rule = 6; }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: seq_len is -1, expected 0 (not given) or more",
     [](RopeTablesArgs& a) { a.seq_len = -1; }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: rule linear needs factor, a positive number; it is 0",
     [](RopeTablesArgs& a) { a.rule = BRIM_ROPE_LINEAR; }},
    {BRIM_INVALID_ARGUMENT,
     "rope_tables: rule dynamic needs max_position_embeddings, a positive number; it is 0", set_dynamic},
    {BRIM_INVALID_ARGUMENT, "rope_tables: rule dynamic needs a rotary_dim of 4 or more, it is 2",
     [](RopeTablesArgs& a) {
       set_dynamic(a);
       a.max_position_embeddings = 9;
       a.rotary_dim = 2;
       a.cos.shape[1] = a.sin.shape[1] = 1;
     }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: rule yarn needs a base above 1, it is 1",
     [](RopeTablesArgs& a) {
       set_yarn(a);
       a.base = 1;
     }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: rule yarn needs attention_factor, a positive number; it is -3",
     [](RopeTablesArgs& a) {
       set_yarn(a);
       a.attention_factor = -3;
     }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: rule longrope needs short_factor, 4 numbers",
     [](RopeTablesArgs& a) {
       set_longrope(a);
       a.short_factor = nullptr;
     }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: short_factor[1] is 0, expected a positive number",
     [](RopeTablesArgs& a) {
       set_longrope(a);
       a.short_factor = kZero;
     }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: high_freq_factor is 1, expected more than low_freq_factor, 1",
     [](RopeTablesArgs& a) {
       a.rule = BRIM_ROPE_LLAMA3;
       a.factor = a.low_freq_factor = a.high_freq_factor = 1;
       a.original_max_position_embeddings = 9;
     }},
    {BRIM_INVALID_ARGUMENT, "rope_tables: struct_size is 0", [](RopeTablesArgs& a) { a.struct_size = 0; }},
};

TEST(RopeTables, RefusalsSayWhatIsWrongAndWriteNothing) {
  for (const Refusal& refusal : kRefusals) {
    Tables<float> t(BRIM_FLOAT32, 6, 4, 8);
    refusal.change(t.args);
    const brim::Status status = brim::rope_tables(t.args);
    EXPECT_EQ(status.code, refusal.code) << refusal.text;
    EXPECT_EQ(std::string(status.message).rfind(refusal.text, 0), 0u) << status.message << "\n"
                                                                      << refusal.text;
    for (float x : t.cos) ASSERT_EQ(x, 0.0f) << refusal.text;
  }
  EXPECT_EQ(brim_rope_tables(nullptr).code, BRIM_INVALID_ARGUMENT);
}

TEST(RopeTables, AnOlderCallersStructIsEnough) {
  Tables<float> t(BRIM_FLOAT32, 6, 4, 8), whole(BRIM_FLOAT32, 6, 4, 8);
  t.args.struct_size = offsetof(brim_rope_tables_args, base);  // fields from there on read as zero
  t.args.base = 123;
  ASSERT_TRUE(brim::ok(brim::rope_tables(t.args)));
  ASSERT_TRUE(brim::ok(brim::rope_tables(whole.args)));
  EXPECT_EQ(t.cos, whole.cos);
}

}  // namespace

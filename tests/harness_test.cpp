// The small parts of the harness: ulps, percentiles, strided elements, combinations, model files, rows.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/elements.h"
#include "harness/models.h"
#include "harness/rows.h"
#include "harness/statistics.h"
#include "harness/ulp.h"
#include "ops/all_pairs.h"

namespace brim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Ulp, IsTheSpacingOfTheFormat) {
  EXPECT_EQ(harness::ulp(BRIM_FLOAT32, 1.0), 0x1p-23);
  EXPECT_EQ(harness::ulp(BRIM_FLOAT32, 1.99), 0x1p-23);
  EXPECT_EQ(harness::ulp(BRIM_FLOAT32, 2.0), 0x1p-22);
  EXPECT_EQ(harness::ulp(BRIM_FLOAT32, -0.75), 0x1p-24);
  EXPECT_EQ(harness::ulp(BRIM_BFLOAT16, 1.0), 0x1p-7);
  EXPECT_EQ(harness::ulp(BRIM_FLOAT16, 1.0), 0x1p-10);
  EXPECT_EQ(harness::ulp(BRIM_FLOAT64, 1.0), 0x1p-52);
}

TEST(Ulp, OfSubnormalsIsTheSmallestNumber) {
  EXPECT_EQ(harness::ulp(BRIM_FLOAT32, 0.0), 0x1p-149);
  EXPECT_EQ(harness::ulp(BRIM_FLOAT32, 0x1p-140), 0x1p-149);
  EXPECT_EQ(harness::ulp(BRIM_FLOAT16, 0x1p-20), 0x1p-24);
  EXPECT_EQ(harness::ulp(BRIM_FLOAT16, 0x1p-14), 0x1p-24);
  EXPECT_EQ(harness::ulp(BRIM_BFLOAT16, 0x1p-130), 0x1p-133);
}

TEST(Ulp, ErrorCountsAtTheMagnitude) {
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, 0x1p-23, 0.0, 1.0), 1);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, 1 + 0x1p-22, 1.0, 1.0), 2);
  EXPECT_EQ(harness::ulp_error(BRIM_BFLOAT16, 1.0, 1 + 0x1p-8, 1.0), 0.5);
}

TEST(Ulp, ErrorOfWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, nan, nan, 1), 0);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, nan, 1, 1), kInfinity);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, 1, nan, 1), kInfinity);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, kInfinity, kInfinity, nan), 0);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, -kInfinity, kInfinity, nan), kInfinity);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, 1, kInfinity, nan), kInfinity);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT16, kInfinity, 70000, 60000), 0);  // beyond the format
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT16, kInfinity, 60000, 60000), kInfinity);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT16, -kInfinity, 70000, 60000), kInfinity);
}

TEST(Ulp, MagnitudeZeroAsksForEquality) {
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, 3, 3, 0), 0);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, std::nextafterf(3, 4), 3, 0), kInfinity);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, 0.0, -0.0, 0), kInfinity);
  EXPECT_EQ(harness::ulp_error(BRIM_FLOAT32, 0.0, -0.0, 1), 0);
}

TEST(Statistics, PercentilesInterpolate) {
  EXPECT_EQ(harness::percentile({3}, 20), 3);
  EXPECT_EQ(harness::percentile({4, 1, 3, 2}, 50), 2.5);
  EXPECT_EQ(harness::percentile({1, 2, 3, 4, 5, 6}, 20), 2);
  EXPECT_EQ(harness::percentile({6, 5, 4, 3, 2, 1}, 80), 5);
  EXPECT_EQ(harness::percentile({1, 2}, 0), 1);
  EXPECT_EQ(harness::percentile({1, 2}, 100), 2);
  EXPECT_TRUE(std::isnan(harness::percentile({}, 50)));
  const harness::Spread s = harness::spread({10, 20, 30, 40, 50, 60});
  EXPECT_EQ(s.median, 35);
  EXPECT_EQ(s.p20, 20);
  EXPECT_EQ(s.p80, 50);
}

TEST(Elements, FollowTheStrides) {
  float memory[24];
  for (int i = 0; i < 24; ++i) memory[i] = static_cast<float>(i);
  const TensorView transposed = view(memory, BRIM_FLOAT32, {3, 2, 2}, {1, 12, 6});
  EXPECT_EQ(harness::read_elements(transposed),
            (std::vector<double>{0, 6, 12, 18, 1, 7, 13, 19, 2, 8, 14, 20}));
  const TensorView expanded = view(memory + 5, BRIM_FLOAT32, {2, 2}, {0, 0});
  EXPECT_EQ(harness::read_elements(expanded), (std::vector<double>{5, 5, 5, 5}));
  EXPECT_TRUE(harness::read_elements(view(memory, BRIM_FLOAT32, {2, 0, 3})).empty());

  const double values[] = {-1, -2};
  harness::write_elements(view(memory, BRIM_FLOAT32, {2, 3}, {12, 4}), values);  // starts over after two
  EXPECT_EQ(memory[0], -1);
  EXPECT_EQ(memory[4], -2);
  EXPECT_EQ(memory[8], -1);
  EXPECT_EQ(memory[12], -2);
  EXPECT_EQ(memory[1], 1);
}

TEST(Elements, RoundToNearestEvenAndCountPoison) {
  uint16_t memory[3] = {0xffff, 0xffff, 0xffff};
  const TensorView t = view(memory, BRIM_BFLOAT16, {3});
  EXPECT_EQ(harness::count_poisoned(t, std::byte{0xff}), 3);
  const double values[] = {1 + 0x1p-8, 1 + 0x3p-8, 2};
  harness::write_elements(t, values);
  EXPECT_EQ(harness::read_elements(t), (std::vector<double>{1, 1 + 0x1p-6, 2}));
  EXPECT_EQ(harness::count_poisoned(t, std::byte{0xff}), 0);
}

TEST(Elements, LargeViewsAreWorkedOnInParts) {
  const int64_t rows = 3000, columns = 1000;
  std::vector<float> memory(static_cast<size_t>(rows * columns), 0.0f);
  std::vector<double> values(7919);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  harness::write_elements(view(memory.data(), BRIM_FLOAT32, {1, rows, columns}), values);
  for (size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory[i], static_cast<float>(i % values.size())) << i;
}

TEST(AllPairs, CoverEveryValidPairAndNothingElse) {
  const int sizes[] = {3, 4, 2, 5};
  const auto valid = [](const ops::Combination& c) { return !(c[0] == 1 && c[3] == 2); };
  const auto list = ops::all_pairs(sizes, valid);
  EXPECT_LT(list.size(), 40u);  // of 3*4*2*5 = 120; 20 at least
  for (int i = 0; i < 4; ++i)
    for (int j = i + 1; j < 4; ++j)
      for (int a = 0; a < sizes[i]; ++a)
        for (int b = 0; b < sizes[j]; ++b) {
          bool found = false;
          for (const auto& c : list) found |= c[i] == a && c[j] == b;
          EXPECT_EQ(found, !(i == 0 && j == 3 && a == 1 && b == 2)) << i << a << " " << j << b;
        }
}

ops::ModelShape parse(const std::string& text) { return harness::parse_model(text, "config.json"); }

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const std::runtime_error& e) { return e.what(); }
  return "";
}

TEST(Models, BuiltIn) {
  const std::vector<std::string> names = harness::model_names();
  for (const char* name : {"llama-2-7b", "llama-3-8b", "llama-3-70b", "qwen2.5-7b", "qwen2.5-72b", "qwen3-8b",
                           "gemma-3-12b", "mistral-7b", "phi-4", "deepseek-v3", "gpt-neox-20b"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
    EXPECT_EQ(harness::load_model(name).name, name);
  }
  const ops::ModelShape gemma = harness::load_model("gemma-3-12b");
  EXPECT_EQ(gemma.head_dim, 256);
  EXPECT_EQ(gemma.kv_heads, 8);
  EXPECT_EQ(gemma.vocab, 262208);
  const ops::ModelShape neox = harness::load_model("gpt-neox-20b");
  EXPECT_EQ(neox.head_dim, 96);
  EXPECT_EQ(neox.rotary_dim, 24);
  EXPECT_EQ(neox.kv_heads, 64);
  const ops::ModelShape deepseek = harness::load_model("deepseek-v3");
  EXPECT_EQ(deepseek.heads, 128);
  EXPECT_EQ(deepseek.kv_heads, 1);
  EXPECT_EQ(deepseek.head_dim, 64);
  EXPECT_EQ(deepseek.pairing, BRIM_PAIRING_TO_HALF);
}

TEST(Models, DefaultsOfTransformers) {
  const ops::ModelShape m = parse(R"({"hidden_size": 2048, "num_attention_heads": 16, "vocab_size": 1000,
                                      "num_key_value_heads": null, "head_dim": null})");
  EXPECT_EQ(m.kv_heads, 16);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.rotary_dim, 128);
  EXPECT_EQ(m.theta, 10000);
  EXPECT_EQ(m.pairing, BRIM_PAIRING_HALF);
  const ops::ModelShape glm =
      parse(R"({"model_type": "glm", "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 9})");
  EXPECT_EQ(glm.head_dim, 128);
  EXPECT_EQ(glm.rotary_dim, 64);
  EXPECT_EQ(glm.pairing, BRIM_PAIRING_INTERLEAVED);
}

TEST(Models, RopeParametersAndTextConfigOfTransformers5) {
  const ops::ModelShape m =
      parse(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
      "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "rope_parameters": {
      "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0}, "sliding_attention": {"rope_theta": 10000.0}}}})");
  EXPECT_EQ(m.theta, 1e6);
  EXPECT_EQ(m.head_dim, 256);
  const ops::ModelShape p = parse(R"({"hidden_size": 3072, "num_attention_heads": 24, "vocab_size": 10,
                                      "rope_parameters": {"rope_theta": 5e5, "partial_rotary_factor": 0.75}})");
  EXPECT_EQ(p.theta, 5e5);
  EXPECT_EQ(p.rotary_dim, 96);
}

TEST(Models, ErrorsNameTheField) {
  EXPECT_EQ(error_of(R"({"hidden_size": 64, "vocab_size": 10})"),
            "config.json: field 'num_attention_heads' is missing");
  EXPECT_EQ(error_of(R"({"num_attention_heads": 4, "vocab_size": 10})"),
            "config.json: field 'hidden_size' is missing");
  EXPECT_EQ(error_of(R"({"hidden_size": "big", "num_attention_heads": 4, "vocab_size": 10})"),
            "config.json: field 'hidden_size' is \"big\", expected a positive whole number");
  EXPECT_EQ(error_of(R"({"hidden_size": 64, "num_attention_heads": 0, "vocab_size": 10})"),
            "config.json: field 'num_attention_heads' is 0, expected a positive whole number");
  EXPECT_NE(error_of(R"({"hidden_size": 65, "num_attention_heads": 4, "vocab_size": 10})")
                .find("'head_dim' is missing"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 10, "rotary_dim": 18})")
                .find("18"),
            std::string::npos);
  EXPECT_NE(error_of("[1]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(error_of("hidden").find("not JSON"), std::string::npos);
}

TEST(Models, UnknownNameListsTheKnown) {
  try {
    harness::load_model("llama-9");
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("unknown model 'llama-9'"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("llama-3-8b"), std::string::npos) << e.what();
  }
}

TEST(Rows, HaveTheFieldsOfTheSpecification) {
  harness::BenchRow row{};
  row.op = BRIM_OP_rope_backward;
  row.device = "a \"device\", quoted";
  row.dtype = BRIM_FLOAT16;
  row.provider = "brim";
  row.path = "plain";
  row.shape = {{"tokens", 8}, {"heads", 4}};
  row.time = {2.0, 1.5, 2.5};
  row.bytes = 4000;
  row.wall_time = 1.0;
  row.peak_bytes = 7;
  const harness::Context context{"a device", {{"brim", "1"}}, "2026-01-01T00:00:00Z", "brim bench"};
  const auto file = nlohmann::json::parse(harness::bench_json(context, {row}));
  EXPECT_EQ(file["context"]["device"], "a device");
  EXPECT_EQ(file["context"]["versions"]["brim"], "1");
  EXPECT_EQ(file["context"]["date"], "2026-01-01T00:00:00Z");
  EXPECT_EQ(file["context"]["command"], "brim bench");
  const auto& r = file["benchmarks"][0];
  EXPECT_EQ(r["op"], "rope");
  EXPECT_EQ(r["mode"], "backward");
  EXPECT_EQ(r["provider"], "brim");
  EXPECT_EQ(r["dtype"], "float16");
  EXPECT_EQ(r["shape"]["tokens"], 8);
  EXPECT_EQ(r["real_time"], 2.0);
  EXPECT_EQ(r["time_unit"], "us");
  EXPECT_EQ(r["p20"], 1.5);
  EXPECT_EQ(r["p80"], 2.5);
  EXPECT_EQ(r["bytes"], 4000);
  EXPECT_EQ(r["wall_time"], 1.0);
  EXPECT_EQ(r["wall_fraction"], 0.5);
  EXPECT_EQ(r["peak_bytes"], 7);
  EXPECT_EQ(r["clock"], "host");
  EXPECT_NE(harness::bench_csv({row}).find("\"a \"\"device\"\", quoted\""), std::string::npos);
}

}  // namespace
}  // namespace brim

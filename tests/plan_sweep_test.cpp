// RoPE's launch plan without a GPU: millions of problems on every known device, each plan held against the
// list of kernels, the limits of the device and the alignment; and, on small problems, the kernel's own index
// mapping run thread by thread.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rope_plan_problem.h"

namespace brim::cuda {
namespace {

std::string text(const RopePlan& plan) {
  char line[1024];
  print(plan, line, sizeof line);
  return line;
}

// What must hold for every launch; returns the first thing that does not.
const char* fault(const RopeProblem& p, const core::DeviceProps& device, const RopeLaunch& l) {
  const int size = core::element_size(l.variant.dtype);
  if (rope_variant_index(l.variant) < 0) return "the variant is not built";
  if (l.variant.in != p.in_order || l.variant.out != p.out_order) return "the pair orders are others";
  if (l.variant.vector_bytes > std::max(p.alignment, size)) return "the vector is wider than the alignment";
  const int64_t n = l.variant.vector_bytes / size;
  if (p.rotary_dim / 2 % n) return "the vector does not divide half the rotary width";
  if (!p.in_place && (p.head_dim - p.rotary_dim) % n)
    return "the vector does not divide the part that is copied";
  const bool by_vectors = p.q.dim <= 1 && p.q_out.dim <= 1 && p.k.dim <= 1 && p.k_out.dim <= 1;
  if (n > 1 && !by_vectors) return "a vector over strided elements";
  if (l.columns_per_tile < 1 || l.head_lanes < 1 || l.token_lanes < 1) return "an empty CTA";
  if (rope_threads(l) > kRopeThreads) return "too many threads";
  if ((l.tokens_first ? l.head_lanes : l.token_lanes) > 64) return "threadIdx.z beyond 64";
  if (rope_blocks(l) < 1 || rope_blocks(l) > kMaxBlocks) return "the grid is out of range";
  const auto tiles = [](int64_t count, int64_t per_tile, int64_t expected) {
    return (count + per_tile - 1) / per_tile == expected;
  };
  if (!tiles(l.columns, l.columns_per_tile, l.column_tiles)) return "the columns are not covered";
  if (!tiles(l.heads, l.heads_per_tile, l.head_tiles)) return "the heads are not covered";
  if (!tiles(l.tokens, l.token_lanes, l.token_tiles)) return "the tokens are not covered";
  if (l.tokens != p.batch * p.seq || l.seq != p.seq) return "the tokens are others";
  if (device.max_threads_per_sm < kRopeThreads * rope_ctas_per_sm(l.variant.vector_bytes))
    return "the device does not hold the CTAs";
  return nullptr;
}

std::vector<Shape> sweep_shapes() {
  std::vector<Shape> list;
  for (int64_t b : {1, 3, 65536})
    for (int64_t s : {1, 17, 2048, 131072})
      for (int64_t h : {1, 7, 32, 73, 65536})
        for (int64_t hk : {0, 1, 8, 213})
          for (int64_t d : {1, 2, 34, 56, 64, 80, 92, 128, 129, 256, 5120}) {
            if (b * s * (h + hk) > (1ll << 38) / d) continue;  // 2^38 elements are more than any GPU holds
            for (int64_t r : {d / 2 * 2, d / 4 * 2, std::min<int64_t>(d / 2 * 2, 32), int64_t{0}})
              list.push_back({b, s, h, hk, d, r});
          }
  return list;
}

struct Call {
  brim_dtype dtype, k_dtype;
  PairOrder in, out;
};
std::vector<Call> sweep_calls() {
  std::vector<Call> list;
  for (const auto& order : kOrders)
    for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16}) {
      list.push_back({dtype, dtype, order[0], order[1]});
      if (dtype != BRIM_FLOAT32) list.push_back({dtype, BRIM_FLOAT32, order[0], order[1]});
    }
  return list;
}

TEST(RopePlan, EveryPlanIsBuiltAndWithinLimits) {
  int64_t plans = 0, widest = 0;
  const auto check = [&](const RopeProblem& p, const core::DeviceProps& device) {
    const RopePlan plan = plan_rope(p, device);
    int64_t heads = 0;
    for (int i = 0; i < plan.launches; ++i) {
      ASSERT_STREQ(fault(p, device, plan.launch[i]), nullptr) << text(plan);
      heads += plan.launch[i].heads;
      widest += plan.launch[i].variant.vector_bytes == 16;
    }
    ASSERT_EQ(heads, p.in_place && p.rotary_dim == 0 ? 0 : p.q_heads + p.k_heads) << text(plan);
    ++plans;
  };
  const std::vector<Call> calls = sweep_calls();
  for (const Shape& n : sweep_shapes())
    for (const Call& c : calls)
      for (Storage storage : kStorages) {
        const bool in_place = c.in == c.out && plans % 3 == 0;
        RopeProblem p = problem(n, c.dtype, c.k_dtype, c.in, c.out, storage, in_place);
        const int by_strides = p.alignment;
        for (const core::DeviceProps& device : core::kKnownDevices)
          for (int address : {16, 4}) {
            p.alignment = std::min(by_strides, address);
            check(p, device);
            if (HasFatalFailure())
              FAIL() << "b=" << n.batch << " s=" << n.seq << " h=" << n.heads << " hk=" << n.k_heads
                     << " d=" << n.d << " r=" << n.r << " on " << device.name;
          }
      }
  EXPECT_GT(plans, 5000000);
  EXPECT_GT(widest, plans / 10);  // wide vectors are not a rarity
}

// Runs a launch's threads and counts what they write: `elements` per (token, head), where a column of a
// single vector may write it twice. Checks the pairs on the way.
void simulate(const RopeProblem& p, const RopeLaunch& l, std::vector<int>& elements) {
  const int n = l.variant.vector_bytes / core::element_size(l.variant.dtype);
  const bool split = rope_split_column(l.variant.in, l.variant.out, n);
  const auto element = [&](PairOrder order, int64_t j, int second) {
    return order == PairOrder::half ? j + second * (p.rotary_dim / 2) : 2 * j + second;
  };
  elements.assign(l.tokens * l.heads * p.head_dim, 0);
  for (uint32_t block = 0; block < rope_blocks(l); ++block) {
    const RopeTile tile = rope_tile(l, block);
    ASSERT_EQ(tile.q_heads, std::clamp<int64_t>(l.q_heads - tile.head, 0, tile.heads));
    for (int x = 0; x < l.columns_per_tile && tile.column + x < l.columns; ++x) {
      const RopeColumn c = rope_column(l, l.variant.in, l.variant.out, n, tile.column + x);
      ASSERT_EQ(c.in_first % n, 0);
      ASSERT_EQ(c.out_second % n, 0);
      const auto in = [&](int i) { return i < n ? c.in_first + i : c.in_second + i - n; };
      const auto out = [&](int i) { return i < n ? c.out_first + i : c.out_second + i - n; };
      for (int i = 0; c.rotates && i < n; ++i) {
        const int64_t j = split && i >= n / 2 ? c.table_second + i - n / 2 : c.table + i;
        const bool in_half = l.variant.in == PairOrder::half, out_half = l.variant.out == PairOrder::half;
        ASSERT_EQ(in(in_half ? i : 2 * i), element(l.variant.in, j, 0));
        ASSERT_EQ(in(in_half ? n + i : 2 * i + 1), element(l.variant.in, j, 1));
        ASSERT_EQ(out(out_half ? i : 2 * i), element(l.variant.out, j, 0));
        ASSERT_EQ(out(out_half ? n + i : 2 * i + 1), element(l.variant.out, j, 1));
      }
      const int vectors = c.out_first == c.out_second ? 1 : 2;
      for (int token_lane = 0; token_lane < l.token_lanes && tile.token + token_lane < l.tokens; ++token_lane)
        for (int head_lane = 0; head_lane < l.head_lanes; ++head_lane)
          for (int head = head_lane; head < tile.heads; head += l.head_lanes) {
            int* row = &elements[((tile.token + token_lane) * l.heads + tile.head + head) * p.head_dim];
            for (int i = 0; i < vectors * n; ++i) {
              if (!c.rotates) { ASSERT_EQ(in(i), out(i)); }
              ++row[out(i)];
            }
          }
    }
  }
}

TEST(RopePlan, EveryElementIsWrittenOnce) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  constexpr Shape kShapes[] = {{2, 5, 3, 1, 8, 8},    {1, 300, 32, 8, 64, 64},  {3, 7, 40, 0, 128, 128},
                               {1, 1, 1, 0, 2, 2},    {2, 33, 73, 213, 92, 92}, {1, 9, 4, 4, 96, 24},
                               {5, 1, 2, 9, 56, 40},  {1, 4, 2, 2, 5120, 5120}, {1, 3, 600, 1, 16, 12},
                               {70, 3, 1, 1, 34, 30}, {1, 1000, 1, 0, 2, 2},    {2, 2, 5, 1, 129, 64},
                               {1, 2, 3, 2, 10, 0},   {1, 64, 65536, 0, 1, 0}};
  for (const Shape& n : kShapes)
    for (const auto& order : kOrders)
      for (Storage storage : {Storage::bhsd, Storage::bshd, Storage::transposed})
        for (brim_dtype dtype : {BRIM_BFLOAT16, BRIM_FLOAT32})
          for (bool in_place : {false, true}) {
            if (in_place && order[0] != order[1]) continue;
            RopeProblem p = problem(n, dtype, dtype, order[0], order[1], storage, in_place);
            const RopePlan plan = plan_rope(p, h200);
            for (int i = 0; i < plan.launches; ++i) {
              std::vector<int> elements;
              simulate(p, plan.launch[i], elements);
              if (HasFatalFailure()) FAIL() << text(plan);
              for (size_t e = 0; e < elements.size(); ++e) {
                const int64_t place = static_cast<int64_t>(e) % n.d;
                ASSERT_EQ(elements[e], in_place && place >= n.r ? 0 : 1)
                    << text(plan) << ", element " << place;
              }
            }
          }
}

TEST(RopePlan, TokensOfManyBatchesAreSplitExactly) {
  RopeLaunch l{};
  for (int64_t seq : {1ll, 3ll, 4095ll, 5000000000ll}) {
    l.seq = seq;
    l.tokens = seq * 3;
    for (int64_t token : {int64_t{0}, seq - 1, seq, 2 * seq, 3 * seq - 1}) {
      const RopeToken t = rope_token(l, token);
      EXPECT_EQ(t.batch * seq + t.place, token);
      EXPECT_LT(t.place, seq);
    }
  }
}

TEST(RopePlan, DifferentTypesOfQAndKTakeALaunchEach) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  const RopeProblem p = problem({1, 128, 32, 8, 128, 128}, BRIM_BFLOAT16, BRIM_FLOAT32, PairOrder::half,
                                PairOrder::half, Storage::bhsd, false);
  const RopePlan plan = plan_rope(p, h200);
  ASSERT_EQ(plan.launches, 2);
  EXPECT_EQ(plan.launch[0].q_heads, 32);
  EXPECT_EQ(plan.launch[0].heads, 32);
  EXPECT_EQ(plan.launch[1].q_heads, 0);
  EXPECT_EQ(plan.launch[1].heads, 8);
  EXPECT_EQ(plan.launch[1].variant.dtype, BRIM_FLOAT32);
}

TEST(RopePlan, EmptyProblemsLaunchNothing) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  for (const Shape& n : {Shape{0, 4, 2, 2, 64, 64}, Shape{2, 0, 2, 2, 64, 64}, Shape{2, 4, 0, 0, 64, 64}}) {
    const RopeProblem p = problem(n, BRIM_FLOAT32, BRIM_FLOAT32, kHalf, kHalf, Storage::bhsd, false);
    EXPECT_EQ(plan_rope(p, h200).launches, 0);
    EXPECT_EQ(text(plan_rope(p, h200)), "plain launches=0");
  }
}

TEST(RopePlan, TheWidestVectorThatFitsIsTaken) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  const auto vec = [&](int64_t d, int64_t r, brim_dtype dtype, int alignment,
                       Storage storage = Storage::bhsd) {
    RopeProblem p = problem({1, 64, 4, 4, d, r}, dtype, dtype, kHalf, kHalf, storage, false);
    p.alignment = std::min(p.alignment, alignment);
    return plan_rope(p, h200).launch[0].variant.vector_bytes;
  };
  EXPECT_EQ(vec(128, 128, BRIM_BFLOAT16, 16), 16);
  EXPECT_EQ(vec(128, 128, BRIM_BFLOAT16, 2), 2);
  EXPECT_EQ(vec(56, 56, BRIM_BFLOAT16, 16), 8);
  EXPECT_EQ(vec(92, 92, BRIM_FLOAT16, 16), 4);
  EXPECT_EQ(vec(92, 92, BRIM_FLOAT32, 16), 8);
  EXPECT_EQ(vec(96, 24, BRIM_BFLOAT16, 16), 8);
  EXPECT_EQ(vec(64, 6, BRIM_BFLOAT16, 16), 2);
  EXPECT_EQ(vec(64, 64, BRIM_FLOAT32, 16, Storage::transposed), 4);
  constexpr int64_t kGiB = 1 << 30;  // steps between vectors have 32 bits
  EXPECT_EQ(vec(kGiB / 4, kGiB / 4, BRIM_FLOAT32, 16), 16);
  EXPECT_EQ(vec(kGiB, kGiB, BRIM_FLOAT32, 16), 4);
  EXPECT_EQ(vec(kGiB, 64, BRIM_FLOAT32, 16), 4);
}

TEST(RopePlan, TablesAreReadAsVectorsOnlyWhereTheirColumnsAreOneRun) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  const auto vector_tables = [&](int64_t r, int64_t cos_column, int64_t sin_column) {
    RopeProblem p =
        problem({1, 64, 4, 4, 64, r}, BRIM_FLOAT32, BRIM_FLOAT32, kHalf, kHalf, Storage::bhsd, false);
    p.cos.column = cos_column;
    p.sin.column = sin_column;
    return plan_rope(p, h200).launch[0].vector_tables;
  };
  EXPECT_TRUE(vector_tables(64, 1, 1));
  EXPECT_FALSE(vector_tables(64, 2, 1));
  EXPECT_FALSE(vector_tables(64, 1, 2));
  EXPECT_FALSE(vector_tables(64, 0, 1));  // expanded
  EXPECT_FALSE(vector_tables(64, 1, 0));
  EXPECT_TRUE(vector_tables(2, 0, 0));  // a single column
}

}  // namespace
}  // namespace brim::cuda

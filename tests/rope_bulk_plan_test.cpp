// The plan of RoPE's bulk form without a GPU: thousands of problems, each tile walked by the kernel's own
// index functions.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cuda/rope_bulk_plan.h"
#include "rope_plan_problem.h"

namespace brim::cuda {
namespace {

TEST(Divider, DividesAsTheProcessorDoes) {
  for (uint32_t divisor : {1u, 2u, 3u, 5u, 7u, 64u, 641u, 2048u, 65535u, 65537u, 1000003u, 0x7fffffffu}) {
    const Divider divide(divisor);
    EXPECT_EQ(divide.divisor(), divisor);
    for (uint32_t n : {0u, 1u, divisor - 1, divisor, divisor + 1, 0x7fffffffu / divisor * divisor,
                       0x7ffffffeu, 0x7fffffffu})
      if (n <= 0x7fffffffu) {
        ASSERT_EQ(divide(n), n / divisor) << n << " / " << divisor;
        ASSERT_EQ(divide(n / 2), n / 2 / divisor) << n / 2 << " / " << divisor;
      }
  }
}

// What must hold for every plan; returns the first thing that does not.
const char* bulk_fault(const RopeBulk& r) {
  if (bulk_variant_index(r) < 0) return "the variant is not built";
  if (r.pair_columns < 1 || r.tile_tokens < 1 || r.head_lanes < 1) return "an empty CTA";
  if (bulk_threads(r) < 32) return "less than a warp";
  if (bulk_threads(r) > kBulkMostThreads) return "too many threads";
  if (r.head_lanes > kMostThreadsZ) return "threadIdx.z beyond 64";
  if (kBulkBarrierBytes + r.tile_bytes > kBulkMostShared)
    return "more shared memory than a launch may ask for";
  if (r.grid_x < 1 || r.grid_y < 1 || r.grid_z < 1) return "an empty grid";
  if (r.grid_y > 65535 || r.grid_z > 65535) return "the grid is out of range";
  const int64_t tiles = (static_cast<int64_t>(r.grid_y) * (r.batches > 1 ? 1 : r.grid_z)) << r.side_shift;
  if (tiles * r.tile_tokens < r.tokens) return "tokens beyond the grid";
  if ((tiles - 2 * r.grid_z - (2 << r.side_shift)) * r.tile_tokens > r.tokens) return "too large a grid";
  return nullptr;
}

// Runs the tiles as the kernel does, by its own index functions: every head of every token is in one tile at
// one place, where the run that holds it was loaded to, and would be stored from there to where it belongs.
const char* bulk_cover_fault(const RopeProblem& p, const RopeBulk& r) {
  const int size = core::element_size(p.dtype);
  const int64_t heads = p.q_heads + p.k_heads;
  std::vector<int> seen(static_cast<size_t>(p.batch * p.seq * heads));
  for (int index = 0; index < r.grid_x * r.grid_y * r.grid_z; ++index) {
    const BulkTile t =
        bulk_tile(r, index % r.grid_x, index / r.grid_x % r.grid_y, index / r.grid_x / r.grid_y);
    if (t.tokens <= 0) continue;
    const int q_bytes = bulk_part_bytes(r, t, t.q_heads);
    if (q_bytes + bulk_part_bytes(r, t, t.k_heads) > r.tile_bytes) return "a tile is larger than its memory";
    // The tile's bytes: where in q (even) or k (odd) each comes from.
    std::vector<int64_t> tile(static_cast<size_t>(r.tile_bytes), -1);
    int runs = 0;
    for (int k = 0; k < 2; ++k) {
      const int count = k ? t.k_heads : t.q_heads, bytes = bulk_run_bytes(r, t, count);
      const BulkTensor& x = k ? r.k : r.q;
      for (int i = 0; count > 0 && i < bulk_runs(r, t, count); ++i, ++runs) {
        const int token = t.token + (r.by_token && !r.one_run ? i : 0);
        const int head = (k ? t.k_first : t.q_first) + (r.by_token ? 0 : i);
        const int64_t from = bulk_offset(x.from, t.batch, token, head),
                      to = bulk_offset(x.to, t.batch, token, head);
        const int place = r.edges ? static_cast<int>(from & 15) : 0;
        if (!r.edges && (from % 16 || bytes % 16)) return "a run that is not aligned, without edges";
        if ((from - to) % 16) return "a run is written with another alignment";
        const int at = (k ? q_bytes : 0) + i * bulk_run_pitch(r, bytes) + place;
        if (at % 16 != from % 16) return "a run stands with another alignment";
        if (at + bytes > r.tile_bytes) return "a run beyond its tile";
        for (int b = 0; b < bytes; ++b) {
          if (tile[at + b] >= 0) return "two runs at one place of a tile";
          tile[at + b] = 2 * (from + b) + k;
        }
      }
    }
    if (runs > kBulkMostRuns) return "too many runs";
    for (int token = 0; token < t.tokens; ++token)
      for (int h = 0; h < t.q_heads + t.k_heads; ++h) {
        const bool k = h >= t.q_heads;
        const int at = bulk_start(r, t, token, k) + h * bulk_head_pitch(r, t);
        int64_t place = t.token + token, batch = t.batch;
        if (r.batches == 1) {
          batch = r.by_seq(static_cast<uint32_t>(place));
          place -= batch * r.seq;
        }
        const int64_t head = k ? t.k_first + h - t.q_heads : t.q_first + h;
        const auto offset = [&](const RopeStrides& s) {
          return (batch * s.batch + place * s.seq + head * s.head) * size;
        };
        const int64_t from = offset(k ? p.k : p.q);
        for (int64_t b : {0, r.head_bytes - 1})
          if (at < 0 || at + b >= r.tile_bytes || tile[at + b] != 2 * (from + b) + k)
            return "a head is not where it was loaded";
        if (at % std::min<int>(r.vector_bytes, 16)) return "a head off the vector's grid";
        if (bulk_offset((k ? r.k : r.q).to, t.batch, t.token + token, static_cast<int>(head)) !=
            offset(k ? p.k_out : p.q_out))
          return "a head is stored elsewhere";
        ++seen[static_cast<size_t>((batch * p.seq + place) * heads + (k ? p.q_heads + head : head))];
      }
  }
  for (int n : seen)
    if (n != 1) return "a head is not rotated once";
  return nullptr;
}

TEST(RopeBulkPlan, CoversEveryHeadOnce) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  int64_t planned = 0, with_edges = 0, by_head = 0, split = 0;
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16})
    for (int64_t d : {8, 56, 64, 80, 92, 96, 128, 192, 256})
      for (int64_t h : {1, 3, 32, 73})
        for (int64_t hk : {0, 1, 213})
          for (int64_t b : {1, 3})
            for (int64_t s : {1, 2, 7, 33, 300})
              for (Storage storage : kStorages)
                for (bool in_place : {false, true}) {
                  if (s == 300 && (hk == 213 || h == 73)) continue;
                  const RopeProblem p =
                      problem({b, s, h, hk, d, d}, dtype, dtype, kHalf, kHalf, storage, in_place);
                  const RopePlan plain = plan_rope(p, h200);
                  RopeBulk r{};
                  if (plain.launches != 1 || !plan_rope_bulk(p, h200, plain.launch[0].variant.vector_bytes,
                                                             plain.launch[0].vector_tables, &r))
                    continue;
                  ++planned;
                  with_edges += r.edges;
                  by_head += !r.by_token;
                  split += r.first_k_tile > 0;
                  char line[512];
                  print(r, line, sizeof line);
                  const char* wrong = bulk_fault(r);
                  if (!wrong) wrong = bulk_cover_fault(p, r);
                  ASSERT_EQ(wrong, nullptr)
                      << wrong << ": b " << b << " s " << s << " h " << h << " hk " << hk << " d " << d
                      << " storage " << static_cast<int>(storage) << "\n"
                      << line;
                }
  EXPECT_GT(planned, 3000);
  EXPECT_GT(with_edges, 50);
  EXPECT_GT(by_head, 500);
  EXPECT_GT(split, 50);
}

// Problems that no memory holds: the plan keeps the launch within its limits.
TEST(RopeBulkPlan, StaysWithinTheLimits) {
  int64_t planned = 0;
  for (const core::DeviceProps& device : core::kKnownDevices)
    for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16})
      for (int64_t b : {1, 3, 65536})
        for (int64_t s : {1, 17, 2048, 131072, 1 << 24})
          for (int64_t h : {1, 7, 32, 73, 65536})
            for (int64_t hk : {0, 1, 8, 213})
              for (int64_t d = 8; d <= 8192; d += d < 272 ? 8 : 504)
                for (int64_t r : {d, d / 2, int64_t{8}})
                  for (Storage storage : kStorages) {
                    const RopeProblem p =
                        problem({b, s, h, hk, d, r}, dtype, dtype, kHalf, kHalf, storage, false);
                    const RopePlan plain = plan_rope(p, device);
                    RopeBulk plan{};
                    if (plain.launches != 1 ||
                        !plan_rope_bulk(p, device, plain.launch[0].variant.vector_bytes,
                                        plain.launch[0].vector_tables, &plan))
                      continue;
                    ++planned;
                    const char* wrong = bulk_fault(plan);
                    ASSERT_EQ(wrong, nullptr) << wrong << ": b " << b << " s " << s << " h " << h << " hk "
                                              << hk << " d " << d << " r " << r << " on " << device.name;
                    ASSERT_GE(device.compute_capability, 90);
                  }
  EXPECT_GT(planned, 700000);
}

// The kernel counts rows in 32 bits: positions may point further only in the plain form.
TEST(RopeBulkPlan, LeavesLargeTablesToThePlainForm) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  RopeProblem p =
      problem({1, 8192, 32, 8, 128, 128}, BRIM_BFLOAT16, BRIM_BFLOAT16, kHalf, kHalf, Storage::bshd, false);
  p.position_dtype = BRIM_INT64;
  for (const auto& [rows, served] : {std::pair{int64_t{INT32_MAX}, true}, {int64_t{INT32_MAX} + 1, false}}) {
    p.table_rows = rows;
    RopeBulk r{};
    EXPECT_EQ(plan_rope_bulk(p, h200, 16, true, &r), served) << rows << " rows";
  }
}

// Large tensors of usual shapes get the bulk form, in each storage order.
TEST(RopeBulkPlan, ServesUsualShapes) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16})
    for (Storage storage : {Storage::bshd, Storage::bhsd, Storage::packed})
      for (const Shape& n : {Shape{1, 8192, 32, 8, 128, 128},
                             {1, 8192, 32, 8, 64, 64},
                             {1, 8192, 128, 128, 56, 56},
                             {1, 8192, 32, 32, 80, 80},
                             {3, 2048, 73, 213, 92, 92},
                             {1, 8192, 32, 32, 96, 96},
                             {1, 8192, 32, 8, 192, 192},
                             {1, 8192, 16, 8, 256, 256},
                             {1, 2048, 32, 8, 128, 128}}) {
        const RopeProblem p = problem(n, dtype, dtype, kHalf, kHalf, storage, false);
        const RopeLaunch l = plan_rope(p, h200).launch[0];
        RopeBulk r{};
        ASSERT_TRUE(plan_rope_bulk(p, h200, l.variant.vector_bytes, l.vector_tables, &r)) << n.d;
        EXPECT_EQ(bulk_fault(r), nullptr) << bulk_fault(r);
      }
}

}  // namespace
}  // namespace brim::cuda

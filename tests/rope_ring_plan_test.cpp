// The plan of RoPE's ring form without a GPU: thousands of problems, each tile walked by the kernel's own
// index functions.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/rope_ring.h"
#include "rope_plan_problem.h"

namespace brim::cuda {
namespace {

// What must hold for every ring; returns the first thing that does not.
const char* ring_fault(const core::DeviceProps& device, const RopeRing& r) {
  if (ring_variant_index(r) < 0) return "the variant is not built";
  if (r.pair_columns * r.token_lanes * r.head_lanes > r.workers) return "too many threads";
  if (r.head_lanes < 1 || r.token_lanes < 1) return "an empty CTA";
  if (r.workers > kRingMostWorkers || r.workers % 32) return "the threads are no whole warps";
  if (r.slots < 3 || r.slots > kRingMostSlots) return "too few slots, or too many";
  const int64_t shared = static_cast<int64_t>(r.slots) * r.slot_bytes;
  if (shared + kRingBarrierBytes > device.shared_per_block_optin) return "more shared memory than a CTA gets";
  if ((shared + kSystemSharedBytes + kRingBarrierBytes) * r.ctas_per_sm > device.shared_per_sm)
    return "more shared memory than an SM has";
  if (r.slot_bytes % 128) return "a slot off the grid";
  return nullptr;
}

// Runs a ring's tiles as the kernel does, by its own index functions: every head of every token is in one
// slot at one place, where the run that holds it was loaded to.
const char* ring_cover_fault(const RopeProblem& p, const RopeRing& r) {
  const int size = core::element_size(p.dtype);
  const int64_t heads = p.q_heads + p.k_heads;
  std::vector<int> seen(static_cast<size_t>(p.batch * p.seq * heads));
  for (int64_t index = 0; index < ring_tiles(r); ++index) {
    const RingTile t = ring_tile(r, static_cast<uint32_t>(index));
    if (ring_part(r, t, true) + ring_part_bytes(r, t, t.k_heads) > r.slot_bytes)
      return "a tile is larger than its slot";
    // The slot's bytes: where in q (even) or k (odd) each comes from.
    std::vector<int64_t> slot(static_cast<size_t>(r.slot_bytes), -1);
    int runs = 0;
    for (int k = 0; k < 2; ++k) {
      const int count = k ? t.k_heads : t.q_heads, bytes = ring_run_bytes(r, t, count);
      for (int i = 0; i < ring_runs(r, t, count); ++i) {
        const int64_t from = ring_run_offset(r, t, k ? t.k_first : t.q_first, k ? r.k.from : r.q.from, i);
        const int place = r.edges ? static_cast<int>(from & 15) : 0;
        if (!r.edges && (from % 16 || bytes % 16)) return "a run off the grid without edges";
        const int64_t to = ring_run_offset(r, t, k ? t.k_first : t.q_first, k ? r.k.to : r.q.to, i);
        if ((from - to) % 16) return "a run is written elsewhere on the grid";
        const int at = ring_part(r, t, k) + i * ring_run_pitch(r, bytes) + place;
        if (at % 16 != from % 16) return "a run stands elsewhere on the grid";
        if (at + bytes > r.slot_bytes) return "a run beyond its slot";
        for (int b = 0; b < bytes; ++b) {
          if (slot[at + b] >= 0) return "two runs at one place of a slot";
          slot[at + b] = 2 * (from + b) + k;
        }
        ++runs;
      }
    }
    if (runs > kRingMostRuns || t.tokens > kRingMostTokens)
      return "more runs or tokens than a warp has lanes";
    for (int token = 0; token < t.tokens; ++token)
      for (int h = 0; h < t.q_heads + t.k_heads; ++h) {
        const bool k = h >= t.q_heads;
        const int at = ring_start(r, t, token, k) + h * ring_head_pitch(r, t);
        int64_t index_of_token = t.token + token, batch = t.batch;
        if (r.batch == 1) batch = index_of_token / r.true_seq, index_of_token %= r.true_seq;
        const int64_t head = k ? t.k_first + h - t.q_heads : t.q_first + h;
        const RopeStrides& s = k ? p.k : p.q;
        const int64_t from = (batch * s.batch + index_of_token * s.seq + head * s.head) * size;
        for (int64_t b : {int64_t{0}, r.head_bytes - 1})
          if (at < 0 || at + b >= r.slot_bytes || slot[at + b] != 2 * (from + b) + k)
            return "a head is not where it was loaded";
        if (at % std::min<int>(r.vector_bytes, 16)) return "a head off the vector's grid";
        ++seen[static_cast<size_t>((batch * p.seq + index_of_token) * heads + (k ? p.q_heads + head : head))];
      }
  }
  for (int n : seen)
    if (n != 1) return "a head is not rotated once";
  return nullptr;
}

TEST(RopeRingPlan, CoversEveryHeadOnce) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  int64_t planned = 0, with_edges = 0, by_head = 0, split = 0;
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16})
    for (int64_t d : {8, 56, 64, 80, 92, 96, 128, 192, 256})
      for (int64_t h : {1, 3, 32, 73})
        for (int64_t hk : {0, 1, 213})
          for (int64_t b : {1, 3})
            for (int64_t s : {1, 2, 7, 33})
              for (Storage storage : kStorages)
                for (bool in_place : {false, true}) {
                  const RopeProblem p =
                      problem({b, s, h, hk, d, d}, dtype, dtype, kHalf, kHalf, storage, in_place);
                  const RopePlan plain = plan_rope(p, h200);
                  RopeRing r{};
                  if (plain.launches != 1 || !plan_rope_ring(p, h200, plain.launch[0].variant.vector_bytes,
                                                             plain.launch[0].vector_tables, &r))
                    continue;
                  ++planned;
                  with_edges += r.edges;
                  by_head += !r.by_token;
                  split += r.head_tiles > 1;
                  char line[512];
                  print(r, line, sizeof line);
                  const char* wrong = ring_fault(h200, r);
                  if (!wrong) wrong = ring_cover_fault(p, r);
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

// Large tensors of usual shapes get the ring, in each storage order.
TEST(RopeRingPlan, ServesUsualShapes) {
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
        RopeRing r{};
        ASSERT_TRUE(plan_rope_ring(p, h200, l.variant.vector_bytes, l.vector_tables, &r)) << n.d;
        EXPECT_EQ(ring_fault(h200, r), nullptr) << ring_fault(h200, r);
        EXPECT_GE(r.slot_bytes, 10 << 10) << n.d;
        EXPECT_GE(r.slots * r.ctas_per_sm, 4) << n.d;
      }
}

}  // namespace
}  // namespace brim::cuda

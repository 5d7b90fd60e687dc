// RoPE's bulk kernel run on the CPU, thread by thread (cuda_on_cpu/): the bits of the formula, nothing
// written outside, no wait without an answer.
#include "cuda/device/bulk.cuh"

#include "cpu_rope_case.h"
#include "cuda/device/rope_bulk.cuh"
#include "cuda/rope_bulk_plan.h"
#include "cuda/rope_plan.h"

namespace brim::test {
namespace {

using cuda::BulkParams;
using cuda::RopeBulk;

template <size_t I = 0>
void run_variant(size_t index, const BulkParams& params) {
  if constexpr (I < cuda::kBulkVariants.size()) {
    if (I != index) return run_variant<I + 1>(index, params);
    constexpr cuda::BulkVariant v = cuda::kBulkVariants[I];
    using T = typename cuda::Element<v.dtype>::type;
    const RopeBulk& r = params.plan;
    const cuda::Index threads{static_cast<unsigned>(r.pair_columns), static_cast<unsigned>(r.tile_tokens),
                              static_cast<unsigned>(r.head_lanes)};
    const cuda::Index grid{static_cast<unsigned>(r.grid_x), static_cast<unsigned>(r.grid_y),
                           static_cast<unsigned>(r.grid_z)};
    cuda::emulation::run(grid, threads, [&] {
      cuda::rope_bulk<T, v.vector_bytes, static_cast<int>(v.order), v.one_run, v.edges>(params);
    });
  }
}

// Whether the bulk form serves the call, which then has been done.
bool run_bulk(const brim_rope_args& args, RopeBulk* plan) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  const ops::RopeProblem problem = ops::make_rope_problem(args);
  const cuda::RopePlan plain = cuda::plan_rope(problem, h200);
  const cuda::RopeLaunch& l = plain.launch[0];
  if (plain.launches != 1 ||
      !cuda::plan_rope_bulk(problem, h200, l.variant.vector_bytes, l.vector_tables, plan))
    return false;
  run_variant(static_cast<size_t>(cuda::bulk_variant_index(*plan)),
              cuda::make_bulk_params(args, problem, *plan));
  return true;
}

TEST(RopeBulk, MatchesTheFormula) {
  constexpr brim_dtype kTypes[] = {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16};
  constexpr int64_t kHeadDims[] = {2, 4, 6, 8, 12, 56, 64, 80, 92, 96, 128, 256},
                    kHeads[] = {1, 2, 3, 8, 32, 73};
  int served = 0, edges = 0, by_head = 0, split = 0;
  for (uint64_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](auto&& list) { return list[random() % std::size(list)]; };
    RopeSpec spec;
    spec.q = spec.k = pick(kTypes);
    spec.table = random() % 2 ? spec.q : BRIM_FLOAT32;
    spec.b = 1 + static_cast<int64_t>(random() % 2);
    spec.s = 1 + static_cast<int64_t>(random() % 20);
    spec.h = pick(kHeads);
    spec.hk = random() % 3 ? pick(kHeads) : 0;
    spec.d = pick(kHeadDims);
    if (seed % 20 == 0) spec.h = 301, spec.s = 2, spec.b = 1, spec.d = 256;  // more than a tile holds
    const bool small_runs = seed % 20 == 10;                                 // of 4 and 8 bytes
    if (small_runs) spec.h = 1, spec.d = 2;
    if (spec.b * spec.s * (spec.h + spec.hk) * spec.d > 200000) continue;
    spec.in_place = random() % 2;
    spec.r = spec.in_place || random() % 3 ? spec.d : std::max<int64_t>(spec.d / 4 * 2, 2);
    spec.pairing = random() % 2 ? BRIM_PAIRING_HALF : BRIM_PAIRING_INTERLEAVED;
    // Contiguous either way, or packed.
    spec.in = spec.out = small_runs ? Storage::gaps : static_cast<Storage>(random() % 3);
    if (!spec.in_place && random() % 8 == 0) spec.in = Storage::expanded_all;  // the plain form's
    spec.layout = random() % 2 ? BRIM_LAYOUT_BHSD : BRIM_LAYOUT_BSHD;
    spec.positions = random() % 2 ? BRIM_INT32 : BRIM_DTYPE_NONE;
    spec.inverse = random() % 2;
    spec.backward = random() % 2;
    spec.column_stride = 1;
    spec.dense_table = true;
    spec.table_form = static_cast<int>(random() % 3);
    spec.sin_gap = random() % 2 ? 16 : 0;
    RopeCase c(spec, random);
    c.check_by("bulk", [&](RopeArgs& args) {
      brim_rope_args forward = args;
      if (spec.backward) forward = ops::transposed(args);
      int32_t bad = 0;
      forward.run.bad_data = &bad;
      RopeBulk plan{};
      const bool done = run_bulk(forward, &plan);
      EXPECT_EQ(bad, 0);
      if (!done) {
        args.run.path = nullptr;  // so that there is something to compare
        ASSERT_TRUE(ok(spec.backward ? rope_backward(args) : rope_forward(args)));
        return;
      }
      EXPECT_NE(spec.in, Storage::expanded_all);
      ++served;
      edges += plan.edges;
      by_head += !plan.by_token;
      split += plan.first_k_tile > 0 && plan.by_token;
    });
  }
  EXPECT_GT(served, 70);
  EXPECT_GT(edges, 5);
  EXPECT_GT(by_head, 15);
  EXPECT_GT(split, 1);
}

TEST(RopeBulk, BadPositionsBecomeNansAndSetTheFlag) {
  RopeSpec spec;
  spec.q = spec.k = BRIM_BFLOAT16;
  spec.s = 9;
  spec.h = 4;
  spec.hk = 2;
  spec.d = spec.r = 64;
  spec.dense_table = true;
  std::mt19937_64 random(1);
  RopeCase c(spec, random);
  std::vector<int64_t> positions{0, 1, 2, -1, 4, 5, 6, 9, 8};  // the table has 9 rows
  Tensor q_out = c.q().clone(), k_out = q_out.clone();
  RopeArgs args;
  args.q = c.q().view();
  args.q_out = q_out.view();
  args.cos = c.cos().view();
  args.sin = c.sin().view();
  args.rotary_dim = spec.r;
  args.layout = spec.layout;
  args.positions = view(positions.data(), BRIM_INT64, {9});
  int32_t bad = 0;
  args.run.bad_data = &bad;
  RopeBulk plan{};
  ASSERT_TRUE(run_bulk(args, &plan));
  EXPECT_EQ(bad, 1);
  const ops::RopeStrides strides = ops::make_rope_problem(args).q_out;
  for (int64_t s = 0; s < 9; ++s) EXPECT_EQ(std::isnan(q_out.value(s * strides.seq)), s == 3 || s == 7) << s;
}

}  // namespace
}  // namespace brim::test

// The norms' launch plans without a GPU: millions of problems on every known device.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cuda/rms_norm_plan.h"

namespace brim::cuda {
namespace {

using core::element_size;
using ops::RmsNormProblem;
using ops::RowStrides;

struct Types {
  brim_dtype x, sum, weight;
};
std::vector<Types> all_types(bool add) {
  std::vector<Types> result;
  const brim_dtype floats[] = {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16};
  for (brim_dtype x : floats)
    for (brim_dtype w : {BRIM_DTYPE_NONE, BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16}) {
      if (w && w != x && w != BRIM_FLOAT32 && x != BRIM_FLOAT32) continue;
      result.push_back({x, x, w});
      if (add && x != BRIM_FLOAT32) result.push_back({x, BRIM_FLOAT32, w});
    }
  return result;
}

// Rows of `hidden` elements `pad` apart, on one axis or, with `heads`, as slices of a wider one.
RmsNormProblem problem(const Types& types, bool add, bool backward, int64_t rows, int64_t hidden,
                       int alignment, int64_t column = 1, int64_t weight_stride = 1, int64_t heads = 1) {
  RmsNormProblem p{};
  p.dtype = types.x;
  p.sum_dtype = types.sum;
  p.weight_dtype = types.weight;
  p.add = add;
  p.backward = backward;
  p.saves_rstd = !backward;
  p.has_dy = p.wants_dx = backward;
  p.has_dsum = p.wants_dresidual = add && backward;
  p.wants_dweight = backward && types.weight;
  p.rows = rows * heads;
  p.hidden = hidden;
  RowStrides s{};
  s.column = hidden > 1 ? column : 0;
  if (heads > 1) {
    p.axes = 2;
    p.sizes[0] = rows, p.sizes[1] = heads;
    s.axis[0] = 3 * heads * hidden, s.axis[1] = hidden;
  } else {
    p.axes = rows != 1;
    p.sizes[0] = rows;
    s.axis[0] = rows != 1 ? hidden : 0;
  }
  for (RowStrides* t : {&p.s, &p.x, &p.residual, &p.sum, &p.y, &p.dy, &p.dsum, &p.dx, &p.dresidual}) *t = s;
  p.weight_stride = hidden > 1 ? weight_stride : 0;
  p.dweight_stride = p.rstd_stride = 1;
  const int whole = hidden * element_size(types.x) % 16 == 0 ? 16 : element_size(types.x);
  p.alignment = std::min(alignment, whole);
  p.weight_alignment = 16;
  return p;
}

int threads_of(const NormPlan& plan) { return plan.lanes * plan.rows_per_cta + (plan.slots ? 32 : 0); }

// What must hold for every plan; returns the first thing that does not.
const char* fault(const RmsNormProblem& p, const NormPlan& plan, const core::DeviceProps& device) {
  const NormVariant& v = plan.variant;
  const int64_t n = norm_elements(v);
  if (norm_variant_index(v) < 0) return "the variant is not built";
  if (plan.lanes < 1 || plan.rows_per_cta < 1 || plan.cluster < 1) return "an empty CTA";
  if (threads_of(plan) > 1024) return "too many threads";
  if (threads_of(plan) % 32) return "a part of a warp";
  if (plan.lanes < 32 && 32 % plan.lanes) return "a row across warps";
  if (plan.lanes > 32 && plan.lanes % 32) return "two rows in a warp";
  if ((threads_of(plan) + 127) / 128 * 128 * norm_registers(v) > device.registers_per_sm)
    return "too many registers";
  const bool bulk = v.form == NormForm::bulk;
  if (plan.shared_bytes + (bulk ? kNormStaticBytes : 0) > device.shared_per_block_optin)
    return "too much shared memory";
  if (bulk && device.compute_capability < 90) return "bulk copies before Hopper";
  if (plan.cluster > kNormMostCluster || (plan.cluster > 1 && !bulk)) return "too large a cluster";
  if (!v.single && (p.alignment < 16 || p.hidden % n || (p.weight_dtype && p.weight_stride > 1)))
    return "vectors where there are none";
  if (bulk && p.hidden > 1 && p.y.column > 1 && !p.backward) return "bulk copies of strided columns";
  if (plan.groups < (p.rows > 0) || static_cast<int64_t>(plan.groups) * plan.cluster > INT32_MAX)
    return "the grid";

  // Columns: each is one thread's.
  if (v.form == NormForm::rows && plan.lanes * v.vectors * n < p.hidden) return "columns are left out";
  if (bulk) {
    if (static_cast<int64_t>(plan.share) * plan.cluster < p.hidden)
      return "columns are left out by the cluster";
    if (plan.share % 16) return "a share that begins between vectors";
    const int64_t singles = v.single ? 2 * n - 1 : 0;  // after the vectors, at least
    if (v.vectors && int64_t{plan.lanes} * v.vectors * n + singles < std::min<int64_t>(plan.share, p.hidden))
      return "columns are left out by a CTA";
    for (int64_t row = 0; v.single && plan.slots && row < 9 && row + plan.groups < p.rows; ++row)
      if ((row_offset(p, p.s, row) - row_offset(p, p.s, row + plan.groups)) % n ||
          (row_offset(p, p.y, row) - row_offset(p, p.y, row + plan.groups)) % n)
        return "rows of a ring that begin at different places";
    const int spare = v.single ? kNormBytesAround : 0;  // before and after
    if (plan.pitch < plan.share * element_size(v.dtype) + spare || plan.pitch % 16)
      return "a slot that is too small";
    if (plan.sum_pitch < plan.share * element_size(v.sum_dtype) + spare || plan.sum_pitch % 16)
      return "a slot that is too small";
    const int sums = v.add ? p.backward ? 2 : 1 : p.backward ? 1 : 0;
    const int tensors = plan.pitch + sums * plan.sum_pitch;
    if (plan.shared_bytes < tensors * (plan.slots ? plan.slots : plan.rows_per_cta))
      return "shared memory of the slots";
    if (plan.slots && (plan.slots < 2 || plan.slots > kNormMostSlots || plan.rows_per_cta > 1))
      return "the ring";
    if (plan.slots && (plan.lanes % 32 || plan.lanes > kNormRingThreads)) return "the ring's threads";
    if ((p.backward || v.vectors) != (plan.slots > 0)) return "a ring without slots";
  }

  // Rows: in one group each.
  const int64_t most = std::min(p.rows, kNormMostRows);
  if (!p.backward && !plan.slots && static_cast<int64_t>(plan.groups) * plan.rows_per_cta < most)
    return "rows are left out";
  const NormPieces pieces = norm_pieces(p);
  if (pieces.inner * pieces.most > kNormMostRows && p.rows > 0) return "a launch has too many rows";
  if ((plan.launches > 1) != (p.rows > kNormMostRows)) return "launches";
  if (plan.launches < 100) {
    int64_t row = 0, count = 0;
    if (plan.launches > 1)
      for (; row < p.rows; ++count) {
        const int64_t index = row / pieces.inner % p.sizes[pieces.axis];
        row += std::min(pieces.most, p.sizes[pieces.axis] - index) * pieces.inner;
      }
    if (plan.launches > 1 && (row != p.rows || count != plan.launches)) return "the pieces are not the rows";
  }

  if (plan.partials != (p.wants_dweight && p.has_dy ? plan.groups * plan.launches : 0)) return "partials";
  if (plan.finish_columns) {
    if (plan.launches > 1 || !plan.partials) return "a finish of nothing";
    if (plan.finish_columns % 4 || 32 * 4 % plan.finish_columns) return "columns across warps";
    if (plan.shared_bytes < threads_of(plan) / 32 * plan.finish_columns * 4)
      return "shared memory of the finish";
  }
  if (v.form != NormForm::loop && norm_workspace_bytes(plan, p) > (40ll << 20) * plan.launches)
    return "a large workspace";
  return nullptr;
}

NormPlan same_for_all_rows(NormPlan plan) {
  plan.groups = 0;
  plan.launches = plan.partials = 0;
  plan.finish_columns = plan.shared_bytes = plan.group_step = 0;
  plan.rows_overlap = false;  // how the sums for dweight come together
  plan.axes = 0;
  for (Divider& d : plan.by) d = Divider();
  return plan;
}

std::vector<int64_t> lengths() {
  std::vector<int64_t> all = {
      1,    2,    3,    7,     8,     9,     31,    32,    33,    63,    64,     65,     80,     96,
      127,  128,  129,  192,   255,   256,   257,   300,   511,   512,   513,    576,    768,    1000,
      1023, 1024, 1025, 1536,  2048,  2304,  2560,  3072,  3584,  4096,  4097,   5120,   6144,   7168,
      7680, 8191, 8192, 12288, 14336, 16384, 18432, 32768, 65536, 65537, 100003, 131072, 262144, 1 << 20};
  std::mt19937_64 random(5);
  for (int i = 0; i < 40; ++i)
    all.push_back(1 + static_cast<int64_t>(random() % (int64_t{1} << (1 + random() % 18))));
  return all;
}

TEST(RmsNormPlan, EachVariantHasItsIndex) {
  for (size_t i = 0; i < kNormVariants.size(); ++i)
    EXPECT_EQ(norm_variant_index(kNormVariants[i]), static_cast<int>(i));
  NormVariant none = kNormVariants[0];
  none.vectors = 3;
  EXPECT_EQ(norm_variant_index(none), -1);
  none = kNormVariants[0];
  none.dtype = BRIM_FLOAT64;
  EXPECT_EQ(norm_variant_index(none), -1);
}

TEST(RmsNormPlan, EveryPlanHolds) {
  const int64_t rows[] = {0, 1, 2, 7, 300, 8192, 262144, 10'000'000, 3'000'000'001};
  const NormForm forms[] = {NormForm::bulk, NormForm::rows, NormForm::loop};
  int64_t planned = 0, of_form[3] = {}, clusters = 0, shifted = 0;
  const std::vector<int64_t> all_lengths = lengths();
  for (const core::DeviceProps& device : core::kKnownDevices)
    for (bool add : {false, true})
      for (bool backward : {false, true})
        for (const Types& types : all_types(add))
          for (int64_t hidden : all_lengths)
            for (int layout = 0; layout < 4; ++layout) {  // aligned, not, strided columns, strided weight
              NormPlan first{};
              for (int64_t count : rows) {
                const RmsNormProblem p =
                    problem(types, add, backward, count, hidden, layout == 1 ? element_size(types.x) : 16,
                            layout == 2 ? 2 : 1, layout == 3 ? 2 : 1);
                for (int form = -1; form < 3; ++form) {
                  if (form >= 0 && count != 300) continue;
                  const NormPlan plan = plan_rms_norm(p, device, form < 0 ? nullptr : &forms[form]);
                  ++planned;
                  const char* wrong = fault(p, plan, device);
                  if (!wrong && form < 0 && count == 1) first = plan;
                  if (!wrong && form < 0 && count > 1 &&
                      !(same_for_all_rows(plan) == same_for_all_rows(first)))
                    wrong = "a row is cut by the number of rows";
                  if (form < 0) {
                    ++of_form[static_cast<int>(plan.variant.form)];
                    clusters += plan.cluster > 1;
                    shifted += plan.variant.form == NormForm::bulk && plan.variant.single;
                  }
                  char line[256];
                  if (wrong) print(plan, line, sizeof line);
                  ASSERT_EQ(wrong, nullptr)
                      << wrong << ": " << device.name << " add " << add << " backward " << backward << " x "
                      << types.x << " sum " << types.sum << " weight " << types.weight << " rows " << count
                      << " hidden " << hidden << " layout " << layout << "\n"
                      << line;
                }
              }
            }
  EXPECT_GT(planned, 1'000'000);
  for (int64_t n : of_form) EXPECT_GT(n, 10'000);
  EXPECT_GT(clusters, 1000);
  EXPECT_GT(shifted, 10'000);
}

TEST(RmsNormPlan, SlicesOfAWiderTensorAreCutAsWholeOnes) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  for (bool backward : {false, true})
    for (int64_t heads : {1, 8, 100'000}) {
      const RmsNormProblem p = problem({BRIM_BFLOAT16, BRIM_BFLOAT16, BRIM_BFLOAT16}, false, backward, 30'000,
                                       128, 16, 1, 1, heads);
      const NormPlan plan = plan_rms_norm(p, h200, nullptr);
      EXPECT_EQ(fault(p, plan, h200), nullptr) << fault(p, plan, h200);
      EXPECT_EQ(plan.axes, heads > 1 ? 2 : 1);
      EXPECT_EQ(plan.launches, heads == 100'000 ? 3 : 1);  // of at most 2^30 rows
    }
}

TEST(RmsNormPlan, RowsThatBeginAnywhere) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  const Types bf16{BRIM_BFLOAT16, BRIM_BFLOAT16, BRIM_BFLOAT16};
  for (bool backward : {false, true})
    for (int64_t heads : {1, 8})
      for (int64_t hidden : {2047, 4095, 4097, 40'001, 100'001}) {
        const RmsNormProblem p = problem(bf16, false, backward, 30'000, hidden, 2, 1, 1, heads);
        const NormPlan plan = plan_rms_norm(p, h200, nullptr);
        EXPECT_EQ(fault(p, plan, h200), nullptr) << fault(p, plan, h200);
        // With two axes of rows no number of groups has rows that begin alike.
        const bool ring = backward ? hidden < 100'000 : hidden > 32768;
        EXPECT_EQ(plan.slots > 0, ring && heads == 1) << hidden;
      }
}

// The forms that were measured to be best there, by name.
TEST(RmsNormPlan, TakesTheBestFormOnAnH200) {
  const core::DeviceProps& h200 = *core::known_device("H200");
  const Types bf16{BRIM_BFLOAT16, BRIM_BFLOAT16, BRIM_BFLOAT16};
  const auto form = [&](bool backward, int64_t rows, int64_t hidden, int alignment = 16) {
    return norm_form_name(
        plan_rms_norm(problem(bf16, false, backward, rows, hidden, alignment), h200, nullptr).variant.form);
  };
  EXPECT_STREQ(form(false, 262144, 128), "rows");
  EXPECT_STREQ(form(false, 8192, 4096), "rows");
  EXPECT_STREQ(form(false, 8192, 5120), "rows");
  EXPECT_STREQ(form(false, 8192, 2304), "bulk");
  EXPECT_STREQ(form(false, 2048, 65536), "bulk");
  EXPECT_STREQ(form(false, 8192, 4097), "bulk");
  EXPECT_STREQ(form(false, 8192, 4096, 2), "bulk");
  EXPECT_STREQ(form(true, 262144, 128), "rows");
  EXPECT_STREQ(form(true, 8192, 4096), "rows");
  EXPECT_STREQ(form(true, 8192, 8192), "bulk");
  EXPECT_STREQ(form(true, 2048, 65536), "bulk");
  EXPECT_STREQ(form(true, 1, 1 << 20), "loop");
}

}  // namespace
}  // namespace brim::cuda

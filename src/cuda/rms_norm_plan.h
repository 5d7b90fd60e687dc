// The launch policy of RMSNorm and residual-add RMSNorm, forward and backward: a pure function of the problem and the
// device.
//
// Three forms. "bulk" (Hopper and newer): bulk copies bring rows into shared memory; forward has a CTA a row, or a few
// short rows; backward, and forward of long rows, have persistent CTAs, or clusters of them a row, with a ring of rows.
// "rows": `lanes` threads hold a row in registers, several rows a CTA where they are short. "loop": a CTA goes over a
// row twice, the second time through L2; it serves every length and stride. Each works on vectors of 16 bytes; where
// alignment or strides do not allow that, "bulk" on unaligned ones and the others on single elements. How a row is cut,
// and with it the order of its sums, depends on its length, types, alignment and the chip, never on the number of rows.
#pragma once

#include <algorithm>
#include <cstdio>

#include "core/device_props.h"
#include "cuda/divider.h"
#include "cuda/rms_norm_variants.h"
#include "ops/rms_norm.h"

namespace brim::cuda {

inline constexpr int kNormLoopThreads = 512;
inline constexpr int64_t kNormMostPartials = 10 << 20;   // bytes of workspace, about
inline constexpr int64_t kNormMostRows = INT32_MAX / 2;  // of one launch
inline constexpr int kNormMostLanes = 512;
inline constexpr int kNormSlots = 3;  // of a ring, where an SM has several

struct NormPlan {
  NormVariant variant;
  int32_t lanes;         // threads of a row, in each CTA of the cluster
  int32_t rows_per_cta;  // more than 1 only where a row is short
  int32_t cluster;
  int32_t groups;  // CTAs or clusters of them: each has the rows group, group + groups, .. times rows_per_cta
  int32_t share;   // elements of a row that one CTA of the cluster has
  int32_t slots;   // of a ring
  int32_t pitch, sum_pitch;  // bytes of shared memory for a share in dtype and in sum_dtype
  int32_t shared_bytes;
  int64_t launches;  // one unless there are more rows than a launch takes
  int64_t partials;  // rows of float32 sums of dweight in the workspace, `groups` a launch; 0: none
  int32_t axes;      // of the rows
  Divider by[ops::kMostRowAxes];

  bool operator==(const NormPlan&) const = default;
};

constexpr int64_t norm_workspace_bytes(const NormPlan& plan, const ops::RmsNormProblem& p) {
  return plan.partials * p.hidden * 4;
}

// A launch has whole indices of one axis, and one index of each axis before that.
struct NormPieces {
  int axis;
  int64_t inner, most;  // rows of an index; indices of a launch
};
constexpr NormPieces norm_pieces(const ops::RmsNormProblem& p) {
  NormPieces pieces{std::max(p.axes - 1, 0), 1, kNormMostRows};
  for (; pieces.axis > 0 && pieces.inner * p.sizes[pieces.axis] <= kNormMostRows; --pieces.axis)
    pieces.inner *= p.sizes[pieces.axis];
  pieces.most = std::max<int64_t>(kNormMostRows / std::max<int64_t>(pieces.inner, 1), 1);
  return pieces;
}

namespace norm_plan_detail {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t ceil_to(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// The tensors that a kernel reads or writes: use(strides of its rows).
template <class Use>
constexpr void each_tensor(const ops::RmsNormProblem& p, Use use) {
  if (p.backward) {
    if (p.has_dy) use(p.s), use(p.dy);
    if (p.has_dsum) use(p.dsum);
    if (p.wants_dx) use(p.dx);
    if (p.wants_dresidual) use(p.dresidual);
  } else {
    if (p.add)
      use(p.x), use(p.residual), use(p.sum);
    else
      use(p.s);
    use(p.y);
  }
}

constexpr bool whole_rows(const ops::RmsNormProblem& p) {
  bool whole = true;
  each_tensor(p, [&](const ops::RowStrides& s) { whole &= p.hidden == 1 || s.column == 1; });
  return whole;
}

// Whether every row of every tensor is whole vectors of 16 bytes. Both types have such vectors where the narrower one has.
constexpr bool whole_vectors(const ops::RmsNormProblem& p, int elements) {
  return whole_rows(p) && p.alignment >= 16 && p.hidden % elements == 0 &&
         (p.weight_dtype == BRIM_DTYPE_NONE || (p.weight_stride == 1 && p.weight_alignment >= 16));
}

constexpr int64_t row_lanes(int64_t vectors, int64_t each) {
  const int64_t lanes = ceil_div(vectors, each);
  if (lanes > 32) return ceil_to(lanes, 32);
  int64_t power = 1;
  while (power < lanes) power *= 2;
  return power;
}

constexpr bool cut_rows(NormPlan& plan, int64_t hidden, const core::DeviceProps& device) {
  NormVariant& v = plan.variant;
  const int64_t n = ceil_div(hidden, norm_elements(v));  // vectors
  const auto take = [&](int vectors) {
    const int64_t lanes = row_lanes(n, vectors);
    v.vectors = vectors;
    plan.lanes = static_cast<int32_t>(lanes);
    plan.rows_per_cta = lanes <= 32 ? static_cast<int32_t>((!v.backward ? 128
                                                            : v.add     ? 256
                                                                        : 512) /
                                                           lanes)
                                    : 1;
  };
  // Registers are given to four warps at a time.
  const auto fits = [&] {
    return plan.lanes <= kNormMostLanes &&
           ceil_to(int64_t{plan.lanes} * plan.rows_per_cta, 128) * norm_registers(v) <=
               device.registers_per_sm;
  };
  v.form = NormForm::rows;
  if (v.single) return take(v.backward ? kNormBackwardSingles : kNormForwardSingles), fits();
  if (v.backward) {
    // One vector a thread, two where an add has more tensors on their way: but not where few threads would be left.
    take(1);
    const bool two = v.add && (plan.lanes <= 32 || plan.lanes > 256);
    return (!two && fits()) || (take(2), fits());
  }
  // Four threads a short row and some dozens a longer one, each with some vectors, keep the memory busier than more threads
  // with fewer vectors.
  for (int vectors : kNormForwardVectors) {
    take(vectors);
    const int most = n <= 32 ? 4 : vectors == 8 ? kNormMostLanes : vectors == 4 ? 128 : v.add ? 256 : 32;
    if (plan.lanes <= most && fits()) return true;
  }
  return false;
}

inline constexpr int64_t kNormRingRowBytes = 4096;  // of a row that backward loads, at least

// Shared memory of a share: where it need not begin at a multiple of 16 bytes, as many before it and after it.
constexpr void cut_share(NormPlan& plan, int64_t hidden) {
  const NormVariant& v = plan.variant;
  plan.share = static_cast<int32_t>(ceil_to(ceil_div(hidden, plan.cluster), 16));
  const auto pitch = [&](brim_dtype dtype) {
    return static_cast<int32_t>(
        ceil_to(int64_t{plan.share} * core::element_size(dtype) + (v.single ? 32 : 0), 16));
  };
  plan.pitch = pitch(v.dtype);
  plan.sum_pitch = pitch(v.sum_dtype);
}

// CTAs of a GPU at once that shared memory and registers allow.
constexpr int64_t norm_resident(const NormPlan& plan, const core::DeviceProps& device) {
  const int threads = plan.lanes * plan.rows_per_cta + (plan.slots ? 32 : 0);
  int64_t ctas = device.registers_per_sm / (norm_registers(plan.variant) * ceil_to(threads, 128));
  ctas = std::min<int64_t>(ctas, device.max_threads_per_sm / threads);
  if (plan.shared_bytes)
    ctas = std::min<int64_t>(ctas, device.shared_per_sm / (plan.shared_bytes + kNormStaticBytes));
  ctas = std::clamp<int64_t>(ctas, 1, 32);
  // Large clusters with an SM for each CTA do not fit the groups of SMs exactly: 120 of an H200's 132 have some. (Those left
  // over would begin when the others end: 2048 x 65536 bf16 at half the speed.)
  const int64_t sms = plan.cluster > 2 && ctas == 1 ? device.sm_count * 10 / 11 : device.sm_count;
  return sms * ctas / plan.cluster * plan.cluster;
}

constexpr bool cut_ring(NormPlan& plan, const ops::RmsNormProblem& p, const core::DeviceProps& device) {
  NormVariant& v = plan.variant;
  v.form = NormForm::bulk;
  plan.rows_per_cta = 1;
  // Shared memory of a share, without gaps: what is loaded of it.
  const int64_t loaded = p.hidden * ((v.add || !v.backward ? 1 : 2) * core::element_size(v.dtype) +
                                     (v.add ? v.backward ? 2 : 1 : 0) * core::element_size(v.sum_dtype));
  if (v.backward && loaded < kNormRingRowBytes) return false;
  for (plan.cluster = 1;; plan.cluster *= 2) {
    if (plan.cluster > kNormMostCluster) return false;
    cut_share(plan, p.hidden);
    const int slot = v.backward ? plan.pitch + plan.sum_pitch * (v.add ? 2 : 1)
                                : plan.pitch + (v.add ? plan.sum_pitch : 0);
    const int64_t vectors = ceil_div(plan.share, norm_elements(v));
    v.vectors = !v.backward       ? kNormForwardRingVectors
                : v.single        ? kNormShiftedVectors
                : vectors <= 1024 ? 2
                                  : 4;
    plan.lanes = static_cast<int32_t>(ceil_to(ceil_div(vectors, v.vectors), 32));
    const int most = device.shared_per_block_optin - kNormStaticBytes;
    if (plan.lanes > kNormRingThreads || 2 * slot > most ||
        ceil_to(plan.lanes + 32, 128) * norm_registers(v) > device.registers_per_sm)
      continue;
    // More slots than a few help only where there is one CTA (8192 x 7168 bf16: 0.91 with 7, 0.84 with 3).
    const auto take = [&](int64_t slots) {
      plan.slots = static_cast<int32_t>(std::clamp<int64_t>(most / slot, 2, slots));
      plan.shared_bytes = plan.slots * slot;
    };
    take(kNormSlots);
    if (norm_resident(plan, device) <= device.sm_count) take(kNormMostSlots);
    return true;
  }
}

inline constexpr int kNormBulkTileBytes = 4096;       // that a CTA has at least, of short rows
inline constexpr int kNormBulkShareBytes = 64 << 10;  // that it has at most: rings have the longer rows
inline constexpr int kNormBulkVectors = 4;            // of a thread, about

constexpr bool cut_bulk_forward(NormPlan& plan, const ops::RmsNormProblem& p,
                                const core::DeviceProps& device) {
  NormVariant& v = plan.variant;
  v.form = NormForm::bulk;
  v.vectors = 0;
  const int64_t element_bytes =
      core::element_size(v.add ? v.sum_dtype : v.dtype) + (v.add ? core::element_size(v.dtype) : 0);
  const int64_t bytes = p.hidden * element_bytes;
  if (bytes < 1024) return false;
  if (bytes > kNormBulkShareBytes) return cut_ring(plan, p, device);
  plan.cluster = 1;
  cut_share(plan, p.hidden);
  const int64_t vectors = ceil_div(plan.share, norm_elements(v));
  plan.lanes =
      static_cast<int32_t>(std::clamp<int64_t>(ceil_to(ceil_div(vectors, kNormBulkVectors), 32), 32, 512));
  plan.rows_per_cta = 1;
  if (bytes < kNormBulkTileBytes)
    plan.rows_per_cta = static_cast<int32_t>(ceil_div(kNormBulkTileBytes, bytes));
  plan.shared_bytes = plan.rows_per_cta * ((v.add ? plan.sum_pitch : 0) + plan.pitch);
  return plan.shared_bytes <= device.shared_per_block_optin - kNormStaticBytes;
}

}  // namespace norm_plan_detail

inline NormPlan plan_rms_norm(const ops::RmsNormProblem& p, const core::DeviceProps& device,
                              const NormForm* only) {
  using namespace norm_plan_detail;
  NormPlan plan{};
  NormVariant& v = plan.variant;
  v = {p.dtype,
       p.sum_dtype,
       p.weight_dtype ? p.weight_dtype : p.dtype,
       NormForm::rows,
       p.add,
       p.backward,
       false,
       0};
  v.single = !whole_vectors(p, norm_elements(v));
  plan.launches = 1;
  const NormPieces pieces = norm_pieces(p);
  if (p.rows > kNormMostRows) {
    for (int i = 0; i < pieces.axis; ++i) plan.launches *= p.sizes[i];
    plan.launches *= ceil_div(p.sizes[pieces.axis], pieces.most);
  }
  const auto may = [&](NormForm form) { return p.hidden > 0 && (!only || *only == form); };
  const NormPlan none = plan;
  const bool bulk = may(NormForm::bulk) && device.compute_capability >= 90 && whole_rows(p);
  const auto cut = [&] {
    // Rows in registers where their threads have hardly anything to spare: shared memory wastes nothing.
    plan.cluster = 1;
    if (may(NormForm::rows) && !(bulk && v.single) && cut_rows(plan, p.hidden, device)) {
      const int64_t n = ceil_div(p.hidden, norm_elements(v)), spare = int64_t{plan.lanes} * v.vectors - n;
      if (!bulk || (v.backward ? n <= kNormMostLanes : plan.lanes <= 256 && 6 * spare <= n)) return true;
    }
    if (bulk) {
      plan = none;
      if (v.backward ? cut_ring(plan, p, device) : cut_bulk_forward(plan, p, device)) return true;
    }
    plan = none;
    plan.cluster = 1;
    return may(NormForm::rows) && cut_rows(plan, p.hidden, device);
  };
  if (!cut()) {
    plan = none;
    v.form = NormForm::loop;
    plan.lanes = static_cast<int32_t>(
        std::clamp<int64_t>(ceil_to(ceil_div(p.hidden, norm_elements(v)), 32), 32, kNormLoopThreads));
    plan.rows_per_cta = plan.cluster = 1;
  }
  plan.axes = p.axes;
  for (int i = 1; i < p.axes; ++i)
    plan.by[i] = Divider(static_cast<uint32_t>(std::clamp<int64_t>(p.sizes[i], 1, INT32_MAX)));
  if (v.form == NormForm::rows && v.backward && plan.rows_per_cta > 1 && p.wants_dweight)
    plan.shared_bytes = static_cast<int32_t>(plan.rows_per_cta * p.hidden * 4);

  int64_t groups = ceil_div(std::min(p.rows, kNormMostRows), plan.rows_per_cta);
  if (p.backward || plan.slots) {
    // All CTAs on the SMs at once, each with a share of the rows, backward with one row of sums of dweight.
    groups = std::min(groups, std::max<int64_t>(norm_resident(plan, device) / plan.cluster, 1));
    if (p.wants_dweight) {
      if (v.form == NormForm::loop)  // beyond the registers
        groups = std::min(groups, std::max<int64_t>(kNormMostPartials / (p.hidden * 4 + 1), 1));
      plan.partials = p.has_dy ? groups * plan.launches : 0;
    }
  }
  plan.groups = static_cast<int32_t>(std::min<int64_t>(groups, INT32_MAX / plan.cluster));
  return plan;
}

constexpr const char* norm_form_name(NormForm form) {
  return form == NormForm::bulk ? "bulk" : form == NormForm::rows ? "rows" : "loop";
}

// "bulk elements=8 ..."
inline void print(const NormPlan& plan, char* text, size_t size) {
  const NormVariant& v = plan.variant;
  std::snprintf(text, size,
                "%s elements=%d vectors=%d threads=%dx%d cluster=%d slots=%d grid=%lld partials=%lld",
                norm_form_name(v.form), norm_elements(v), v.vectors, plan.lanes, plan.rows_per_cta,
                plan.cluster, plan.slots, static_cast<long long>(int64_t{plan.groups} * plan.cluster),
                static_cast<long long>(plan.partials));
}

}  // namespace brim::cuda

// The launch policy of RMSNorm and residual-add RMSNorm, forward and backward: a pure function of the problem and the
// device.
//
// Three forms. "bulk" (Hopper and newer): bulk copies bring rows into shared memory; forward has a CTA a row, or a few
// short rows; backward, and forward of long rows, have persistent CTAs, or clusters of them a row, with a ring of rows.
// "rows": `lanes` threads hold a row in registers, several rows a CTA where they are short. "loop": a CTA goes over a
// row twice, the second time through L2, or with dweight over the rows and then over columns; it serves every length and
// stride. Each works on vectors of 16 bytes. Where alignment or strides do not allow that, "bulk" on those of memory with
// single columns at a row's ends, and the others on single elements. How a row is cut, and with it the order of its sums,
// depends on its length, types, alignment and the chip, never on the number of rows.
#pragma once

#include <algorithm>
#include <cstdio>

#include "core/device_props.h"
#include "cuda/divider.h"
#include "cuda/rms_norm_variants.h"
#include "ops/rms_norm.h"

namespace brim::cuda {

inline constexpr int kNormLoopThreads = 512, kNormLoopBackwardThreads = 256;
inline constexpr int64_t kNormMostRows = (1 << 30) - 8;  // of one launch; whole group_steps
inline constexpr int kNormMostLanes = 512;
inline constexpr int kNormMostBarriers = 8;       // of a CTA's rows of more than a warp, one each
inline constexpr int kNormSlots = 3;              // of a ring, where an SM has several
inline constexpr int kNormRingBytes = 160 << 10;  // of one that has an SM for itself, about

struct NormPlan {
  NormVariant variant;
  int32_t lanes;         // threads of a row, in each CTA of the cluster
  int32_t rows_per_cta;  // more than 1 only where a row is short
  int32_t cluster;
  int32_t groups;  // CTAs or clusters of them: each has the rows group, group + groups, .. times rows_per_cta
  int32_t share;   // elements of a row that one CTA of the cluster has
  int32_t slots;   // of a ring
  int32_t group_step;        // of a ring: what `groups` is a multiple of, where groups have several rows
  int64_t blocks;            // loop form with dweight: of columns, each of which has a CTA in each group
  int32_t pitch, sum_pitch;  // bytes of shared memory for a share in dtype and in sum_dtype
  int32_t shared_bytes;
  int64_t launches;  // one unless there are more rows than a launch takes
  int64_t partials;  // rows of float32 sums of dweight in the workspace, `groups` a launch; 0: none
  int32_t shift;  // places where a row of partials may begin, as its rows do: 1, or the elements of a vector
  bool rows_overlap;       // rows that begin anywhere: some less than 16 bytes after others
  int32_t finish_columns;  // of dweight that a CTA sums at a time, in this launch; 0: another one does
  int32_t axes;            // of the rows
  Divider by[ops::kMostRowAxes];

  bool operator==(const NormPlan&) const = default;
};

// Floats from one row of partials to the next: each is whole vectors.
constexpr int64_t norm_partial_pitch(const NormPlan& plan, int64_t hidden) {
  return (hidden + plan.shift - 1 + 3) / 4 * 4;
}
constexpr int64_t norm_workspace_bytes(const NormPlan& plan, const ops::RmsNormProblem& p) {
  return (plan.partials * norm_partial_pitch(plan, p.hidden) + (plan.blocks ? p.rows : 0)) * 4;
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

// Of `rows` one a turn for each group: as many groups as `most`, or some fewer that leave less of the last turn empty. (On
// clusters of two, 8192 x 16384 bf16 takes 198 us with 64 groups and 204 with 66, which need a turn for the last 8 rows.)
constexpr int64_t even_groups(int64_t rows, int64_t most) {
  if (rows <= most) return rows;
  int64_t best = most;
  const auto idle = [&](int64_t groups) { return (groups - rows % groups) % groups; };
  for (int64_t groups = most - 1; groups >= most - most / 16; --groups)
    if (idle(groups) < idle(best)) best = groups;
  return best;
}

// What a CTA needs to sum columns of the partials, a row of them for each warp.
constexpr int32_t finish_bytes(const NormPlan& plan) {
  const int threads = plan.lanes * plan.rows_per_cta + (plan.slots ? 32 : 0);
  return static_cast<int32_t>(ceil_div(threads, 32) * plan.finish_columns * 4);
}

// Whether all rows of each tensor begin at the same place within 16 bytes.
constexpr bool rows_begin_alike(const ops::RmsNormProblem& p, int elements) {
  bool alike = true;
  each_tensor(p, [&](const ops::RowStrides& s) {
    for (int i = 0; i < p.axes; ++i) alike &= s.axis[i] % elements == 0;
  });
  return alike;
}

// Whether rows of some tensor begin less than 16 bytes after others (8 elements: whatever the type).
constexpr bool rows_overlap(const ops::RmsNormProblem& p) {
  bool overlap = false;
  each_tensor(p, [&](const ops::RowStrides& s) {
    for (int i = 0; i < p.axes; ++i) overlap |= s.axis[i] < 8;
  });
  return overlap;
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
    // Backward a CTA an SM, since the fewer partials, the less to sum; but two rows do better in two CTAs.
    const int64_t threads =
        v.backward ? std::min<int64_t>(1024, device.registers_per_sm / norm_registers(v) & -128) : 128;
    const int64_t most = lanes <= 32 ? threads : v.backward && lanes <= 256 ? kNormMostBarriers : 1;
    plan.rows_per_cta = static_cast<int32_t>(std::clamp<int64_t>(threads / lanes, 1, most));
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
  // A few threads a short row and some dozens a longer one, each with some vectors, keep the memory busier than more threads
  // with fewer vectors.
  for (int vectors : kNormForwardVectors) {
    take(vectors);
    const bool wide_weight = core::element_size(v.weight_dtype) > core::element_size(v.dtype);
    const int most = n <= 16        ? 4
                     : n <= 32      ? 8
                     : vectors == 8 ? kNormMostLanes
                     : vectors == 4 ? (v.add || wide_weight ? 128 : 224)
                                    : (v.add ? 256 : 32);
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
        ceil_to(int64_t{plan.share} * core::element_size(dtype) + (v.single ? kNormBytesAround : 0), 16));
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
  // The rows of a CTA begin alike: where those of the tensors do not, they do at every elements-th row of the one axis.
  const int step = v.single && !rows_begin_alike(p, norm_elements(v)) ? norm_elements(v) : 1;
  if (step > 1 && p.axes > 1) return false;
  for (plan.cluster = 1;; plan.cluster *= 2) {
    if (plan.cluster > kNormMostCluster) return false;
    cut_share(plan, p.hidden);
    const int slot = v.backward ? plan.pitch + plan.sum_pitch * (v.add ? 2 : 1)
                                : plan.pitch + (v.add ? plan.sum_pitch : 0);
    const int64_t columns = std::min<int64_t>(plan.share, p.hidden);
    const int64_t vectors = v.single ? columns / norm_elements(v) - 1 : ceil_div(columns, norm_elements(v));
    v.vectors = !v.backward       ? kNormForwardRingVectors
                : v.single        ? norm_shifted_vectors(v.add)
                : vectors <= 1024 ? 2
                                  : 4;
    plan.lanes = static_cast<int32_t>(ceil_to(ceil_div(vectors, v.vectors), 32));
    const int most = device.shared_per_block_optin - kNormStaticBytes;
    if (plan.lanes > kNormRingThreads || 2 * slot > most ||
        ceil_to(plan.lanes + 32, 128) * norm_registers(v) > device.registers_per_sm)
      continue;
    // More slots than a few help only where there is one CTA, and there up to some bytes on their way (8192 x 7168 bf16,
    // 28 KiB a slot: 100 us with 3, 89 with 5 or 6; x 16384 with an add, 48 KiB: 255 with 3, 263 with 4).
    const auto take = [&](int64_t slots) {
      plan.slots = static_cast<int32_t>(std::clamp<int64_t>(most / slot, 2, slots));
      plan.shared_bytes = plan.slots * slot;
    };
    take(kNormSlots);
    const int64_t resident = norm_resident(plan, device);
    plan.group_step = step;
    if (v.single && resident / plan.cluster < norm_elements(v)) return false;
    if (resident <= device.sm_count) take(std::clamp(kNormRingBytes / slot, kNormSlots, kNormMostSlots));
    return true;
  }
}

inline constexpr int kNormBulkTileBytes = 4096;       // that a CTA has at least, of short rows
inline constexpr int kNormBulkShareBytes = 48 << 10;  // that it has at most: rings have the longer rows
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
  const auto lanes = [](int64_t n) { return static_cast<int32_t>(std::clamp<int64_t>(n, 32, 512)); };
  plan.lanes = lanes(ceil_to(ceil_div(vectors, kNormBulkVectors), 32));
  if (v.single)  // more registers: warps by fours, as these are given
    for (plan.lanes = 32; plan.lanes < lanes(vectors / (kNormBulkVectors + 1)); plan.lanes *= 2) {}
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
  plan.launches = plan.shift = 1;
  const NormPieces pieces = norm_pieces(p);
  if (p.rows > kNormMostRows) {
    for (int i = 0; i < pieces.axis; ++i) plan.launches *= p.sizes[i];
    plan.launches *= ceil_div(p.sizes[pieces.axis], pieces.most);
  }
  const auto may = [&](NormForm form) { return p.hidden > 0 && (!only || *only == form); };
  const NormPlan none = plan;
  const bool bulk = may(NormForm::bulk) && device.compute_capability >= 90 && whole_rows(p) &&
                    (p.weight_dtype == BRIM_DTYPE_NONE || p.hidden == 1 || p.weight_stride == 1);
  const auto cut = [&] {
    // Rows in registers where their threads have hardly anything to spare: shared memory wastes nothing.
    plan.cluster = 1;
    if (may(NormForm::rows) && !(bulk && v.single) && cut_rows(plan, p.hidden, device)) {
      const int64_t n = ceil_div(p.hidden, norm_elements(v)), spare = int64_t{plan.lanes} * v.vectors - n;
      if (!bulk || (v.backward ? n <= kNormMostLanes : plan.lanes <= 256 && 5 * spare <= n)) return true;
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
    plan.lanes =
        static_cast<int32_t>(std::clamp<int64_t>(ceil_to(ceil_div(p.hidden, norm_elements(v)), 32), 32,
                                                 v.backward ? kNormLoopBackwardThreads : kNormLoopThreads));
    plan.rows_per_cta = plan.cluster = 1;
    if (p.wants_dweight && p.has_dy) plan.blocks = ceil_div(p.hidden, int64_t{plan.lanes} * norm_elements(v));
  }
  if (v.form == NormForm::bulk && v.single) plan.rows_overlap = rows_overlap(p);
  plan.axes = p.axes;
  for (int i = 1; i < p.axes; ++i)
    plan.by[i] = Divider(static_cast<uint32_t>(std::clamp<int64_t>(p.sizes[i], 1, INT32_MAX)));
  if (v.form == NormForm::rows && v.backward && plan.rows_per_cta > 1 && p.wants_dweight)
    plan.shared_bytes = static_cast<int32_t>(plan.rows_per_cta * p.hidden * 4);

  int64_t groups = ceil_div(std::min(p.rows, kNormMostRows), plan.rows_per_cta);
  if (plan.slots || plan.blocks || (p.backward && v.form == NormForm::rows)) {
    // All CTAs on the SMs at once, each with a share of the rows, backward with one row of sums of dweight.
    int64_t most = std::max<int64_t>(norm_resident(plan, device) / plan.cluster, 1);
    if (plan.blocks) most = ceil_div(most, plan.blocks);
    if (plan.slots) most = most / plan.group_step * plan.group_step;
    groups = plan.slots && plan.cluster > 1 && plan.group_step == 1 ? even_groups(groups, most)
                                                                    : std::min(groups, most);
    if (p.wants_dweight && p.has_dy) plan.partials = groups * plan.launches;
    if (plan.slots && v.single && v.backward) plan.shift = norm_elements(v);
  }
  plan.groups = static_cast<int32_t>(std::min<int64_t>(groups, INT32_MAX / plan.cluster));
  if (plan.partials > 0 && plan.launches == 1 && v.form != NormForm::loop) {
    const int64_t ctas = groups * plan.cluster;
    int columns = kNormFinishLeast;
    while (columns < kNormFinishMost && columns * ctas < p.hidden && plan.shift == 1) columns *= 2;
    if (2 * columns * ctas >= p.hidden) plan.finish_columns = columns;  // in two turns at most
    plan.shared_bytes = std::max(plan.shared_bytes, finish_bytes(plan));
  }
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

#include "cpu/rms_norm.h"

#include <algorithm>
#include <memory>

#include "core/parallel.h"
#include "cpu/backend.h"
#include "cpu/cache.h"

namespace brim::cpu {
namespace {

using ops::RmsNormProblem;
using ops::RowStrides;

constexpr RmsNormBodies kBodies[] = {
#define BRIM_ISA(id, name) \
  {id::rms_norm_factors, id::rms_norm_rows, id::rms_norm_blocks, id::rms_norm_dweight},
#include "cpu/isas.inc"
#undef BRIM_ISA
};

// A thread is started for this much reading and writing at least, as for RoPE.
constexpr int64_t kBytesPerThread = 64 << 10;
constexpr int64_t kCacheLine = 64;
// Rows that do not consist of whole lines are written past the caches from this many bytes on.
constexpr int64_t kStreamedRow = 512;
// Longer rows are not asked for ahead: with the row at work they would not stay in L2.
constexpr int64_t kRowAhead = 256 << 10;
// Rows of at most this many bytes are finished together, and asked for as many rows ahead.
constexpr int64_t kRowTogether = 64 << 10, kMostTogether = 4;
// Blocks of rows: few enough that their sums are little memory, many enough for the threads of a large machine.
constexpr int64_t kRowsPerBlock = 64, kMostBlocks = 256, kFewBlocks = 16, kFewRows = 4;

constexpr const char* kWritingNames[] = {"plain", "stream", "heads"};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Tensor {
  const TensorView& tensor;
  const RowStrides& strides;
};

int64_t size_of(const Tensor& t) { return core::element_size(t.tensor.dtype); }

// 0 where every row starts on a line.
uint64_t line_bits(const RmsNormProblem& p, const Tensor& t) {
  uint64_t bits = reinterpret_cast<uintptr_t>(t.tensor.data);
  for (int i = 0; i < p.axes; ++i) bits |= static_cast<uint64_t>(t.strides.axis[i] * size_of(t));
  return bits % kCacheLine;
}

// Rows of both start at the same place in a line.
bool side_by_side(const RmsNormProblem& p, const Tensor& a, const Tensor& b) {
  uint64_t bits = reinterpret_cast<uintptr_t>(a.tensor.data) ^ reinterpret_cast<uintptr_t>(b.tensor.data);
  for (int i = 0; i < p.axes; ++i)
    bits |= static_cast<uint64_t>((a.strides.axis[i] - b.strides.axis[i]) * size_of(a));
  return a.tensor.dtype == b.tensor.dtype && bits % kCacheLine == 0;
}

// Of outputs larger than the caches.
RowWriting choose_writing(const RmsNormProblem& p, const brim_rms_norm_args& a) {
  const Tensor outputs[2] = {p.backward ? Tensor{a.dx, p.dx} : Tensor{a.y, p.y},
                             p.backward ? Tensor{a.dresidual, p.dresidual} : Tensor{a.sum, p.sum}};
  bool whole_lines = true, long_rows = true;
  for (const Tensor& out : outputs) {
    if (!core::present(out.tensor)) continue;
    for (const TensorView* in : {&a.x, &a.residual, &a.dy, &a.dsum})
      if (core::same_view(*in, out.tensor)) return RowWriting::plain;
    const int64_t bytes = p.hidden * size_of(out);
    whole_lines &= line_bits(p, out) == 0 && bytes % kCacheLine == 0;
    long_rows &= bytes >= kStreamedRow;
  }
  if (whole_lines) return RowWriting::stream;
  const bool both = core::present(outputs[0].tensor) && core::present(outputs[1].tensor);
  return long_rows && (!both || side_by_side(p, outputs[0], outputs[1])) ? RowWriting::heads
                                                                         : RowWriting::plain;
}

bool is_strided(const RmsNormProblem& p, const brim_rms_norm_args& a) {
  for (const Tensor& t :
       {Tensor{a.x, p.x}, Tensor{a.residual, p.residual}, Tensor{a.sum, p.sum}, Tensor{a.y, p.y},
        Tensor{a.dy, p.dy}, Tensor{a.dsum, p.dsum}, Tensor{a.dx, p.dx}, Tensor{a.dresidual, p.dresidual}})
    if (core::present(t.tensor) && t.strides.column != 1 && p.hidden > 1) return true;
  return false;
}

// Of all tensors of rows.
int64_t bytes_of_row(const brim_rms_norm_args& a, const RmsNormProblem& p) {
  int64_t size = 0;
  for (const TensorView* t : {&a.x, &a.residual, &a.sum, &a.y, &a.dy, &a.dsum, &a.dx, &a.dresidual})
    size += core::element_size(t->dtype);
  return p.hidden * size;
}

// Bodies take these types in Order::paired, but for rows with heads; sums in it always.
bool may_pair(const RmsNormProblem& p) { return p.dtype == BRIM_BFLOAT16 && p.sum_dtype == BRIM_BFLOAT16; }

}  // namespace

const RmsNormBodies& rms_norm_bodies(Isa isa) { return kBodies[static_cast<int>(isa)]; }

RmsNormPlan make_rms_norm_plan(const brim_rms_norm_args& a, const RmsNormProblem& p, int64_t width,
                               int64_t cache_bytes) {
  const int64_t row_bytes = bytes_of_row(a, p);
  RmsNormPlan plan{};
  RmsNormCall& call = plan.call;
  call.problem = p;
  call.args = &a;
  call.strided = is_strided(p, a);
  if (p.rows * row_bytes > cache_bytes && !call.strided) call.writing = choose_writing(p, a);
  const int64_t ahead = p.hidden * core::element_size(p.dtype);
  call.rows_ahead = ahead == 0 || ahead > kRowAhead ? 0 : ceil_div(fetch_ahead_bytes(), ahead);

  call.rows_together = p.backward && ahead <= kRowTogether;
  if (call.rows_together) call.rows_ahead = std::max(call.rows_ahead, kMostTogether);

  plan.units = p.rows;
  int64_t unit_bytes = row_bytes;
  if (p.backward && p.rows > 0) {
    const int64_t few = std::min(ceil_div(p.rows, kFewRows), kFewBlocks);
    call.rows_per_block = ceil_div(p.rows, std::clamp(p.rows / kRowsPerBlock, few, kMostBlocks));
    plan.units = call.blocks = ceil_div(p.rows, call.rows_per_block);
    unit_bytes *= call.rows_per_block;
  }
  plan.grain = ceil_div(kBytesPerThread, std::max<int64_t>(unit_bytes, 1));
  plan.threads = std::min(width, ceil_div(plan.units, plan.grain));
  if (p.wants_dweight) {
    const int64_t size = p.dtype == BRIM_FLOAT64 ? 8 : 4;
    call.pitch = ceil_div(p.hidden, kCacheLine / size) * (kCacheLine / size);
    call.paired_partials = may_pair(p) && call.writing != RowWriting::heads;
    if (p.has_dy) plan.workspace_bytes = call.blocks * call.pitch * size;
    plan.column_groups = ceil_div(p.hidden, kRmsNormColumns);
    plan.column_grain = ceil_div(kBytesPerThread, std::max<int64_t>(call.blocks, 1) * kRmsNormColumns * size);
  }
  return plan;
}

namespace {

template <bool kAdd, bool kBackward>
constexpr const char* kOp = kAdd ? (kBackward ? "add_rms_norm_backward" : "add_rms_norm_forward")
                                 : (kBackward ? "rms_norm_backward" : "rms_norm_forward");

template <bool kAdd, bool kBackward>
RmsNormPlan plan_here(const brim_rms_norm_args& a) {
  return make_rms_norm_plan(a, ops::make_rms_norm_problem(a, kAdd, kBackward), core::parallel_width(),
                            cache_share_bytes());
}

template <bool kAdd, bool kBackward>
Status run(const brim_rms_norm_args& a) {
  const char* const op = kOp<kAdd, kBackward>;
  Isa isa;
  BRIM_TRY(choose_isa(op, a.run.path, &isa));
  const RmsNormBodies& bodies = rms_norm_bodies(isa);
  RmsNormPlan plan = plan_here<kAdd, kBackward>(a);
  RmsNormCall& call = plan.call;
  if (plan.workspace_bytes > 0) {
    const auto needed = static_cast<uint64_t>(plan.workspace_bytes),
               given = a.workspace ? a.workspace_bytes : 0;
    if (given < needed)
      return core::failure(BRIM_INVALID_ARGUMENT, "%s: workspace has %llu bytes, needed are %llu", op,
                           static_cast<unsigned long long>(given), static_cast<unsigned long long>(needed));
    if (reinterpret_cast<uintptr_t>(a.workspace) % 16 != 0)
      return core::failure(BRIM_INVALID_ARGUMENT, "%s: workspace is not aligned to 16 bytes", op);
    call.partials = a.workspace;
  }
  std::unique_ptr<double[]> factors, paired_factors;
  if (plan.units > 0 && (!kBackward || call.problem.has_dy)) {
    const auto make = [&] {
      return std::make_unique_for_overwrite<double[]>(static_cast<size_t>(call.problem.hidden));
    };
    const bool pair = may_pair(call.problem), heads = call.writing == RowWriting::heads;
    if (!pair || heads) factors = make();
    if (pair && (kBackward || !heads)) paired_factors = make();
    call.factors = factors.get();
    call.paired_factors = paired_factors.get();
    bodies.factors(call);
  }
  core::parallel_for(plan.units, plan.grain, [&](int64_t begin, int64_t end) {
    (kBackward ? bodies.backward : bodies.forward)(call, begin, end);
  });
  core::parallel_for(plan.column_groups, plan.column_grain,
                     [&](int64_t begin, int64_t end) { bodies.dweight(call, begin, end); });
  return core::success();
}

template <bool kAdd, bool kBackward>
Status describe(const brim_rms_norm_args& a, const core::DeviceProps*, char* text, size_t size) {
  Isa isa;
  BRIM_TRY(choose_isa(kOp<kAdd, kBackward>, a.run.path, &isa));
  const RmsNormPlan plan = plan_here<kAdd, kBackward>(a);
  const int at =
      std::snprintf(text, size, "%s threads=%lld stores=%s", isa_name(isa),
                    static_cast<long long>(plan.threads), kWritingNames[static_cast<int>(plan.call.writing)]);
  if (kBackward && at > 0 && static_cast<size_t>(at) < size)
    std::snprintf(text + at, size - static_cast<size_t>(at), " blocks=%lld rows=%lld",
                  static_cast<long long>(plan.call.blocks), static_cast<long long>(plan.call.rows_per_block));
  return core::success();
}

template <bool kAdd>
Status workspace(const void* args, size_t* bytes) {
  *bytes = static_cast<size_t>(
      plan_here<kAdd, true>(*static_cast<const brim_rms_norm_args*>(args)).workspace_bytes);
  return core::success();
}

template <bool kAdd, bool kBackward>
constexpr core::Slot slot() {
  core::Slot s = core::slot<brim_rms_norm_args, run<kAdd, kBackward>, describe<kAdd, kBackward>>();
  if (kBackward) s.workspace = workspace<kAdd>;
  return s;
}

}  // namespace

constinit const core::Slot rms_norm_forward = slot<false, false>();
constinit const core::Slot rms_norm_backward = slot<false, true>();
constinit const core::Slot add_rms_norm_forward = slot<true, false>();
constinit const core::Slot add_rms_norm_backward = slot<true, true>();

}  // namespace brim::cpu

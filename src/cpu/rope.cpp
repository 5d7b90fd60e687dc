#include "cpu/rope.h"

#include <algorithm>

#include "core/parallel.h"
#include "cpu/backend.h"
#include "cpu/cache.h"
#include "cpu/isa.h"

namespace brim::cpu {
namespace {

using ops::PairOrder;
using ops::RopeProblem;
using ops::RopeStrides;

constexpr void (*kBodies[])(const RopeCall&, int64_t, int64_t) = {
#define BRIM_ISA(id, name) id::rope_units,
#include "cpu/isas.inc"
#undef BRIM_ISA
};

// A thread is started for this much reading and writing at least: about what a core moves while another wakes up.
constexpr int64_t kBytesPerThread = 64 << 10;
// Units per thread, so that none waits long for the last.
constexpr int64_t kUnitsPerThread = 4;
constexpr int64_t kCacheLine = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Every run of elements that one loop of a body writes starts and ends on a cache line.
bool whole_lines(const RopeProblem& p, const RopePart& part) {
  const uint64_t size = core::element_size(part.dtype);
  const int64_t run = p.out_order == ops::PairOrder::half ? p.rotary_dim / 2 : p.rotary_dim;
  const RopeStrides& s = part.to;
  uint64_t bits = reinterpret_cast<uintptr_t>(part.out);
  for (int64_t elements : {s.batch, s.seq, s.head, run, p.head_dim - p.rotary_dim})
    bits |= static_cast<uint64_t>(elements) * size;
  return bits % kCacheLine == 0 && part.from.dim <= 1 && s.dim <= 1;
}

RopePart make_part(const RopeProblem& p, const TensorView& in, const TensorView& out, const RopeStrides& from,
                   const RopeStrides& to, int64_t heads, bool beyond_caches) {
  RopePart part{in.data, out.data, in.dtype, from, to, heads, core::same_view(in, out), false, false};
  part.stream = beyond_caches && !part.in_place && whole_lines(p, part);
  const RopeStrides& order = from.head && from.seq ? from : to;  // an expanded input has no order of its own
  part.head_major = order.head > order.seq;
  return part;
}

struct Plan {
  RopeCall call;
  int64_t units, grain, threads;
};

Plan make_plan(const brim_rope_args& a, const RopeProblem& p) {
  const int64_t rows = p.batch * p.seq, heads = p.q_heads + p.k_heads;
  const int64_t bytes = 2 * rows * p.head_dim *
                        (p.q_heads * core::element_size(p.dtype) + p.k_heads * core::element_size(p.k_dtype));
  const bool beyond_caches = bytes > last_level_cache_bytes();
  Plan plan{};
  RopeCall& call = plan.call;
  call.problem = p;
  call.cos = a.cos.data;
  call.sin = a.sin.data;
  call.positions = a.positions.data;
  call.parts[0] = make_part(p, a.q, a.q_out, p.q, p.q_out, p.q_heads, beyond_caches);
  if (p.k_heads) call.parts[1] = make_part(p, a.k, a.k_out, p.k, p.k_out, p.k_heads, beyond_caches);
  if (bytes == 0) return plan;

  // Interleaved 32- and 64-bit elements want every column twice (Form::doubled in rope_isa.cpp).
  const bool doubled = p.in_order == PairOrder::interleaved && p.out_order == PairOrder::interleaved;
  const int64_t column_bytes = (p.dtype == BRIM_FLOAT64 ? 8 : 4) * (doubled ? 2 : 1);
  call.columns = std::min(p.rotary_dim / 2, kRopeTableBytes / column_bytes);
  call.pitch = std::max<int64_t>(ceil_div(call.columns, kCacheLine / 4), 1) * (kCacheLine / 4);

  // As many tokens as the tables hold, fewer when that leaves threads without work; then fewer heads.
  const int64_t width = core::parallel_width();
  const int64_t wanted = std::min(ceil_div(bytes, kBytesPerThread), width > 1 ? kUnitsPerThread * width : 1);
  call.tokens_per_unit = std::min(p.seq, kRopeTableBytes / (call.pitch * column_bytes));
  if (p.batch * ceil_div(p.seq, call.tokens_per_unit) < wanted)
    call.tokens_per_unit = std::clamp<int64_t>(rows / wanted, 1, call.tokens_per_unit);
  call.token_blocks = ceil_div(p.seq, call.tokens_per_unit);
  const int64_t head_blocks = std::min(heads, ceil_div(wanted, p.batch * call.token_blocks));
  call.heads_per_unit = ceil_div(heads, head_blocks);
  call.head_blocks = ceil_div(heads, call.heads_per_unit);

  plan.units = p.batch * call.token_blocks * call.head_blocks;
  plan.grain = ceil_div(kBytesPerThread, ceil_div(bytes, plan.units));
  plan.threads = std::min(width, ceil_div(plan.units, plan.grain));
  return plan;
}

Status run(const brim_rope_args& a) {
  Isa isa;
  BRIM_TRY(choose_isa("rope", a.run.path, &isa));
  const RopeProblem p = ops::make_rope_problem(a);
  BRIM_TRY(ops::check_rope_positions(a, p));
  const Plan plan = make_plan(a, p);
  const auto body = kBodies[static_cast<int>(isa)];
  core::parallel_for(plan.units, plan.grain, [&](int64_t begin, int64_t end) { body(plan.call, begin, end); });
  return core::success();
}

Status run_transposed(const brim_rope_args& a) { return run(ops::transposed(a)); }

Status describe(const brim_rope_args& a, const core::DeviceProps*, char* text, size_t size) {
  Isa isa;
  BRIM_TRY(choose_isa("rope", a.run.path, &isa));
  const Plan plan = make_plan(a, ops::make_rope_problem(a));
  const RopeCall& call = plan.call;
  std::snprintf(text, size, "%s threads=%lld units=%lld tokens=%lld heads=%lld stores=%s", isa_name(isa),
                static_cast<long long>(plan.threads), static_cast<long long>(plan.units),
                static_cast<long long>(call.tokens_per_unit), static_cast<long long>(call.heads_per_unit),
                call.parts[0].stream ? "stream" : "plain");
  return core::success();
}

}  // namespace

constinit const core::Slot rope_forward = core::slot<brim_rope_args, run, describe>();
constinit const core::Slot rope_backward = core::slot<brim_rope_args, run_transposed, describe>();

}  // namespace brim::cpu

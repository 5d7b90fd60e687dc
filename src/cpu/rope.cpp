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

constexpr RopeBody kBodies[] = {
#define BRIM_ISA(id, name) id::rope_units,
#include "cpu/isas.inc"
#undef BRIM_ISA
};

// A thread is started for this much reading and writing at least: about what a core moves while another wakes
// up.
constexpr int64_t kBytesPerThread = 64 << 10;
// Units per thread, so that none waits long for the last.
constexpr int64_t kUnitsPerThread = 4;
constexpr int64_t kCacheLine = 64;
// Heads that adjoin are staged if together they have this many bytes, so that most of their lines are whole.
constexpr int64_t kStagedRun = 512;
// Of as many heads as this makes: more and longer bursts of streamed lines were slower on Zen 4.
constexpr int64_t kBytesPerStage = 512;
constexpr const char* kWritingNames[] = {"plain", "stream", "stage"};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Every head starts and ends on a cache line, and so does a part of it of n elements.
bool whole_lines(const RopeProblem& p, const RopePart& part, int64_t n) {
  const uint64_t size = core::element_size(part.dtype);
  const RopeStrides& s = part.to;
  uint64_t bits = reinterpret_cast<uintptr_t>(part.out);
  for (int64_t elements : {s.batch, s.seq, s.head, p.head_dim, n})
    bits |= static_cast<uint64_t>(elements) * size;
  return bits % kCacheLine == 0;
}

// Of outputs larger than the caches.
Writing choose_writing(const RopeProblem& p, const RopePart& part, int64_t adjoining_bytes) {
  if (part.in_place || part.from.dim != 1 || part.to.dim != 1) return Writing::plain;
  const int64_t size = core::element_size(part.dtype);
  const bool halves = p.out_order == PairOrder::half;
  // Highway does not stream vectors that it interleaves, which 32- and 64-bit elements are.
  const bool vectors = halves || p.in_order == PairOrder::interleaved || size == 2;
  const int64_t run = halves ? p.rotary_dim / 2 : p.rotary_dim;
  if (run > 0 && vectors && whole_lines(p, part, run)) return Writing::stream;
  const bool mostly_whole = adjoining_bytes >= kStagedRun || whole_lines(p, part, 0);
  return mostly_whole && p.head_dim * size <= kRopeStageBytes ? Writing::stage : Writing::plain;
}

RopePart make_part(const RopeProblem& p, const TensorView& in, const TensorView& out, const RopeStrides& from,
                   const RopeStrides& to, int64_t heads, bool beyond_caches) {
  RopePart part{in.data,        out.data, in.dtype, from, to, heads, core::same_view(in, out),
                Writing::plain, false,    1};
  const RopeStrides& order = from.head && from.seq ? from : to;  // an expanded input has no order of its own
  part.head_major = heads == 1 || order.head > order.seq;

  const bool adjoin = (part.head_major ? to.seq : to.head) == p.head_dim;
  const int64_t head_bytes = p.head_dim * core::element_size(part.dtype);
  const int64_t adjoining_bytes = adjoin ? head_bytes * (part.head_major ? p.seq : heads) : 0;
  if (beyond_caches) part.writing = choose_writing(p, part, adjoining_bytes);
  if (adjoin) part.heads_per_stage = std::max<int64_t>(kBytesPerStage / std::max<int64_t>(head_bytes, 1), 1);
  return part;
}

// k's heads follow q's, as in a packed qkv buffer: then they are q's last heads, and a token's row is one run
// of memory.
bool continues(const RopePart& k, const RopePart& q) {
  const int64_t size = core::element_size(q.dtype);
  const auto follows = [&](const void* after, const void* first, const RopeStrides& a, const RopeStrides& b) {
    return a.batch == b.batch && a.seq == b.seq && a.head == b.head && a.dim == b.dim &&
           reinterpret_cast<uintptr_t>(after) == reinterpret_cast<uintptr_t>(first) + b.head * q.heads * size;
  };
  return k.dtype == q.dtype && k.in_place == q.in_place && k.writing == q.writing &&
         follows(k.in, q.in, k.from, q.from) && follows(k.out, q.out, k.to, q.to);
}

}  // namespace

RopeBody rope_body(Isa isa) { return kBodies[static_cast<int>(isa)]; }

RopePlan make_rope_plan(const brim_rope_args& a, const RopeProblem& p, int64_t width, int64_t cache_bytes) {
  const int64_t rows = p.batch * p.seq, heads = p.q_heads + p.k_heads;
  const int64_t bytes = 2 * rows * p.head_dim *
                        (p.q_heads * core::element_size(p.dtype) + p.k_heads * core::element_size(p.k_dtype));
  const bool beyond_caches = bytes > cache_bytes;
  RopePlan plan{};
  RopeCall& call = plan.call;
  call.problem = p;
  call.cos = a.cos.data;
  call.sin = a.sin.data;
  call.positions = a.positions.data;
  call.fetch_ahead = fetch_ahead_bytes();
  call.parts[0] = make_part(p, a.q, a.q_out, p.q, p.q_out, p.q_heads, beyond_caches);
  if (p.k_heads) call.parts[1] = make_part(p, a.k, a.k_out, p.k, p.k_out, p.k_heads, beyond_caches);
  if (bytes == 0) return plan;
  RopePart &q = call.parts[0], &k = call.parts[1];
  if (k.heads && continues(k, q)) {
    q.heads += k.heads;
    k.heads = 0;
  }

  // Interleaved 32- and 64-bit elements want every column twice (Form::doubled in rope_isa.cpp).
  const bool doubled = p.in_order == PairOrder::interleaved && p.out_order == PairOrder::interleaved;
  const int64_t column_bytes = (p.dtype == BRIM_FLOAT64 ? 8 : 4) * (doubled ? 2 : 1);
  call.columns = std::min(p.rotary_dim / 2, kRopeTableBytes / column_bytes);
  call.pitch = std::max<int64_t>(ceil_div(call.columns, kRopeColumnBlock), 1) * kRopeColumnBlock;

  // As many tokens as the tables hold, fewer when that leaves threads without work; then fewer heads.
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

namespace {

RopePlan plan_here(const brim_rope_args& a, const RopeProblem& p) {
  return make_rope_plan(a, p, core::parallel_width(), cache_share_bytes());
}

Status run(const brim_rope_args& a) {
  Isa isa;
  BRIM_TRY(choose_isa("rope", a.run.path, &isa));
  const RopeProblem p = ops::make_rope_problem(a);
  BRIM_TRY(ops::check_rope_positions(a, p));
  const RopePlan plan = plan_here(a, p);
  const RopeBody body = rope_body(isa);
  core::parallel_for(plan.units, plan.grain,
                     [&](int64_t begin, int64_t end) { body(plan.call, begin, end); });
  return core::success();
}

Status run_transposed(const brim_rope_args& a) { return run(ops::transposed(a)); }

Status describe(const brim_rope_args& a, const core::DeviceProps*, char* text, size_t size) {
  Isa isa;
  BRIM_TRY(choose_isa("rope", a.run.path, &isa));
  const RopePlan plan = plan_here(a, ops::make_rope_problem(a));
  const RopeCall& call = plan.call;
  std::snprintf(text, size, "%s threads=%lld units=%lld tokens=%lld heads=%lld stores=%s", isa_name(isa),
                static_cast<long long>(plan.threads), static_cast<long long>(plan.units),
                static_cast<long long>(call.tokens_per_unit), static_cast<long long>(call.heads_per_unit),
                kWritingNames[static_cast<int>(call.parts[0].writing)]);
  return core::success();
}

}  // namespace

constinit const core::Slot rope_forward = core::slot<brim_rope_args, run, describe>();
constinit const core::Slot rope_backward = core::slot<brim_rope_args, run_transposed, describe>();

}  // namespace brim::cpu

// RoPE's launch policy on a GPU: a pure function of the problem and the device, and the closed list of
// kernels it picks from.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/device_props.h"
#include "cuda/rope_index.h"

namespace brim::cuda {

// The thresholds. Every CTA has at most `threads` threads and every kernel at most 64 registers, so that four
// CTAs (1024 threads) fit on an SM of any chip.
struct RopeTuning {
  int threads = 256;
  // Heads of one tile per thread. Each costs 4 vector accesses, and cos and sin are read once for all of
  // them; beyond 32 a tile is so long that the last ones leave SMs idle.
  int max_head_passes = 32;
  // tokens_first: bytes of one head that a CTA touches in one run. Below 2 KiB DRAM pages are left half used.
  int run_bytes = 2048;
  // tokens_first: passes over a thread's heads, so that reading cos and sin is spread over several of them.
  int head_passes = 8;
};
inline constexpr int kRopeThreads = 256;  // most threads of a CTA
inline constexpr int kRopeCtasPerSm = 3;  // and CTAs of that size per SM: no more than 64 registers a thread
inline constexpr int64_t kMaxBlocks = 2147483647;  // of gridDim.x

// Heads whose loads a thread issues before it uses the first: with 1024 threads on an SM, 16-byte vectors
// keep 64 KiB in flight and 4-byte ones 32 KiB. More heads of wide vectors do not fit in 64 registers.
constexpr int rope_unroll(int vector_bytes) { return vector_bytes >= 16 ? 2 : 4; }

// Every kernel that is built: type x vector x pair orders.
inline constexpr auto kRopeVariants = [] {
  std::array<RopeVariant, 44> list{};
  size_t n = 0;
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16})
    for (int bytes = 16; bytes >= core::element_size(dtype); bytes /= 2)
      for (PairOrder in : {PairOrder::half, PairOrder::interleaved})
        for (PairOrder out : {PairOrder::half, PairOrder::interleaved}) list[n++] = {dtype, bytes, in, out};
  return list;
}();

constexpr int rope_variant_index(const RopeVariant& variant) {
  for (size_t i = 0; i < kRopeVariants.size(); ++i)
    if (kRopeVariants[i] == variant) return static_cast<int>(i);
  return -1;
}

// One launch for q and k together, or one for each where their types differ; none where there is nothing to
// do.
struct RopePlan {
  int launches;
  RopeLaunch launch[2];

  bool operator==(const RopePlan&) const = default;
};

namespace rope_plan_detail {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The part of a problem that one launch covers.
struct Part {
  brim_dtype dtype;
  int64_t q_heads, k_heads;
  bool has_q, has_k;
};

constexpr bool dense(const ops::RopeProblem& p, const Part& part) {
  if (p.head_dim == 1) return true;
  if (part.has_q && (p.q.dim != 1 || p.q_out.dim != 1)) return false;
  return !part.has_k || (p.k.dim == 1 && p.k_out.dim == 1);
}

// The widest vector that divides every address, a half of the rotary part and the part that is copied.
constexpr int vector_bytes(const ops::RopeProblem& p, const Part& part) {
  const int element = core::element_size(part.dtype);
  if (!dense(p, part)) return element;
  const int64_t copied = p.in_place ? 0 : p.head_dim - p.rotary_dim;
  int bytes = std::max(p.alignment, element);
  while (bytes > element && (p.rotary_dim / 2 * element % bytes || copied * element % bytes)) bytes /= 2;
  return bytes;
}

// Heads that lie further apart than tokens (contiguous b,h,s,d): lanes then go across tokens, else across
// heads. Judged by where most of the bytes are written, since an input may be expanded.
constexpr bool tokens_are_neighbours(const ops::RopeProblem& p, const Part& part) {
  const bool by_q = part.has_q && (!part.has_k || part.q_heads >= part.k_heads);
  const int64_t heads = by_q ? part.q_heads : part.k_heads;
  const ops::RopeStrides& s = by_q ? p.q_out : p.k_out;
  const int64_t token = p.seq > 1 ? s.seq : s.batch;
  return heads == 1 || token < s.head;
}

constexpr bool vector_tables(const ops::RopeProblem& p, const RopeVariant& v) {
  if (p.has_sections || p.cos.column > 1 || p.sin.column > 1) return false;
  const int n = v.vector_bytes / core::element_size(v.dtype);
  const int columns = rope_split_column(v.in, v.out, n) ? n / 2 : n;
  return p.table_alignment >= std::min(columns * core::element_size(p.table_dtype), 16);
}

// `threads` threads are shared out: columns first, then lanes; passes are balanced so that few lanes idle in
// the last one.
constexpr void share_threads(RopeLaunch& l, int threads, const RopeTuning& tuning) {
  l.column_tiles = ceil_div(l.columns, threads);
  l.columns_per_tile = static_cast<int>(ceil_div(l.columns, l.column_tiles));
  const int64_t lanes = threads / l.columns_per_tile, unroll = rope_unroll(l.variant.vector_bytes);
  int64_t most_passes = tuning.max_head_passes, head_lanes = lanes;
  if (l.tokens_first) {
    const int64_t row = l.columns_per_tile * 2ll * l.variant.vector_bytes;
    const int64_t run = std::min({ceil_div(tuning.run_bytes, row), lanes, l.tokens});
    head_lanes = std::min<int64_t>(lanes / run, 64);  // threadIdx.z
    most_passes = tuning.head_passes;
  }
  const auto passes_for = [&](int64_t heads) {
    return ceil_div(ceil_div(heads, head_lanes), unroll) * unroll;
  };
  l.head_tiles = ceil_div(passes_for(l.heads), std::max(most_passes, unroll));
  const int64_t heads = ceil_div(l.heads, l.head_tiles);
  l.head_tiles = ceil_div(l.heads, heads);
  l.heads_per_tile = static_cast<int>(heads);
  l.head_lanes = static_cast<int>(ceil_div(heads, passes_for(heads)));
  l.token_lanes = static_cast<int>(std::min<int64_t>(lanes / l.head_lanes, l.tokens));
  if (!l.tokens_first) l.token_lanes = std::min(l.token_lanes, 64);  // threadIdx.z
  l.token_tiles = ceil_div(l.tokens, l.token_lanes);
}

constexpr RopeLaunch plan_launch(const ops::RopeProblem& p, const Part& part, const core::DeviceProps& device,
                                 const RopeTuning& tuning) {
  RopeLaunch l{};
  l.variant = {part.dtype, vector_bytes(p, part), p.in_order, p.out_order};
  l.tokens = p.batch * p.seq;
  l.seq = p.seq;
  l.q_heads = part.q_heads;
  l.heads = part.q_heads + part.k_heads;
  l.head_dim = p.head_dim;
  l.rotary_dim = p.rotary_dim;
  const int64_t n = l.variant.vector_bytes / core::element_size(part.dtype);
  l.pair_columns = p.rotary_dim / 2 / n;
  l.columns = l.pair_columns + (p.in_place ? 0 : ceil_div((p.head_dim - p.rotary_dim) / n, 2));
  if (l.columns == 0) return l;
  l.tokens_first = tokens_are_neighbours(p, part);
  l.vector_tables = vector_tables(p, l.variant);
  const int64_t bytes = l.tokens * l.heads * p.head_dim * core::element_size(part.dtype);
  l.streaming = bytes > device.l2_bytes / 2;
  // Few tokens: smaller CTAs reach more SMs.
  for (int threads = tuning.threads;; threads /= 2) {
    share_threads(l, threads, tuning);
    if (threads <= 64 || rope_blocks(l) >= device.sm_count) return l;
  }
}

}  // namespace rope_plan_detail

constexpr RopePlan plan_rope(const ops::RopeProblem& p, const core::DeviceProps& device,
                             const RopeTuning& tuning = {}) {
  using namespace rope_plan_detail;
  RopePlan plan{};
  if (p.batch * p.seq == 0 || p.q_heads + p.k_heads == 0) return plan;
  const auto add = [&](const Part& part) {
    const RopeLaunch l = plan_launch(p, part, device, tuning);
    if (l.columns) plan.launch[plan.launches++] = l;
  };
  const bool has_q = p.q_heads > 0, has_k = p.k_heads > 0;
  if (has_q && has_k && p.dtype != p.k_dtype) {
    add({p.dtype, p.q_heads, 0, true, false});
    add({p.k_dtype, 0, p.k_heads, false, true});
  } else {
    add({has_q ? p.dtype : p.k_dtype, p.q_heads, p.k_heads, has_q, has_k});
  }
  return plan;
}

// "plain vec=16 unroll=2 ..."; a launch of its own for k follows with "k.vec=..." and so on.
inline void print(const RopePlan& plan, char* text, size_t size) {
  size_t at =
      std::min<size_t>(std::snprintf(text, size, "plain%s", plan.launches ? "" : " launches=0"), size);
  for (int i = 0; i < plan.launches; ++i) {
    const RopeLaunch& l = plan.launch[i];
    const char* of = i ? "k." : "";
    const int wrote = std::snprintf(
        text + at, size - at,
        " %svec=%d %sunroll=%d %sthreads=%dx%dx%d %sorder=%s %sheads=%d %stokens=%d %sgrid=%lld "
        "%stables=%s%s",
        of, l.variant.vector_bytes, of, rope_unroll(l.variant.vector_bytes), of, l.columns_per_tile,
        l.tokens_first ? l.token_lanes : l.head_lanes, l.tokens_first ? l.head_lanes : l.token_lanes, of,
        l.tokens_first ? "column,token,head" : "column,head,token", of, l.heads_per_tile, of, l.token_lanes,
        of, static_cast<long long>(rope_blocks(l)), of, l.vector_tables ? "vector" : "scalar",
        l.streaming ? " streaming" : "");
    at = std::min(at + wrote, size);
  }
}

}  // namespace brim::cuda

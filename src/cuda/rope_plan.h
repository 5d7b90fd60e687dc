// RoPE's launch policy on a GPU: a pure function of the problem and the device, and the closed list of
// kernels it picks from.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/device_props.h"
#include "cuda/rope_index.h"

namespace brim::cuda {

// The thresholds, each the best of those tried on an H200 at d = 56..256, bf16 and float32, in both storage
// orders; fractions are of a plain copy of the same bytes in the same run, 2026-11-29.
inline constexpr int kRopeThreads = 256;  // most threads of a CTA
// Threads of a CTA whose lanes go across tokens: smaller CTAs, so that more of them start and end apart
// (8192 x (32+8) x 128 bf16: 0.94 with 192, 0.84 with 384).
inline constexpr int kRopeThreadsAcrossTokens = 192;
// Heads that a thread goes through with one reading of cos and sin. With 2 instead of 8, 8192 x (32+8) x 128
// bf16 falls from 0.91 to 0.75.
inline constexpr int kRopeHeadPasses = 8;
// And at most, before its heads are split over several tiles. Lanes across tokens: longer tiles are too few
// to keep all SMs busy to the end (8192 x (32+32) x 80 bf16: 0.87 with 16, 0.77 with 64); with 8, d = 92
// falls from 0.82 to 0.80.
inline constexpr int kRopeMostHeadPasses = 64;
inline constexpr int kRopeMostHeadPassesAcrossTokens = 16;
// Lanes across tokens: bytes of one head that a CTA goes through in one run, so that DRAM pages are used
// whole.
inline constexpr int kRopeRunBytes = 4096;
inline constexpr int64_t kMaxBlocks = 2147483647;  // of gridDim.x

// Heads whose loads a thread issues before it uses the first: 64 bytes in flight a thread with 16-byte
// vectors, 32 with 4-byte ones. More of them need more registers than they hide latency (d = 92 bf16, 4-byte
// vectors: 0.80 with 4, 0.74 with 8).
constexpr int rope_unroll(int vector_bytes) { return vector_bytes >= 16 ? 2 : 4; }

// CTAs of kRopeThreads per SM that registers must leave room for: 80 registers a thread for 16-byte vectors, 64 for others.
// From sm_100 on the 8-byte kernels need up to 74.
constexpr int rope_ctas_per_sm(int vector_bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  return vector_bytes >= 8 ? 3 : 4;
#else
  return vector_bytes >= 16 ? 3 : 4;
#endif
}

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

// The widest vector that divides every address, a half of the rotary part and the part that is copied. The
// kernels step from one vector of a column to the other in 32 bits: longer heads go by elements.
constexpr int vector_bytes(const ops::RopeProblem& p, const Part& part) {
  const int element = core::element_size(part.dtype);
  if (!dense(p, part) || p.head_dim > INT32_MAX / element) return element;
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
  const bool one_run = p.rotary_dim <= 2 || (p.cos.column == 1 && p.sin.column == 1);  // 0: expanded columns
  if (p.has_sections || !one_run) return false;
  const int n = v.vector_bytes / core::element_size(v.dtype);
  const int columns = rope_split_column(v.in, v.out, n) ? n / 2 : n;
  return p.table_alignment >= std::min(columns * core::element_size(p.table_dtype), 16);
}

// `threads` threads are shared out: columns first, then lanes across heads and tokens; passes over heads are
// balanced so that few lanes idle in the last one.
constexpr void share_threads(RopeLaunch& l, int threads, int most_passes) {
  l.column_tiles = ceil_div(l.columns, threads);
  l.columns_per_tile = static_cast<int>(ceil_div(l.columns, l.column_tiles));
  const int64_t lanes = threads / l.columns_per_tile, unroll = rope_unroll(l.variant.vector_bytes);
  const auto passes = [&](int64_t heads, int64_t head_lanes) {
    return ceil_div(ceil_div(heads, head_lanes), unroll) * unroll;
  };

  const int64_t wanted_passes = l.tokens_first ? most_passes : std::min(kRopeHeadPasses, most_passes);
  int64_t most_head_lanes = lanes;
  if (l.tokens_first) {
    const int64_t row = l.columns_per_tile * 2ll * l.variant.vector_bytes;
    const int64_t run = std::min({ceil_div(kRopeRunBytes, row), lanes, l.tokens});
    most_head_lanes = std::min<int64_t>(lanes / run, kMostThreadsZ);
  }
  const int64_t head_lanes = std::clamp<int64_t>(ceil_div(l.heads, wanted_passes), 1, most_head_lanes);
  l.head_tiles = ceil_div(passes(l.heads, head_lanes), most_passes);
  l.heads_per_tile = static_cast<int>(ceil_div(l.heads, l.head_tiles));
  l.head_tiles = ceil_div(l.heads, l.heads_per_tile);
  l.head_lanes = static_cast<int>(ceil_div(l.heads_per_tile, passes(l.heads_per_tile, head_lanes)));

  l.token_lanes = static_cast<int>(std::min<int64_t>(lanes / l.head_lanes, l.tokens));
  if (l.tokens_first) {
    // Runs that are whole 128-byte lines leave no line to two CTAs.
    const int64_t row = l.head_dim * core::element_size(l.variant.dtype);
    const int granule = static_cast<int>(128 / std::min<int64_t>(128, row & -row));
    if (l.token_lanes > granule) l.token_lanes = l.token_lanes / granule * granule;
  } else {
    l.token_lanes = std::min(l.token_lanes, kMostThreadsZ);
  }
  l.token_tiles = ceil_div(l.tokens, l.token_lanes);
}

constexpr RopeLaunch plan_launch(const ops::RopeProblem& p, const Part& part,
                                 const core::DeviceProps& device) {
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
  // Few tiles: shorter ones, then smaller CTAs, reach more SMs.
  int threads = l.tokens_first ? kRopeThreadsAcrossTokens : kRopeThreads;
  int most_passes = l.tokens_first ? kRopeMostHeadPassesAcrossTokens : kRopeMostHeadPasses;
  while (true) {
    share_threads(l, threads, most_passes);
    if (rope_blocks(l) >= device.sm_count) return l;
    if (most_passes > rope_unroll(l.variant.vector_bytes))
      most_passes /= 2;
    else if (threads > 64)
      threads /= 2;
    else
      return l;
  }
}

}  // namespace rope_plan_detail

constexpr RopePlan plan_rope(const ops::RopeProblem& p, const core::DeviceProps& device) {
  using namespace rope_plan_detail;
  RopePlan plan{};
  if (p.batch * p.seq == 0 || p.q_heads + p.k_heads == 0) return plan;
  const auto add = [&](const Part& part) {
    const RopeLaunch l = plan_launch(p, part, device);
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
        "%stables=%s",
        of, l.variant.vector_bytes, of, rope_unroll(l.variant.vector_bytes), of, l.columns_per_tile,
        l.tokens_first ? l.token_lanes : l.head_lanes, l.tokens_first ? l.head_lanes : l.token_lanes, of,
        l.tokens_first ? "column,token,head" : "column,head,token", of, l.heads_per_tile, of, l.token_lanes,
        of, static_cast<long long>(rope_blocks(l)), of, l.vector_tables ? "vector" : "scalar");
    at = std::min(at + wrote, size);
  }
}

}  // namespace brim::cuda

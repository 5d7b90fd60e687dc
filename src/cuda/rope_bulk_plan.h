// RoPE's bulk form: which problems it serves and how they are cut into tiles (rope_bulk_index.h), a pure
// function of the problem and the device, and the closed list of its kernels.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/device_props.h"
#include "cuda/rope_bulk_index.h"

namespace brim::cuda {

// The thresholds, each the best of those tried on an H200 at d = 56..256, bf16 and float32, 2048..32768
// tokens, llama (32+8) and deepseek (128+128) heads; fractions are of the best plain copy of q's and k's bytes
// in the same run, the mean of out of place and in place, 2026-12-01.
// A token's heads are one tile up to this size, else shared out: 8192 x (32+8) x 96 bf16 (7680 bytes): 0.98
// whole, 0.95 in two; x 128 (10240): 0.96 whole, 0.98 in three.
inline constexpr int kBulkTokenBytes = 8 << 10;
// Shares of a token, and tokens that are joined to one tile, about this large: 8192 x (128+128) x 128 bf16:
// 0.95 with 2 KB, 1.00 with 4 KB, 0.99 with 5 KB, 0.97 with 8 KB; 2048 x (32+8) x 64: 0.92 with one token (5 KB),
// 0.84 with two. Slices of a packed projection in place, (128+128) heads: 0.94 to 0.96 with 3 KB to 6 KB alike, 0.90 to 0.95
// with 2.25 KB; a plain copy in place of such slices is 0.95 to 0.97 of one of contiguous memory.
inline constexpr int kBulkShareBytes = 4608;
// Shares that are whole 128-byte lines: 2048 x (128+128) x 92 bf16: 0.98 with 32 heads, 0.92 with 22.
inline constexpr int kBulkLine = 128;
// Threads of a CTA, about: 8192 x (32+8) bf16: x 56: 0.92 with 64, 0.95 with 96, 0.93 with 128; x 96: 0.95, 0.98,
// 0.99; x 128: 0.98, 0.98, 0.95. Vectors of one or two elements need more turns of a thread: x 92: 0.92, 0.95, 0.97.
inline constexpr int kBulkThreads = 96, kBulkThreadsOfNarrowVectors = 128;
// Few tokens, so that the tiles are on the SMs all at once: larger tokens stay whole too, and threads that work on
// eight elements, and take the most registers, are fewer. 2048 x (32+8) bf16: x 128: 0.96 whole, 0.93 in three;
// x 80: 0.92 with 64 threads, 0.90 with 96.
inline constexpr int kBulkFewTokensPerSm = 16;
inline constexpr int kBulkFewTokenBytes = 10 << 10;
inline constexpr int kBulkFewThreads = 64;
// Tokens of a head adjoin: the run, and the tile of some heads. 2048 x (32+8) x 128 float32: 0.94 with runs of 4 KB, 0.92
// with 2 KB; 8192 x (32+8) x 128 bf16: 0.94 with tiles of 8 KB, 0.92 with 16 KB or 32 KB. Against the plain form: 0.95 and
// 0.92 there, 0.91 and 0.88 at 2048 tokens (bench/results/rope-h200-bhsd*.json), 0.84 and 0.83 if x 64.
inline constexpr int kBulkRunBytes = 4096;
inline constexpr int kBulkHeadsBytes = 8 << 10;
// There, neighbouring runs of the same heads go side by side, for whole DRAM pages, but not all of a
// sequence: cos and sin shall still be in the L2 cache for the next heads.
inline constexpr int kBulkSideShift = 4;
inline constexpr int kBulkMostRuns = 32;  // of a tile: one thread loads them, one after the other
inline constexpr int kBulkMostGridYZ = 65535;
inline constexpr int kBulkMostShared = 48 << 10;  // that every kernel may ask for at its launch

// Every kernel that is built.
struct BulkVariant {
  brim_dtype dtype;
  int vector_bytes;
  PairOrder order;
  bool one_run, edges;
};
inline constexpr auto kBulkVariants = [] {
  std::array<BulkVariant, 60> list{};
  size_t n = 0;
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16})
    for (int bytes : {16, 8, 4})
      for (PairOrder order : {PairOrder::half, PairOrder::interleaved})
        for (bool one_run : {true, false})
          for (bool edges : {false, true})  // vectors of 16 bytes: every head is whole ones
            if (bytes < 16 || !edges) list[n++] = {dtype, bytes, order, one_run, edges};
  return list;
}();

constexpr int bulk_variant_index(const RopeBulk& r) {
  for (size_t i = 0; i < kBulkVariants.size(); ++i) {
    const BulkVariant& v = kBulkVariants[i];
    if (v.dtype == r.dtype && v.vector_bytes == r.vector_bytes && v.order == r.order &&
        v.one_run == r.one_run && v.edges == r.edges)
      return static_cast<int>(i);
  }
  return -1;
}

namespace bulk_detail {

// The fewest heads whose bytes are a multiple of `bytes`, a power of two.
constexpr int64_t heads_in(int64_t bytes, int64_t head_bytes) {
  return bytes / std::min(bytes, head_bytes & -head_bytes);
}

// A tensor's strides while they may still be anything.
struct Strides {
  int64_t heads;
  ops::RopeStrides from, to;
};

constexpr ops::RopeStrides bytes_of(const ops::RopeStrides& s, int64_t size) {
  return {s.batch * size, s.seq * size, s.head * size, s.dim * size};
}

// What decides whether heads of a token, or tokens of a head, adjoin. A stride is 0 where its axis has size
// 1.
constexpr bool heads_adjoin(const Strides& t, int64_t head_bytes) {
  return t.heads == 1 || (t.from.head == head_bytes && t.to.head == head_bytes);
}
constexpr bool tokens_adjoin(const Strides& t, int64_t tokens, int64_t bytes) {
  return tokens == 1 || (t.from.seq == bytes && t.to.seq == bytes);
}
constexpr bool same_place(const Strides& t) {
  return (t.from.batch - t.to.batch) % 16 == 0 && (t.from.seq - t.to.seq) % 16 == 0 &&
         (t.from.head - t.to.head) % 16 == 0;
}
// Tokens that adjoin are no starts of runs; neither are heads that do.
constexpr bool aligned(const ops::RopeStrides& a, bool by_head) {
  return a.batch % 16 == 0 && (by_head ? a.head : a.seq) % 16 == 0;
}
constexpr bool in_32_bits(const Strides& t) {
  for (const ops::RopeStrides* s : {&t.from, &t.to})
    if (s->seq > INT32_MAX || s->head > INT32_MAX || s->seq < INT32_MIN || s->head < INT32_MIN) return false;
  return true;
}
constexpr BulkStrides in_32_bits_of(const ops::RopeStrides& s) {
  return {s.batch, static_cast<int32_t>(s.seq), static_cast<int32_t>(s.head)};
}
constexpr BulkTensor tensor(const Strides& t) {
  return {in_32_bits_of(t.from), in_32_bits_of(t.to), static_cast<int32_t>(t.heads)};
}

}  // namespace bulk_detail

// True and a plan where the bulk form can serve the problem. `plain_vector` is the
// vector that the plain form uses, `vector_tables` what it says of the tables.
constexpr bool plan_rope_bulk(const ops::RopeProblem& p, const core::DeviceProps& device, int plain_vector,
                              bool vector_tables, RopeBulk* bulk) {
  using namespace bulk_detail;
  const int64_t size = core::element_size(p.dtype);
  const bool has_k = p.k_heads > 0;
  if (!vector_tables) return false;  // columns apart, or sections
  if (device.compute_capability < 90 || p.q_heads == 0 || p.base_alignment < 16) return false;
  if (has_k && p.k_dtype != p.dtype) return false;
  // to_half reads where another pair's result goes; in place, elements that are not rotated need not move.
  if (p.in_order != p.out_order || p.rotary_dim == 0 || (p.in_place && p.rotary_dim < p.head_dim))
    return false;
  // Elements side by side: neither apart nor, as the gradient of a sum has them, one for all.
  if (p.q.dim != 1 || p.q_out.dim != 1 || (has_k && (p.k.dim != 1 || p.k_out.dim != 1))) return false;
  // A vector of 2 bytes is all that a run at an odd place allows: slow in shared memory too.
  if (plain_vector < 4) return false;
  constexpr int64_t most_shared = kBulkMostShared - kBulkBarrierBytes;
  const int64_t head_bytes = p.head_dim * size, heads = p.q_heads + p.k_heads;
  if (head_bytes > most_shared - 32 || heads > 1 << 30 || p.batch * p.seq > 1 << 30 ||
      p.table_rows > INT32_MAX)
    return false;

  Strides q{p.q_heads, bytes_of(p.q, size), bytes_of(p.q_out, size)},
      k{p.k_heads, bytes_of(p.k, size), bytes_of(p.k_out, size)};
  const auto all = [&](auto&& holds) { return holds(q) && (!has_k || holds(k)); };
  if (!all(same_place) || !all(in_32_bits)) return false;
  for (int64_t row : {p.cos.row, p.sin.row})
    if (row < 0 || row > INT32_MAX / 4) return false;

  RopeBulk r{};
  r.dtype = p.dtype;
  r.vector_bytes = plain_vector;
  r.order = p.in_order;
  r.head_bytes = static_cast<int32_t>(head_bytes);
  r.rotary_dim = static_cast<int32_t>(p.rotary_dim);
  r.seq = static_cast<int32_t>(p.seq);
  r.by_seq = Divider(static_cast<uint32_t>(p.seq));
  r.by_token = all([&](const Strides& t) { return heads_adjoin(t, head_bytes); });
  // All tokens at one stride: batches are no matter.
  const bool flat = p.batch == 1 || p.seq == 1 || all([&](const Strides& t) {
                      return t.from.batch == t.from.seq * p.seq && t.to.batch == t.to.seq * p.seq;
                    });
  if (flat && p.seq == 1) {  // tokens go along the batch
    for (Strides* t : {&q, &k}) {
      t->from.seq = t->from.batch;
      t->to.seq = t->to.batch;
    }
    if (!all(in_32_bits)) return false;
  }
  r.batches = static_cast<int32_t>(flat ? 1 : p.batch);
  r.tokens = static_cast<int32_t>(flat ? p.batch * p.seq : p.seq);
  if (!r.by_token && !all([&](const Strides& t) { return tokens_adjoin(t, r.tokens, head_bytes); }))
    return false;
  r.q = tensor(q);
  r.k = tensor(k);

  const int64_t columns = p.rotary_dim / 2 * size / plain_vector;
  if (columns > kBulkMostThreads) return false;
  r.pair_columns = static_cast<int32_t>(columns);

  const auto at_most = [](int64_t n, int64_t most) {
    return static_cast<int32_t>(std::clamp<int64_t>(n, 1, most));
  };
  const int64_t row = heads * head_bytes,
                most_tokens = std::min<int64_t>(kBulkMostThreads / columns, r.tokens);
  const bool few = r.by_token && r.tokens <= kBulkFewTokensPerSm * device.sm_count;
  const int64_t elements = plain_vector / size;
  const int64_t threads = elements > 4 && few ? kBulkFewThreads
                          : elements > 2      ? kBulkThreads
                                              : kBulkThreadsOfNarrowVectors;
  if (r.by_token) {
    r.heads_per_tile = static_cast<int32_t>(heads);
    if (row > (few ? kBulkFewTokenBytes : kBulkTokenBytes)) {
      const int64_t share = ceil_div(p.q_heads, ceil_div(p.q_heads * head_bytes, kBulkShareBytes));
      const int64_t line = heads_in(kBulkLine, head_bytes);
      const int64_t unit = line * head_bytes <= kBulkTokenBytes ? line : heads_in(16, head_bytes);
      r.heads_per_tile = static_cast<int32_t>(std::min(ceil_div(share, unit) * unit, heads));
    }
    const bool one = r.heads_per_tile == heads;
    const bool adjoin =
        one && all([&](const Strides& t) { return tokens_adjoin(t, r.tokens, t.heads * head_bytes); });
    const int64_t most =
        adjoin ? most_tokens : std::min<int64_t>(most_tokens, kBulkMostRuns / (has_k ? 2 : 1));
    r.tile_tokens = one ? at_most(kBulkShareBytes / row, most) : 1;
    r.one_run = adjoin || r.tile_tokens == 1;
  } else {
    int64_t tokens = at_most(ceil_div(kBulkRunBytes, head_bytes), most_tokens);
    // Whole warps, nearly.
    tokens = std::max(tokens * columns / 32 * 32 / columns, std::min<int64_t>(tokens, ceil_div(32, columns)));
    const int64_t unit = heads_in(16, head_bytes);
    r.tile_tokens = static_cast<int32_t>(tokens > unit ? tokens / unit * unit : tokens);
    r.heads_per_tile =
        at_most(kBulkHeadsBytes / (r.tile_tokens * head_bytes), std::min<int64_t>(heads, kBulkMostRuns));
  }
  const bool one = r.heads_per_tile >= heads;
  r.first_k_tile = static_cast<int32_t>(one ? 0 : ceil_div(p.q_heads, r.heads_per_tile));
  const int64_t head_tiles = one ? 1 : r.first_k_tile + ceil_div(p.k_heads, r.heads_per_tile);
  // Turns of a thread are balanced; a warp at least, since less costs the SM as much.
  const int64_t lanes_of_head = columns * r.tile_tokens;
  const int64_t turns =
      ceil_div(r.heads_per_tile, std::clamp<int64_t>(threads / lanes_of_head, 1, kMostThreadsZ));
  r.head_lanes =
      static_cast<int32_t>(std::max(ceil_div(r.heads_per_tile, turns), ceil_div(32, lanes_of_head)));
  const int64_t token_tiles = ceil_div(r.tokens, r.tile_tokens);
  while (!r.by_token && r.side_shift < kBulkSideShift && (1 << r.side_shift) < token_tiles) ++r.side_shift;
  const int64_t groups = ceil_div(token_tiles, 1 << r.side_shift);
  const int64_t z = r.batches > 1 ? r.batches : ceil_div(groups, kBulkMostGridYZ);
  const int64_t y = r.batches > 1 ? groups : ceil_div(groups, z);
  if (y > kBulkMostGridYZ || z > kBulkMostGridYZ || head_tiles > INT32_MAX >> r.side_shift) return false;
  r.grid_x = static_cast<int32_t>(head_tiles << r.side_shift);
  r.grid_y = static_cast<int32_t>(y);
  r.grid_z = static_cast<int32_t>(z);

  const bool tile_aligned = one ? all([&](const Strides& t) { return t.heads * head_bytes % 16 == 0; })
                                : r.heads_per_tile * head_bytes % 16 == 0 &&
                                      p.q_heads * head_bytes % 16 == 0 && p.k_heads * head_bytes % 16 == 0;
  const bool runs_aligned =
      r.by_token ? tile_aligned : r.tile_tokens * head_bytes % 16 == 0 && r.tokens * head_bytes % 16 == 0;
  r.edges = !runs_aligned || !all([&](const Strides& t) { return aligned(t.from, !r.by_token); });
  if (r.edges && !r.by_token) return false;
  const BulkTile t =
      bulk_tile(r, 0, 0, 0);  // the first one has most of everything, or else that of k's heads
  int64_t bytes = bulk_part_bytes(r, t, t.q_heads) + bulk_part_bytes(r, t, t.k_heads);
  if (!one && has_k)
    bytes = std::max<int64_t>(bytes, bulk_part_bytes(r, t, at_most(p.k_heads, r.heads_per_tile)));
  if (bytes > most_shared) return false;
  r.tile_bytes = static_cast<int32_t>(bytes);
  *bulk = r;
  return true;
}

// "bulk vec=16 threads=8x1x8 ..."
inline void print(const RopeBulk& r, char* text, size_t size) {
  std::snprintf(text, size,
                "bulk vec=%d threads=%dx%dx%d order=column,token,head tile=%d tokens=%d heads=%d runs=%s%s "
                "grid=%dx%dx%d",
                r.vector_bytes, r.pair_columns, r.tile_tokens, r.head_lanes, r.tile_bytes, r.tile_tokens,
                r.heads_per_tile,
                !r.by_token                      ? "head"
                : r.one_run && r.tile_tokens > 1 ? "tokens"
                                                 : "token",
                r.edges ? ",edges" : "", r.grid_x, r.grid_y, r.grid_z);
}

}  // namespace brim::cuda

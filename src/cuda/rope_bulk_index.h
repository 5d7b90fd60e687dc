// Which heads a CTA of RoPE's bulk kernel works on and where these are, in global and in shared memory: run by
// the kernel and, without a GPU, by the plan sweep.
//
// A CTA rotates one tile of some tokens and heads, which bulk copies bring into shared memory. A tile consists
// of runs: stretches that are contiguous both where they are read and where they are written.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/divider.h"
#include "cuda/rope_index.h"

namespace brim::cuda {

inline constexpr int kBulkMostThreads = 256;
inline constexpr int kBulkBarrierBytes = 128;  // of shared memory, before the tile

// In bytes.
struct BulkStrides {
  int64_t batch;
  int32_t token, head;

  bool operator==(const BulkStrides&) const = default;
};

// q or k.
struct BulkTensor {
  BulkStrides from, to;
  int32_t heads;

  bool operator==(const BulkTensor&) const = default;
};

struct RopeBulk {
  brim_dtype dtype;
  int32_t vector_bytes;
  PairOrder order;
  // A run is heads of a token, or of all the tile's tokens where these adjoin; else tokens of a head.
  bool by_token;
  bool one_run;  // by_token: a tile is one run of q and one of k, of one token or of several that adjoin
  bool edges;    // runs begin or end where no 16 bytes do
  BulkTensor q, k;
  int32_t head_bytes, rotary_dim;
  // A tile is heads_per_tile heads, of q or of k or all of both, of tile_tokens tokens; threads are (column,
  // token, head).
  int32_t pair_columns, tile_tokens, head_lanes, heads_per_tile;
  // Tiles of heads: the first one of k's; 0 where a tile has all heads.
  int32_t first_k_tile;
  // The grid: x is 2^side_shift tiles of neighbouring tokens for the first heads, then for the next heads ..; y
  // goes on to the next tokens; z is the batch, or, with one batch, goes on where y ends. All tokens are one batch
  // where they lie at one stride.
  int32_t side_shift, grid_x, grid_y, grid_z;
  int32_t batches, tokens;
  int32_t seq;  // of the tables: token = batch * seq + place
  Divider by_seq;
  int32_t tile_bytes;

  bool operator==(const RopeBulk&) const = default;
};

constexpr int bulk_threads(const RopeBulk& r) { return r.pair_columns * r.tile_tokens * r.head_lanes; }

struct BulkTile {
  int32_t batch, token, tokens;  // no tokens: beyond the last one
  int32_t q_first, k_first;      // heads of q, and of k
  int32_t q_heads, k_heads;
};

constexpr BulkTile bulk_tile(const RopeBulk& r, int32_t x, int32_t y, int32_t z) {
  BulkTile t{};
  const bool one_batch = r.batches == 1;
  const int32_t head_tile = x >> r.side_shift, beside = x & ((1 << r.side_shift) - 1);
  const int32_t group = y + (one_batch ? z * r.grid_y : 0);
  t.batch = one_batch ? 0 : z;
  t.token = ((group << r.side_shift) + beside) * r.tile_tokens;
  t.tokens = std::min(r.tokens - t.token, r.tile_tokens);
  t.q_first = head_tile * r.heads_per_tile;
  t.q_heads = std::max(std::min(r.q.heads - t.q_first, r.heads_per_tile), 0);
  t.k_first = (head_tile - r.first_k_tile) * r.heads_per_tile;
  t.k_heads = t.k_first < 0 ? 0 : std::min(r.k.heads - t.k_first, r.heads_per_tile);
  return t;
}

// In shared memory: q's runs, then k's, each at a multiple of 16 bytes; with edges, each run 0 to 15 bytes
// after that, as many as it has beyond one in global memory.
constexpr int bulk_run_bytes(const RopeBulk& r, const BulkTile& t, int heads) {
  return r.head_bytes * (r.by_token ? heads : 1) * (r.by_token && !r.one_run ? 1 : t.tokens);
}
constexpr int bulk_run_pitch(const RopeBulk& r, int run_bytes) {
  return (run_bytes + (r.edges ? 30 : 15)) & ~15;
}
// Of one head or more; who asks looks first, which makes a shorter kernel than an answer of 0 here.
constexpr int bulk_runs(const RopeBulk& r, const BulkTile& t, int heads) {
  return !r.by_token ? heads : r.one_run ? 1 : t.tokens;
}
constexpr int bulk_part_bytes(const RopeBulk& r, const BulkTile& t, int heads) {
  return heads == 0 ? 0 : bulk_runs(r, t, heads) * bulk_run_pitch(r, bulk_run_bytes(r, t, heads));
}

// Of a head from the tensor's first element.
constexpr int64_t bulk_offset(const BulkStrides& s, int batch, int token, int head) {
  return static_cast<int64_t>(token) * s.token + static_cast<int64_t>(head) * s.head +
         static_cast<int64_t>(static_cast<uint32_t>(batch)) * s.batch;
}

// In shared memory, from one head to the next of a token.
constexpr int bulk_head_pitch(const RopeBulk& r, const BulkTile& t) {
  return r.by_token ? r.head_bytes : bulk_run_pitch(r, bulk_run_bytes(r, t, 1));
}
// In shared memory, where a token's first head of q stands; of k less the heads of q before it, so that heads
// count on from q to k.
constexpr int bulk_start(const RopeBulk& r, const BulkTile& t, int token, bool is_k) {
  const int at = is_k ? bulk_part_bytes(r, t, t.q_heads) - t.q_heads * bulk_head_pitch(r, t) : 0;
  if (!r.by_token) return at + token * r.head_bytes;
  const int heads = is_k ? t.k_heads : t.q_heads;
  const int place =
      r.edges
          ? static_cast<int>(bulk_offset((is_k ? r.k : r.q).from, t.batch, t.token + (r.one_run ? 0 : token),
                                         is_k ? t.k_first : t.q_first) &
                             15)
          : 0;
  return at + place +
         token * (r.one_run ? heads * r.head_bytes : bulk_run_pitch(r, bulk_run_bytes(r, t, heads)));
}

}  // namespace brim::cuda

// RoPE's ring form: which problems it serves, how they are cut into tiles, and what a tile's runs of memory
// are. Run by the kernel and, without a GPU, by the plan sweep.
//
// A CTA goes through tiles of some tokens and heads. A tile is loaded by bulk copies into a slot of a ring in
// shared memory, rotated there, and stored by bulk copies. It consists of runs: stretches that are contiguous
// both where they are read and where they are written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "core/device_props.h"
#include "cuda/rope_index.h"

namespace brim::cuda {

inline constexpr int kRingMostWorkers = 256;  // threads that rotate; a warp more loads, and one stores
inline constexpr int kRingWorkers = 128;
inline constexpr int kRingSlotBytes = 16 << 10;  // wanted
inline constexpr int kRingRunBytes = 2048;       // wanted, where a head's tokens adjoin
inline constexpr int kRingMostSlots = 16;
inline constexpr int kRingMostRuns =
    32;  // of a tile: a lane of the warps that load and store looks after each
inline constexpr int kRingMostTokens = 32;  // of a tile: likewise
inline constexpr int kRingBarrierBytes = 3 * 8 * kRingMostSlots;
inline constexpr int kSystemSharedBytes =
    1024;  // that the system keeps of an SM's shared memory for each CTA

// q or k as the ring sees it, in bytes.
struct RingTensor {
  int64_t heads;
  ops::RopeStrides from, to;

  bool operator==(const RingTensor&) const = default;
};

struct RopeRing {
  brim_dtype dtype;
  int vector_bytes;
  PairOrder order;
  int64_t batch, seq;  // flat: one batch of all tokens, which lie at one stride
  int64_t true_seq;    // of the tables: token = batch * true_seq + place
  int64_t head_bytes, rotary_dim;
  RingTensor q, k;
  // A run is heads of a token, or of all the tile's tokens where these adjoin; else tokens of a head.
  bool by_token;
  bool joined;  // by_token: the tile's tokens are one run (of q, and of k)
  bool edges;   // runs begin or end off the 16-byte grid
  int table_row_bytes, table_piece,
      table_pitch;  // of cos or sin: its bytes, how they are copied, the row in a slot
  int workers, pair_columns, token_lanes, head_lanes;  // workers: column, token, head
  int heads_per_tile;
  int64_t token_tiles, head_tiles, q_head_tiles;  // of a batch
  int slots, slot_bytes, ctas_per_sm;

  bool operator==(const RopeRing&) const = default;
};

constexpr int64_t ring_tiles(const RopeRing& r) { return r.batch * r.token_tiles * r.head_tiles; }

// A tile has all heads, or some of q's, or some of k's. Tiles that follow each other run side by side: those
// of one token, or neighbouring runs of the same heads.
struct RingTile {
  int64_t batch, token;  // of the problem as the ring sees it
  int tokens;
  int64_t q_first, k_first;  // heads of q, and of k
  int q_heads, k_heads;
};

constexpr RingTile ring_tile(const RopeRing& r, uint32_t index) {
  RingTile t{};
  const uint32_t head_tiles = static_cast<uint32_t>(r.head_tiles),
                 token_tiles = static_cast<uint32_t>(r.token_tiles);
  const uint32_t inner_tiles = r.by_token ? head_tiles : token_tiles,
                 outer_tiles = r.by_token ? token_tiles : head_tiles;
  const uint32_t rest = index / inner_tiles, inner = index - rest * inner_tiles;
  const uint32_t batch = rest / outer_tiles, outer = rest - batch * outer_tiles;
  const uint32_t head_tile = r.by_token ? inner : outer;
  t.batch = batch;
  t.token = static_cast<int64_t>(r.by_token ? outer : inner) * r.token_lanes;
  t.tokens = static_cast<int>(std::min<int64_t>(r.seq - t.token, r.token_lanes));
  const int64_t per_tile = r.heads_per_tile;
  if (head_tiles == 1) {
    t.q_heads = static_cast<int>(r.q.heads);
    t.k_heads = static_cast<int>(r.k.heads);
  } else if (head_tile < r.q_head_tiles) {
    t.q_first = head_tile * per_tile;
    t.q_heads = static_cast<int>(std::min(r.q.heads - t.q_first, per_tile));
  } else {
    t.k_first = (head_tile - r.q_head_tiles) * per_tile;
    t.k_heads = static_cast<int>(std::min(r.k.heads - t.k_first, per_tile));
  }
  return t;
}

// The slot: the rows of cos and sin, token by token, q's runs, then k's, each at a multiple of 16 bytes; with edges, each run 0 to 15 bytes after its
// start, at the place on the 16-byte grid that it has in memory.
constexpr int ring_run_bytes(const RopeRing& r, const RingTile& t, int heads) {
  if (r.by_token) return static_cast<int>(heads * r.head_bytes * (r.joined ? t.tokens : 1));
  return static_cast<int>(t.tokens * r.head_bytes);
}
constexpr int ring_run_pitch(const RopeRing& r, int run_bytes) {
  return (run_bytes + (r.edges ? 30 : 15)) / 16 * 16;
}
constexpr int ring_runs(const RopeRing& r, const RingTile& t, int heads) {
  if (heads == 0) return 0;
  return r.by_token ? (r.joined ? 1 : t.tokens) : heads;
}
constexpr int ring_part_bytes(const RopeRing& r, const RingTile& t, int heads) {
  return ring_runs(r, t, heads) * ring_run_pitch(r, ring_run_bytes(r, t, heads));
}

constexpr int ring_part(const RopeRing& r, const RingTile& t, bool is_k) {
  return 2 * r.token_lanes * r.table_pitch + (is_k ? ring_part_bytes(r, t, t.q_heads) : 0);
}

// Byte offset of run i of q or k from its first element.
constexpr int64_t ring_run_offset(const RopeRing& r, const RingTile& t, int64_t first_head,
                                  const ops::RopeStrides& s, int i) {
  const int64_t token = t.token + (r.by_token && !r.joined ? i : 0), head = first_head + (r.by_token ? 0 : i);
  return t.batch * s.batch + token * s.seq + head * s.head;
}

// In the slot: from one head to the next of a token, and where a token's first head of q stands; of k less
// the heads of q before it, so that heads count on from q to k.
constexpr int ring_head_pitch(const RopeRing& r, const RingTile& t) {
  return r.by_token ? static_cast<int>(r.head_bytes) : ring_run_pitch(r, ring_run_bytes(r, t, 1));
}
constexpr int ring_start(const RopeRing& r, const RingTile& t, int token, bool is_k) {
  const int heads = is_k ? t.k_heads : t.q_heads, head_bytes = static_cast<int>(r.head_bytes);
  const int at = ring_part(r, t, is_k) - (is_k ? t.q_heads * ring_head_pitch(r, t) : 0);
  if (!r.by_token) return at + token * head_bytes;
  const int place = r.edges
                        ? static_cast<int>(ring_run_offset(r, t, is_k ? t.k_first : t.q_first,
                                                           is_k ? r.k.from : r.q.from, r.joined ? 0 : token) &
                                           15)
                        : 0;
  return at + place +
         token * (r.joined ? heads * head_bytes : ring_run_pitch(r, ring_run_bytes(r, t, heads)));
}

namespace ring_detail {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr ops::RopeStrides bytes_of(const ops::RopeStrides& s, int64_t size) {
  return {s.batch * size, s.seq * size, s.head * size, s.dim * size};
}

// What decides whether heads of a token, or tokens of a head, adjoin. A stride is 0 where its axis has size
// 1.
constexpr bool heads_adjoin(const RingTensor& t, int64_t head_bytes) {
  return t.heads == 1 || (t.from.head == head_bytes && t.to.head == head_bytes);
}
constexpr bool tokens_adjoin(const RingTensor& t, int64_t seq, int64_t bytes) {
  return seq == 1 || (t.from.seq == bytes && t.to.seq == bytes);
}
constexpr bool same_place(const ops::RopeStrides& a, const ops::RopeStrides& b) {
  return (a.batch - b.batch) % 16 == 0 && (a.seq - b.seq) % 16 == 0 && (a.head - b.head) % 16 == 0;
}
// Tokens that adjoin are no starts of runs; neither are heads that do.
constexpr bool on_grid(const ops::RopeStrides& a, bool by_head) {
  return a.batch % 16 == 0 && (by_head ? a.head : a.seq) % 16 == 0;
}

}  // namespace ring_detail

struct RingTuning {
  int slot_bytes = kRingSlotBytes, run_bytes = kRingRunBytes;
  int workers = kRingWorkers, ctas = 3;
};

// True and a plan where the ring serves the problem; else the plain form does. `plain_vector` is the vector
// that the plain form uses, `vector_tables` what it says of the tables.
constexpr bool plan_rope_ring(const ops::RopeProblem& p, const core::DeviceProps& device, int plain_vector,
                              bool vector_tables, RopeRing* ring, RingTuning tune = {}) {
  using namespace ring_detail;
  const int64_t size = core::element_size(p.dtype);
  const bool has_k = p.k_heads > 0;
  if (!vector_tables) return false;  // columns apart, or sections
  if (p.batch * p.seq > UINT32_MAX) return false;
  if (device.compute_capability < 90 || p.q_heads == 0 || p.base_alignment < 16) return false;
  if (has_k && p.k_dtype != p.dtype) return false;
  // to_half reads where another pair's result goes; in place, elements that are not rotated need not move.
  if (p.in_order != p.out_order || p.rotary_dim == 0 || (p.in_place && p.rotary_dim < p.head_dim))
    return false;
  if (p.q.dim > 1 || p.q_out.dim > 1 || p.k.dim > 1 || p.k_out.dim > 1) return false;
  // A vector of 2 bytes is all that a run at an odd place allows: slow in shared memory too.
  if (plain_vector < 4) return false;

  RopeRing r{};
  r.dtype = p.dtype;
  r.vector_bytes = plain_vector;
  r.order = p.in_order;
  r.true_seq = p.seq;
  r.head_bytes = p.head_dim * size;
  r.rotary_dim = p.rotary_dim;
  r.q = {p.q_heads, bytes_of(p.q, size), bytes_of(p.q_out, size)};
  r.k = {p.k_heads, bytes_of(p.k, size), bytes_of(p.k_out, size)};
  const auto all = [&](auto&& holds) { return holds(r.q) && (!has_k || holds(r.k)); };
  if (!all([](const RingTensor& t) { return same_place(t.from, t.to); })) return false;
  r.by_token = all([&](const RingTensor& t) { return heads_adjoin(t, r.head_bytes); });

  // All tokens at one stride: batches are no matter.
  const bool flat = p.batch == 1 || p.seq == 1 || all([&](const RingTensor& t) {
                      return t.from.batch == t.from.seq * p.seq && t.to.batch == t.to.seq * p.seq;
                    });
  r.batch = flat ? 1 : p.batch;
  r.seq = flat ? p.batch * p.seq : p.seq;
  if (flat && p.seq == 1) {  // tokens go along the batch
    for (RingTensor* t : {&r.q, &r.k}) {
      t->from.seq = t->from.batch;
      t->to.seq = t->to.batch;
    }
  }
  if (!r.by_token && !all([&](const RingTensor& t) { return tokens_adjoin(t, r.seq, r.head_bytes); }))
    return false;

  const int64_t columns = p.rotary_dim / 2 * size / plain_vector;
  r.workers = columns <= tune.workers ? tune.workers : kRingMostWorkers;
  if (columns > r.workers) return false;
  r.pair_columns = static_cast<int>(columns);
  const int lanes = static_cast<int>(r.workers / columns);
  const int64_t table_row = p.rotary_dim / 2 * core::element_size(p.table_dtype);
  r.table_row_bytes = static_cast<int>(table_row);
  r.table_piece = static_cast<int>(std::min<int64_t>(table_row & -table_row, p.table_alignment));
  r.table_pitch = static_cast<int>((table_row + 15) / 16 * 16);
  if (r.table_piece < 4) return false;

  const auto at_most = [](int64_t n, int64_t most) {
    return static_cast<int>(std::clamp<int64_t>(n, 1, most));
  };
  const int64_t heads = p.q_heads + p.k_heads, row = heads * r.head_bytes;
  const int64_t most_tokens = std::min<int64_t>({lanes, r.seq, kRingMostTokens});
  const auto to_granule = [](int64_t n, int64_t granule) { return n > granule ? n / granule * granule : n; };
  const int64_t granule =
      16 / std::min<int64_t>(16, r.head_bytes & -r.head_bytes);  // heads that end on the grid
  if (r.by_token) {
    if (row <= tune.slot_bytes * 3 / 2) {
      r.heads_per_tile = static_cast<int>(heads);
    } else {
      const int64_t wanted = ceil_div(p.q_heads, ceil_div(p.q_heads * r.head_bytes, tune.slot_bytes));
      r.heads_per_tile = static_cast<int>(to_granule(wanted, granule));
    }
    const bool one = r.heads_per_tile >= heads;
    r.joined =
        one && all([&](const RingTensor& t) { return tokens_adjoin(t, r.seq, t.heads * r.head_bytes); });
    const int64_t runs_a_token = r.joined ? 0 : one && has_k ? 2 : 1;
    r.token_lanes =
        at_most(tune.slot_bytes / (r.heads_per_tile * r.head_bytes),
                runs_a_token ? std::min<int64_t>(most_tokens, kRingMostRuns / runs_a_token) : most_tokens);
  } else {
    r.token_lanes =
        static_cast<int>(to_granule(at_most(ceil_div(tune.run_bytes, r.head_bytes), most_tokens), granule));
    r.heads_per_tile =
        at_most(tune.slot_bytes / (r.token_lanes * r.head_bytes), std::min<int64_t>(heads, kRingMostRuns));
  }
  r.head_lanes = lanes / r.token_lanes;
  r.token_tiles = ceil_div(r.seq, r.token_lanes);
  const bool one = r.heads_per_tile == heads;
  r.q_head_tiles = one ? 1 : ceil_div(p.q_heads, r.heads_per_tile);
  r.head_tiles = one ? 1 : r.q_head_tiles + ceil_div(p.k_heads, r.heads_per_tile);
  const bool tile_on_grid = one ? all([&](const RingTensor& t) { return t.heads * r.head_bytes % 16 == 0; })
                                : r.heads_per_tile * r.head_bytes % 16 == 0 &&
                                      p.q_heads * r.head_bytes % 16 == 0 &&
                                      p.k_heads * r.head_bytes % 16 == 0;
  const bool runs_on_grid =
      r.by_token ? tile_on_grid : r.token_lanes * r.head_bytes % 16 == 0 && r.seq * r.head_bytes % 16 == 0;
  r.edges = !runs_on_grid || !all([&](const RingTensor& t) { return on_grid(t.from, !r.by_token); });
  if (r.edges && !r.by_token) return false;
  if (ring_tiles(r) > INT32_MAX) return false;

  const RingTile t = ring_tile(r, 0);  // the first one has most of everything, or else that of k's heads
  int64_t slot = ring_part(r, t, true) + ring_part_bytes(r, t, t.k_heads);
  if (!one)
    slot = std::max<int64_t>(
        slot, ring_part(r, t, false) + ring_part_bytes(r, t, at_most(p.k_heads, r.heads_per_tile)));
  r.slot_bytes = static_cast<int>((slot + 127) / 128 * 128);
  const auto slots = [&](int ctas) {
    const int64_t each =
        std::min<int64_t>(device.shared_per_block_optin, device.shared_per_sm / ctas - kSystemSharedBytes);
    return static_cast<int>(std::min<int64_t>((each - kRingBarrierBytes) / r.slot_bytes, kRingMostSlots));
  };
  r.ctas_per_sm = tune.ctas;
  while (r.ctas_per_sm > 1 &&
         (slots(r.ctas_per_sm) < 4 || r.ctas_per_sm * (r.workers + 64) > device.max_threads_per_sm))
    --r.ctas_per_sm;
  r.slots = slots(r.ctas_per_sm);
  if (r.slots < 3) return false;
  *ring = r;
  return true;
}

// "ring vec=16 slots=4x16384 ..."
inline void print(const RopeRing& r, char* text, size_t size) {
  std::snprintf(text, size,
                "ring vec=%d slots=%dx%d ctas_per_sm=%d workers=%dx%dx%d order=column,token,head runs=%s%s "
                "tokens=%d heads=%d "
                "tiles=%lld",
                r.vector_bytes, r.slots, r.slot_bytes, r.ctas_per_sm, r.pair_columns, r.token_lanes,
                r.head_lanes, r.by_token ? (r.joined ? "tokens" : "token") : "head", r.edges ? ",edges" : "",
                r.token_lanes, r.heads_per_tile, static_cast<long long>(ring_tiles(r)));
}

}  // namespace brim::cuda

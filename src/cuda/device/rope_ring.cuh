// RoPE's ring form (rope_ring_plan.h): for Hopper and newer, the same bits as the plain form.
//
// Three roles that meet only in barriers in shared memory. One warp loads tiles, and the rows of cos and sin
// that they need, into the slots of a ring, and runs ahead. The workers rotate a tile where it stands: they
// never wait for global memory. One warp stores the tile, and hands the slot back once the stores have read it.
#pragma once

#include "cuda/device/bulk.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/rope_ring_plan.h"

namespace brim::cuda {

struct RingParams {
  RopeRing ring;
  const char *q_in, *k_in;
  char *q_out, *k_out;
  RopeTables tables;
};

inline RingParams make_ring_params(const brim_rope_args& args, const ops::RopeProblem& problem,
                                   const RopeRing& ring) {
  return {ring,
          static_cast<const char*>(args.q.data),
          static_cast<const char*>(args.k.data),
          static_cast<char*>(args.q_out.data),
          static_cast<char*>(args.k_out.data),
          make_rope_tables(args, problem)};
}

// A slot is loaded (full), rotated (done) and free again (empty).
struct RingSlots {
  uint64_t *full, *done, *empty;
  char* data;
};

// A run of a tile: where it is read and written, and in the slot. Its first `head` bytes are before the
// 16-byte grid, the `middle` ones on it, the rest after.
struct Run {
  const char* in;
  char* out;
  int slot, bytes, head, middle;
};

// Run `index` of the tile, or an empty one.
__device__ __forceinline__ Run tile_run(const RingParams& p, const RingTile& t, int index) {
  const RopeRing& r = p.ring;
  const int q_runs = ring_runs(r, t, t.q_heads);
  Run run{};
  if (index >= q_runs + ring_runs(r, t, t.k_heads)) return run;
  const bool is_k = index >= q_runs;
  if (is_k) index -= q_runs;
  const RingTensor& tensor = is_k ? r.k : r.q;
  const int64_t first_head = is_k ? t.k_first : t.q_first;
  const int64_t from = ring_run_offset(r, t, first_head, tensor.from, index);
  run.in = (is_k ? p.k_in : p.q_in) + from;
  run.out = (is_k ? p.k_out : p.q_out) + ring_run_offset(r, t, first_head, tensor.to, index);
  run.bytes = run.middle = ring_run_bytes(r, t, is_k ? t.k_heads : t.q_heads);
  run.slot = ring_part(r, t, is_k) + index * ring_run_pitch(r, run.bytes);
  if (r.edges) {
    const int place = static_cast<int>(from & 15);  // the tensor begins on the grid
    run.slot += place;
    run.head = min((16 - place) & 15, run.bytes);
    run.middle = (run.bytes - run.head) & ~15;
  }
  return run;
}

// use(byte) for each 4-byte word of the run that is off the 16-byte grid.
template <class Use>
__device__ __forceinline__ void each_edge(const Run& run, Use use) {
  for (int at = 0; at < run.head; at += 4) use(at);
  for (int at = run.head + run.middle; at < run.bytes; at += 4) use(at);
}

// Where a token's row of cos and that of sin begin, in bytes; negative: its position is outside the table.
struct TableRows {
  int64_t cos, sin;
};

__device__ __forceinline__ TableRows table_rows(const RingParams& p, const RingTile& t, int token) {
  if (token >= t.tokens) return {-1, -1};
  const RopeTables& tables = p.tables;
  int64_t batch = t.batch, place = t.token + token;
  if (p.ring.batch == 1) {
    batch = static_cast<uint32_t>(place) / static_cast<uint32_t>(p.ring.true_seq);
    place -= batch * p.ring.true_seq;
  }
  const int64_t row = table_row(tables, batch, place);
  if (row < 0) return {-1, -1};
  const int shift = tables.dtype == BRIM_FLOAT32 ? 2 : 1;
  return {(batch * tables.cos_strides.batch + row * tables.cos_strides.row) << shift,
          (batch * tables.sin_strides.batch + row * tables.sin_strides.row) << shift};
}

// Copies the tile's rows of cos and sin, `rows` those of token `lane`, into the slot.
__device__ __forceinline__ void load_tables(const RingParams& p, const RingTile& t, const TableRows& rows,
                                            int lane, char* slot) {
  const RopeRing& r = p.ring;
  const int pieces = r.table_row_bytes / r.table_piece, both = 2 * pieces;  // of cos, then of sin
  const int tokens_at_once = both < 32 ? 32 / both : 1;
  const int token_of_lane = both < 32 ? lane / both : 0, first_piece = both < 32 ? lane % both : lane;
  for (int first = 0; first < t.tokens; first += tokens_at_once) {
    const int token = first + token_of_lane;
    const int64_t cos = __shfl_sync(0xffffffffu, rows.cos, token & 31);
    const int64_t sin = __shfl_sync(0xffffffffu, rows.sin, token & 31);
    if (token_of_lane >= tokens_at_once || token >= t.tokens) continue;
    for (int piece = first_piece; piece < both; piece += 32) {
      const bool is_sin = piece >= pieces;
      const int at = (is_sin ? piece - pieces : piece) * r.table_piece;
      char* const to = slot + (2 * token + is_sin) * r.table_pitch + at;
      if (cos < 0) {
        for (int b = 0; b < r.table_piece; b += 4) *reinterpret_cast<uint32_t*>(to + b) = 0x7fff7fffu;  // NaN
        continue;
      }
      const char* const from = is_sin ? p.tables.sin + sin + at : p.tables.cos + cos + at;
      if (r.table_piece == 16)
        async_copy<16>(to, from);
      else if (r.table_piece == 8)
        async_copy<8>(to, from);
      else
        async_copy<4>(to, from);
    }
  }
}

__device__ __forceinline__ void load_tiles(const RingParams& p, const RingSlots& slots, int lane) {
  const RopeRing& r = p.ring;
  const uint32_t tiles = static_cast<uint32_t>(ring_tiles(r));
  int slot = 0;
  uint32_t parity = 1;
  uint32_t index = blockIdx.x;
  if (index >= tiles) return;
  RingTile next = ring_tile(r, index);
  TableRows next_rows = table_rows(p, next, lane);
  while (index < tiles) {
    const RingTile t = next;
    const TableRows rows = next_rows;
    const Run run = tile_run(p, t, lane);
    if ((index += gridDim.x) < tiles) {  // positions are fetched a tile ahead: nothing waits for them
      next = ring_tile(r, index);
      next_rows = table_rows(p, next, lane);
    }
    char* const to = slots.data + slot * r.slot_bytes;
    uint64_t* const full = &slots.full[slot];
    const uint32_t bytes = __reduce_add_sync(0xffffffffu, static_cast<unsigned>(run.middle));
    barrier_wait(&slots.empty[slot], parity);
    if (lane == 0) barrier_expect(full, bytes);
    __syncwarp();
    if (run.middle > 0) bulk_load(to + run.slot + run.head, run.in + run.head, run.middle, full);
    each_edge(run, [&](int at) { async_copy<4>(to + run.slot + at, run.in + at); });
    load_tables(p, t, rows, lane, to);
    async_copies_arrive(full);
    __syncwarp();
    if (lane == 0) barrier_arrive(full);
    if (++slot == r.slots) {
      slot = 0;
      parity ^= 1;
    }
  }
}

__device__ __forceinline__ void store_tiles(const RingParams& p, const RingSlots& slots, int lane) {
  const RopeRing& r = p.ring;
  const uint32_t tiles = static_cast<uint32_t>(ring_tiles(r));
  int slot = 0, oldest = 0;
  uint32_t parity = 0;
  bool pending = false;
  for (uint32_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Run run = tile_run(p, ring_tile(r, index), lane);
    const char* const from = slots.data + slot * r.slot_bytes;
    barrier_wait(&slots.done[slot], parity);
    if (run.middle > 0) bulk_store(run.out + run.head, from + run.slot + run.head, run.middle);
    bulk_commit();
    each_edge(run, [&](int at) {
      *reinterpret_cast<uint32_t*>(run.out + at) = *reinterpret_cast<const uint32_t*>(from + run.slot + at);
    });
    if (pending) {
      bulk_wait_read<1>();
      __syncwarp();
      if (lane == 0) barrier_arrive(&slots.empty[oldest]);
      if (++oldest == r.slots) oldest = 0;
    }
    pending = true;
    if (++slot == r.slots) {
      slot = 0;
      parity ^= 1;
    }
  }
  bulk_wait_read<0>();
}

// ---- the workers ----

template <int Bytes>
__device__ __forceinline__ Raw<Bytes> shared_load(const char* p) {
  return raw(*reinterpret_cast<const typename Words<Bytes>::type*>(p));
}
template <int Bytes>
__device__ __forceinline__ void shared_store(char* p, const Raw<Bytes>& v) {
  *reinterpret_cast<typename Words<Bytes>::type*>(p) = words(v);
}

// M neighbouring columns of a row of cos or sin in shared memory into out[at, at + M).
template <class Table, int M, int N>
__device__ __forceinline__ void widen_columns(const char* row, int64_t first, float (&out)[N], int at) {
  constexpr int kBytes = M * sizeof(Table), kPiece = kBytes < 16 ? kBytes : 16;
#pragma unroll
  for (int b = 0; b < kBytes; b += kPiece) {
    const Raw<kPiece> v = shared_load<kPiece>(row + first * sizeof(Table) + b);
#pragma unroll
    for (int i = 0; i < kPiece / static_cast<int>(sizeof(Table)); ++i)
      out[at + b / static_cast<int>(sizeof(Table)) + i] = widen<Table>(v, i);
  }
}

template <int N, bool kSplit>
__device__ __forceinline__ void widen_row(brim_dtype dtype, const char* row, const RopeColumn& column,
                                          float (&out)[N]) {
  const auto widen_as = [&]<class Table>() {
    if constexpr (kSplit) {
      widen_columns<Table, N / 2>(row, column.table, out, 0);
      widen_columns<Table, N / 2>(row, column.table_second, out, N / 2);
    } else {
      widen_columns<Table, N>(row, column.table, out, 0);
    }
  };
  if (dtype == BRIM_FLOAT32)
    widen_as.template operator()<float>();
  else if (dtype == BRIM_BFLOAT16)
    widen_as.template operator()<__nv_bfloat16>();
  else
    widen_as.template operator()<__half>();
}

template <class T, int Bytes, PairOrder Order>
__device__ __forceinline__ void rotate_tiles(const RingParams& p, const RingSlots& slots, int thread) {
  constexpr int N = Bytes / sizeof(T), kUnroll = Bytes >= 16 ? 2 : 4;
  constexpr bool kSplit = rope_split_column(Order, Order, N);
  const RopeRing& r = p.ring;
  const uint32_t tiles = static_cast<uint32_t>(ring_tiles(r));
  const int lane = thread / r.pair_columns;
  const int token_lane = lane % r.token_lanes, head_lane = lane / r.token_lanes;
  const bool works = head_lane < r.head_lanes;
  RopeLaunch l{};
  l.rotary_dim = r.rotary_dim;
  l.pair_columns = r.pair_columns;
  const RopeColumn column = rope_column(l, Order, Order, N, thread % r.pair_columns);
  const int step = static_cast<int>(column.in_second - column.in_first) * static_cast<int>(sizeof(T));
  const int first = static_cast<int>(column.in_first) * static_cast<int>(sizeof(T));

  int slot = 0;
  uint32_t parity = 0;
  for (uint32_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const RingTile t = ring_tile(r, index);
    char* const base = slots.data + slot * r.slot_bytes;
    barrier_wait(&slots.full[slot], parity);
    if (works && token_lane < t.tokens) {
      float c[N], s[N];
      const char* const rows = base + 2 * token_lane * r.table_pitch;
      widen_row<N, kSplit>(p.tables.dtype, rows, column, c);
      widen_row<N, kSplit>(p.tables.dtype, rows + r.table_pitch, column, s);
      if (p.tables.negate_sin) {
#pragma unroll
        for (int i = 0; i < N; ++i) s[i] = -s[i];
      }
      const int head_pitch = ring_head_pitch(r, t), heads = t.q_heads + t.k_heads;
      const int q_start = ring_start(r, t, token_lane, false) + first,
                k_start = ring_start(r, t, token_lane, true) + first;
      for (int head = head_lane; head < heads; head += kUnroll * r.head_lanes) {
        Raw<Bytes> a[kUnroll], b[kUnroll];
        const auto at = [&](int h) { return base + (h < t.q_heads ? q_start : k_start) + h * head_pitch; };
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const int h = head + u * r.head_lanes;
          if (h >= heads) continue;
          a[u] = shared_load<Bytes>(at(h));
          b[u] = shared_load<Bytes>(at(h) + step);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const int h = head + u * r.head_lanes;
          if (h >= heads) continue;
          rotate<T, Bytes, Order, Order>(a[u], b[u], c, s);
          shared_store<Bytes>(at(h), a[u]);
          shared_store<Bytes>(at(h) + step, b[u]);
        }
      }
    }
    bulk_store_fence();
    __syncwarp();
    if (thread % 32 == 0) barrier_arrive(&slots.done[slot]);
    if (++slot == r.slots) {
      slot = 0;
      parity ^= 1;
    }
  }
}

template <class T, int Bytes, int Order>
__global__ void __launch_bounds__(kRingMostWorkers + 64, 2) rope_ring(const __grid_constant__ RingParams p) {
#if BRIM_BULK_COPIES
  const RopeRing& r = p.ring;
  extern __shared__ __align__(128) char shared[];
  uint64_t* const barriers = reinterpret_cast<uint64_t*>(shared);
  const RingSlots slots{barriers, barriers + kRingMostSlots, barriers + 2 * kRingMostSlots,
                        shared + kRingBarrierBytes};
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int i = 0; i < r.slots; ++i) {
      barrier_init(&slots.full[i],
                   33);  // the loading warp: its lanes' own copies, and once for the bulk copies
      barrier_init(&slots.done[i], r.workers / 32);
      barrier_init(&slots.empty[i], 1);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (thread < r.workers)
    rotate_tiles<T, Bytes, PairOrder{Order}>(p, slots, thread);
  else if (thread < r.workers + 32)
    load_tiles(p, slots, thread - r.workers);
  else
    store_tiles(p, slots, thread - r.workers - 32);
#endif
}

}  // namespace brim::cuda

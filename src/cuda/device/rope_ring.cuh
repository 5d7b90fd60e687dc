// RoPE's ring form (rope_ring_plan.h): for Hopper and newer, the same bits as the plain form.
//
// One warp loads tiles into the slots of a ring in shared memory and runs ahead; the other threads rotate a
// slot where it stands, each with its own column, so that a token's cos and sin sit in its registers; then
// the first warp stores the slot and hands it back once the stores have read it. All meet only in barriers in
// shared memory.
#pragma once

#include "cuda/device/bulk.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/rope_ring_plan.h"

namespace brim::cuda {

struct RingParams {
  RopeRing ring;
  const char *q_in, *k_in;
  char *q_out, *k_out;
  const char *cos, *sin;
  const void* positions;
  brim_dtype table_dtype, position_dtype;
  ops::RopeTableStrides cos_strides, sin_strides;  // elements
  int64_t position_batch_stride, position_seq_stride, table_rows;
  int32_t* bad_data;
  bool negate_sin;
};

inline RingParams make_ring_params(const brim_rope_args& args, const ops::RopeProblem& problem,
                                   const RopeRing& ring) {
  RingParams p{};
  p.ring = ring;
  p.q_in = static_cast<const char*>(args.q.data);
  p.k_in = static_cast<const char*>(args.k.data);
  p.q_out = static_cast<char*>(args.q_out.data);
  p.k_out = static_cast<char*>(args.k_out.data);
  p.cos = static_cast<const char*>(args.cos.data);
  p.sin = static_cast<const char*>(args.sin.data);
  p.positions = args.positions.data;
  p.table_dtype = problem.table_dtype;
  p.position_dtype = problem.position_dtype;
  p.cos_strides = problem.cos;
  p.sin_strides = problem.sin;
  p.position_batch_stride = problem.position_batch_stride;
  p.position_seq_stride = problem.position_seq_stride;
  p.table_rows = problem.table_rows;
  p.bad_data = args.run.bad_data;
  p.negate_sin = problem.negate_sin;
  return p;
}

// The cos and sin of N pairs as they are in memory, fetched a tile ahead: widening them at once would wait
// for them.
template <int N>
struct RawAngles {
  uint32_t cos[N], sin[N];  // 16-bit elements two a word
  bool bad;
};

// M neighbouring elements of a table into words at .. of `out`.
template <int M, int N>
__device__ __forceinline__ void fetch_elements(const char* p, bool wide, uint32_t (&out)[N], int at) {
  if (wide) {
    const Raw<M* 4> v = load_constant<M * 4>(p);
#pragma unroll
    for (int i = 0; i < M; ++i) out[at + i] = v.word[i];
  } else {
    const Raw<M* 2> v = load_constant<M * 2>(p);
#pragma unroll
    for (int i = 0; i < (M + 1) / 2; ++i) out[at / 2 + i] = v.word[i];
  }
}

template <int N, bool kSplit>
__device__ __forceinline__ void fetch_row(const char* row, bool wide, const RopeColumn& column,
                                          uint32_t (&out)[N]) {
  const int size = wide ? 4 : 2;
  if constexpr (!kSplit) {
    fetch_elements<N>(row + column.table * size, wide, out, 0);
  } else if constexpr (N > 2) {
    fetch_elements<N / 2>(row + column.table * size, wide, out, 0);
    fetch_elements<N / 2>(row + column.table_second * size, wide, out, N / 2);
  } else if (wide) {
    fetch_elements<1>(row + column.table * 4, true, out, 0);
    fetch_elements<1>(row + column.table_second * 4, true, out, 1);
  } else {
    out[0] = load_constant<2>(row + column.table * 2).word[0] |
             static_cast<uint32_t>(load_constant<2>(row + column.table_second * 2).word[0]) << 16;
  }
}

template <int N>
__device__ __forceinline__ void widen_row(brim_dtype dtype, const uint32_t (&raw)[N], float (&out)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const uint32_t bits = i % 2 ? raw[i / 2] >> 16 : raw[i / 2] & 0xffffu;
    out[i] = dtype == BRIM_FLOAT32    ? __uint_as_float(raw[i])
             : dtype == BRIM_BFLOAT16 ? __uint_as_float(bits << 16)
                                      : __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
  }
}

template <int Bytes>
__device__ __forceinline__ Raw<Bytes> shared_load(const char* p) {
  return raw(*reinterpret_cast<const typename Words<Bytes>::type*>(p));
}
template <int Bytes>
__device__ __forceinline__ void shared_store(char* p, const Raw<Bytes>& v) {
  *reinterpret_cast<typename Words<Bytes>::type*>(p) = words(v);
}

// A run of a tile: where it is read and written, and in the slot. Its first `head` bytes are before the
// 16-byte grid, the `middle` ones on it, the rest after.
struct Run {
  const char* in;
  char* out;
  int slot, bytes, head, middle;
};

template <bool kEdges>
__device__ __forceinline__ int tile_runs(const RopeRing& r, const RingTile& t) {
  return ring_runs(r, t, t.q_heads) + ring_runs(r, t, t.k_heads);
}

template <bool kEdges>
__device__ __forceinline__ Run tile_run(const RingParams& p, const RingTile& t, int index) {
  const RopeRing& r = p.ring;
  const int q_runs = ring_runs(r, t, t.q_heads);
  const bool is_k = index >= q_runs;
  const int run = is_k ? index - q_runs : index;
  const int64_t token = t.token + (r.by_token && !r.joined ? run : 0);
  const int64_t head = (is_k ? t.k_first : t.q_first) + (r.by_token ? 0 : run);
  const int64_t in = t.batch * (is_k ? r.k.from.batch : r.q.from.batch) +
                     token * (is_k ? r.k.from.seq : r.q.from.seq) +
                     head * (is_k ? r.k.from.head : r.q.from.head);
  const int64_t out = t.batch * (is_k ? r.k.to.batch : r.q.to.batch) +
                      token * (is_k ? r.k.to.seq : r.q.to.seq) + head * (is_k ? r.k.to.head : r.q.to.head);
  Run result;
  result.in = (is_k ? p.k_in : p.q_in) + in;
  result.out = (is_k ? p.k_out : p.q_out) + out;
  result.bytes = ring_run_bytes(r, t, is_k ? t.k_heads : t.q_heads);
  result.slot = (is_k ? ring_part_bytes(r, t, t.q_heads) : 0) + run * ring_run_pitch(r, result.bytes);
  result.head = 0;
  result.middle = result.bytes;
  if constexpr (kEdges) {
    const int place = static_cast<int>(in & 15);  // the tensor begins on the grid
    result.slot += place;
    result.head = min((16 - place) & 15, result.bytes);
    result.middle = (result.bytes - result.head) & ~15;
  }
  return result;
}

// The element of a tile's edges that thread `thread` looks after: 8 at each end of a run.
template <class T>
__device__ __forceinline__ bool edge_element(const RingParams& p, const RingTile& t, int thread, const T*& in,
                                             T*& out, int& slot) {
  const int index = thread / 16, lane = thread % 16;
  if (index >= tile_runs<true>(p.ring, t)) return false;
  const Run run = tile_run<true>(p, t, index);
  const int at = lane % 8 * static_cast<int>(sizeof(T)) + (lane < 8 ? 0 : run.head + run.middle);
  if (at >= (lane < 8 ? run.head : run.bytes)) return false;
  in = reinterpret_cast<const T*>(run.in + at);
  out = reinterpret_cast<T*>(run.out + at);
  slot = run.slot + at;
  return true;
}

constexpr int kConsumersBarrier = 1;

template <class T, int Bytes, int OrderOf, bool kEdges>
__global__ void __launch_bounds__(kRingMostThreads + 32, kEdges ? 1 : 2)
    rope_ring(const __grid_constant__ RingParams p) {
#if BRIM_BULK_COPIES
  constexpr int N = Bytes / sizeof(T), kUnroll = Bytes >= 16 ? 2 : 4;
  constexpr PairOrder Order{OrderOf};
  constexpr bool kSplit = rope_split_column(Order, Order, N);
  const RopeRing& r = p.ring;
  extern __shared__ __align__(128) char shared[];
  uint64_t *const full = reinterpret_cast<uint64_t*>(shared), *const empty = full + kRingMostSlots;
  char* const slots = shared + kRingBarrierBytes;
  const uint32_t tiles = static_cast<uint32_t>(ring_tiles(r));

  if (threadIdx.x == 0) {
    for (int i = 0; i < r.slots; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], 1);
    }
    barrier_init_fence();
  }
  __syncthreads();

  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= r.threads) {  // the warp that loads
    const int lane = thread - r.threads;
    int slot = 0;
    uint32_t parity = 1;
    bool reused = false;
    for (uint32_t index = blockIdx.x; index < tiles; index += gridDim.x) {
      const RingTile t = ring_tile(r, index);
      const int runs = tile_runs<kEdges>(r, t);
      if (reused) barrier_wait(&empty[slot], parity);
      uint32_t bytes = 0;
      for (int i = lane; i < runs; i += 32) bytes += tile_run<kEdges>(p, t, i).middle;
      bytes = __reduce_add_sync(0xffffffffu, bytes);
      if (lane == 0) barrier_arrive_expect(&full[slot], bytes);
      __syncwarp();
      for (int i = lane; i < runs; i += 32) {
        const Run run = tile_run<kEdges>(p, t, i);
        if (run.middle > 0)
          bulk_load(slots + slot * r.slot_bytes + run.slot + run.head, run.in + run.head, run.middle,
                    &full[slot]);
      }
      if (++slot == r.slots) {
        slot = 0;
        parity ^= 1;
        reused = true;
      }
    }
    return;
  }

  const int column_index = thread % r.pair_columns, lane = thread / r.pair_columns;
  const int token_lane = lane % r.token_lanes, head_lane = lane / r.token_lanes;
  const bool works = head_lane < r.head_lanes;
  RopeLaunch l{};
  l.rotary_dim = r.rotary_dim;
  l.pair_columns = r.pair_columns;
  const RopeColumn column = rope_column(l, Order, Order, N, column_index);

  const auto fetch = [&](uint32_t index, RawAngles<N>& raw) {
    raw.bad = false;
    if (index >= tiles || !works) return;
    const RingTile t = ring_tile(r, index);
    if (token_lane >= t.tokens) return;
    const int64_t token = t.token + token_lane;
    int64_t batch = t.batch, place = token;
    if (r.batch == 1) {
      batch = static_cast<uint32_t>(token) / static_cast<uint32_t>(r.true_seq);
      place = token - batch * r.true_seq;
    }
    int64_t row = place;
    if (p.position_dtype != BRIM_DTYPE_NONE) {
      const int64_t at = batch * p.position_batch_stride + place * p.position_seq_stride;
      row = p.position_dtype == BRIM_INT32 ? static_cast<const int32_t*>(p.positions)[at]
                                           : static_cast<const int64_t*>(p.positions)[at];
    }
    if (row < 0 || row >= p.table_rows) {
      raw.bad = true;
      if (p.bad_data) *p.bad_data = 1;
      return;
    }
    const bool wide = p.table_dtype == BRIM_FLOAT32;
    const int shift = wide ? 2 : 1;
    fetch_row<N, kSplit>(p.cos + ((batch * p.cos_strides.batch + row * p.cos_strides.row) << shift), wide,
                         column, raw.cos);
    fetch_row<N, kSplit>(p.sin + ((batch * p.sin_strides.batch + row * p.sin_strides.row) << shift), wide,
                         column, raw.sin);
  };

  RawAngles<N> raw;
  fetch(blockIdx.x, raw);
  const T* edge_in = nullptr;
  T *edge_out = nullptr, edge{};
  int edge_slot = 0;
  bool has_edge = false;
  const auto fetch_edge = [&](uint32_t index) {
    if constexpr (kEdges) {
      has_edge =
          index < tiles && edge_element<T>(p, ring_tile(r, index), thread, edge_in, edge_out, edge_slot);
      if (has_edge) edge = *edge_in;
    }
  };
  fetch_edge(blockIdx.x);

  const int step = static_cast<int>(column.in_second - column.in_first) * static_cast<int>(sizeof(T));
  const int first = static_cast<int>(column.in_first) * static_cast<int>(sizeof(T));
  int slot = 0, oldest = 0;
  bool pending = false;
  uint32_t parity = 0;
  for (uint32_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const RingTile t = ring_tile(r, index);
    float c[N], s[N];
    if (raw.bad) {
#pragma unroll
      for (int i = 0; i < N; ++i) c[i] = s[i] = __int_as_float(0x7fffffff);
    } else {
      widen_row<N>(p.table_dtype, raw.cos, c);
      widen_row<N>(p.table_dtype, raw.sin, s);
      if (p.negate_sin) {
#pragma unroll
        for (int i = 0; i < N; ++i) s[i] = -s[i];
      }
    }
    fetch(index + gridDim.x, raw);

    char* const base = slots + slot * r.slot_bytes;
    barrier_wait(&full[slot], parity);
    T* const this_edge_out = edge_out;
    const int this_edge_slot = edge_slot;
    const bool had_edge = has_edge;
    if constexpr (kEdges) {
      if (has_edge) *reinterpret_cast<T*>(base + edge_slot) = edge;
      fetch_edge(index + gridDim.x);
      named_barrier_sync(kConsumersBarrier, r.threads);
    }

    if (works && token_lane < t.tokens) {
      const int head_pitch = ring_head_pitch(r, t);
      const auto start = [&](bool is_k) { return ring_start(r, t, token_lane, is_k) + first; };
      const int q_start = start(false), k_start = start(true), heads = t.q_heads + t.k_heads;
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
    named_barrier_sync(kConsumersBarrier, r.threads);

    if constexpr (kEdges)
      if (had_edge) *this_edge_out = *reinterpret_cast<const T*>(base + this_edge_slot);
    if (thread < 32) {
      const int runs = tile_runs<kEdges>(r, t);
      for (int i = thread; i < runs; i += 32) {
        const Run run = tile_run<kEdges>(p, t, i);
        if (run.middle > 0) bulk_store(run.out + run.head, base + run.slot + run.head, run.middle);
      }
      bulk_commit();
      // The slot before this one is free when its stores have read it; its edges were read before the threads
      // met above.
      if (pending) {
        bulk_wait_read<1>();
        __syncwarp();
        if (thread == 0) barrier_arrive(&empty[oldest]);
        if (++oldest == r.slots) oldest = 0;
      }
      pending = true;
    }
    if (++slot == r.slots) {
      slot = 0;
      parity ^= 1;
    }
  }
  if (thread < 32) bulk_wait_all();
#endif
}

}  // namespace brim::cuda

// RoPE's bulk form (rope_bulk_index.h): for Hopper and newer, the same bits as the plain form.
//
// A CTA rotates one tile. Bulk copies bring it into shared memory, so that what is on its way costs no
// registers, while the threads fetch their columns of cos and sin; there are many small CTAs on an SM, and
// the hardware starts the next one as soon as one is through. The code is kept short: a CTA lives for two or
// three microseconds, and every instruction before the first load or after the last one is time in which the
// memory idles.
#pragma once

#include "cuda/device/bulk.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/rope_bulk_index.h"

namespace brim::cuda {

struct BulkParams {
  RopeBulk plan;
  const char *q_in, *k_in;
  char *q_out, *k_out;
  RopeTables tables;
};

inline BulkParams make_bulk_params(const brim_rope_args& args, const ops::RopeProblem& problem,
                                   const RopeBulk& plan) {
  return {plan,
          static_cast<const char*>(args.q.data),
          static_cast<const char*>(args.k.data),
          static_cast<char*>(args.q_out.data),
          static_cast<char*>(args.k_out.data),
          make_rope_tables(args, problem)};
}

// A run of a tile: where it is read and written, and in shared memory. Its `middle` bytes, after the first
// `head` ones, are whole 16 bytes in memory.
struct Run {
  const char* in;
  char *out, *place;
  int bytes, head, middle;
};

// Run `index` of q or of k; an empty one where there are not so many.
template <bool kEdges>
__device__ __forceinline__ Run tile_run(const BulkParams& p, const BulkTile& t, bool is_k, int index,
                                        char* data) {
  const RopeBulk& r = p.plan;
  const BulkTensor& x = is_k ? r.k : r.q;
  const int heads = is_k ? t.k_heads : t.q_heads;
  const int token = t.token + (r.by_token ? index : 0);
  const int head = (is_k ? t.k_first : t.q_first) + (r.by_token ? 0 : index);
  Run run;
  run.in = (is_k ? p.k_in : p.q_in) + bulk_offset(x.from, t.batch, token, head);
  run.out = (is_k ? p.k_out : p.q_out) + bulk_offset(x.to, t.batch, token, head);
  run.bytes = index < bulk_runs(r, t, heads) ? bulk_run_bytes(r, t, heads) : 0;
  run.place = data + (is_k ? bulk_part_bytes(r, t, t.q_heads) : 0) + index * bulk_run_pitch(r, run.bytes);
  run.head = 0;
  run.middle = run.bytes;
  if constexpr (kEdges) {
    const int off = static_cast<int>(reinterpret_cast<uintptr_t>(run.in) & 15);
    run.place += off;
    run.head = min((16 - off) & 15, run.bytes);
    run.middle = (run.bytes - run.head) & ~15;
  }
  return run;
}

// use(byte) for each 4-byte word of the run outside its middle.
template <class Use>
__device__ __forceinline__ void each_edge(const Run& run, Use use) {
#pragma unroll 1
  for (int at = 0; at < run.head; at += 4) use(at);
#pragma unroll 1
  for (int at = run.head + run.middle; at < run.bytes; at += 4) use(at);
}

template <bool kEdges>
__device__ __forceinline__ void load_run(const Run& run, uint64_t* full) {
  if (run.middle > 0) {
    mbarrier_expect(full, run.middle);
    bulk_load(run.place + run.head, run.in + run.head, run.middle, full);
  }
  if constexpr (kEdges)
    each_edge(run, [&](int at) {
      *reinterpret_cast<uint32_t*>(run.place + at) = *reinterpret_cast<const uint32_t*>(run.in + at);
    });
}

template <bool kEdges>
__device__ __forceinline__ void store_run(const Run& run) {
  if (run.middle > 0) bulk_store(run.out + run.head, run.place + run.head, run.middle);
  if constexpr (kEdges)
    each_edge(run, [&](int at) {
      *reinterpret_cast<uint32_t*>(run.out + at) = *reinterpret_cast<const uint32_t*>(run.place + at);
    });
}

template <int Bytes>
__device__ __forceinline__ Raw<Bytes> shared_load(const char* p) {
  return raw(*reinterpret_cast<const typename Words<Bytes>::type*>(p));
}
template <int Bytes>
__device__ __forceinline__ void shared_store(char* p, const Raw<Bytes>& v) {
  *reinterpret_cast<typename Words<Bytes>::type*>(p) = words(v);
}

template <bool kSplit, int N>
__device__ __forceinline__ void token_angles(const BulkParams& p, const BulkTile& t, int token,
                                             const RopeColumnOf<int>& column, float (&c)[N], float (&s)[N]) {
  const RopeTables& tables = p.tables;
  int batch = t.batch, row = t.token + token;
  if (row >= p.plan.seq) {  // several batches as one
    batch = static_cast<int>(p.plan.by_seq(row));
    row -= batch * p.plan.seq;
  }
  if (tables.position_dtype != BRIM_DTYPE_NONE) row = static_cast<int>(table_row(tables, batch, row));
  if (row < 0) return no_angles(c, s);
  int64_t cos = static_cast<int64_t>(row) * static_cast<int>(tables.cos_strides.row);
  int64_t sin = static_cast<int64_t>(row) * static_cast<int>(tables.sin_strides.row);
  if (batch > 0) {
    cos += batch * tables.cos_strides.batch;
    sin += batch * tables.sin_strides.batch;
  }
  load_angles<kSplit>(tables, cos, sin, column, c, s, LoadVectorColumns{});
}

constexpr int bulk_unroll(int vector_bytes) { return vector_bytes >= 16 ? 1 : 2; }

template <class T, int Bytes, int OrderOf, bool kEdges>
__global__ void __launch_bounds__(kBulkMostThreads, 4) rope_bulk(const __grid_constant__ BulkParams p) {
#if BRIM_BULK_COPIES
  constexpr int N = Bytes / sizeof(T), U = bulk_unroll(Bytes);
  constexpr PairOrder Order{OrderOf};
  const RopeBulk& r = p.plan;
  __builtin_assume(r.edges == kEdges);
  extern __shared__ __align__(128) char shared[];
  uint64_t* const full = reinterpret_cast<uint64_t*>(shared);
  char* const data = shared + kBulkBarrierBytes;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int token_lane = threadIdx.y, head_lane = threadIdx.z;
  const BulkTile t = bulk_tile(r, blockIdx.x, blockIdx.y, blockIdx.z);
  if (t.tokens <= 0) return;

  // One warp loads, before any other needs to be there.
  Run q, k;
  if (thread < 32) {
    if (thread == 0) {
      mbarrier_init(full, 1);
      mbarrier_init_fence();
    }
    __syncwarp();
    q = tile_run<kEdges>(p, t, false, thread, data);
    load_run<kEdges>(q, full);
    k = tile_run<kEdges>(p, t, true, thread, data);
    load_run<kEdges>(k, full);
    __syncwarp();
    if (thread == 0) mbarrier_arrive(full);
  }

  // All that can be done before the tile is there.
  const auto column = rope_pair_column<int>(r.rotary_dim, Order, Order, N, threadIdx.x);
  const bool works = token_lane < t.tokens;
  float c[N], s[N];
  if (works) token_angles<rope_split_column(Order, Order, N)>(p, t, token_lane, column, c, s);
  const int step = (column.in_second - column.in_first) * static_cast<int>(sizeof(T));
  const int first = column.in_first * static_cast<int>(sizeof(T));
  const int pitch = bulk_head_pitch(r, t), heads = works ? t.q_heads + t.k_heads : 0;
  char* const q_at = data + bulk_start(r, t, token_lane, false) + first;
  char* const k_at = data + bulk_start(r, t, token_lane, true) + first;

  __syncthreads();  // the barrier is there for everybody
  mbarrier_wait(full, 0);
  for (int head = head_lane; head < heads; head += U * r.head_lanes) {
    Raw<Bytes> a[U], b[U];
    const auto at = [&](int h) { return (h < t.q_heads ? q_at : k_at) + h * pitch; };
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int h = head + u * r.head_lanes;
      if (h >= heads) continue;
      a[u] = shared_load<Bytes>(at(h));
      b[u] = shared_load<Bytes>(at(h) + step);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int h = head + u * r.head_lanes;
      if (h >= heads) continue;
      rotate<T, Bytes, Order, Order>(a[u], b[u], c, s);
      shared_store<Bytes>(at(h), a[u]);
      shared_store<Bytes>(at(h) + step, b[u]);
    }
  }
  bulk_store_fence();
  __syncthreads();
  if (thread < 32) {
    store_run<kEdges>(q);
    store_run<kEdges>(k);
    bulk_commit();
    bulk_wait_read<0>();  // shared memory is not this CTA's any more once it ends
  }
#else
  __trap();  // the plan asks device_props(), which knows the code that was loaded
#endif
}

}  // namespace brim::cuda

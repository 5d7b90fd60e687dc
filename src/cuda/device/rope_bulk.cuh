// RoPE's bulk form (rope_bulk_index.h): for Hopper and newer, the same bits as the plain form.
//
// A CTA rotates one tile. Bulk copies bring it into shared memory, so that what is on its way costs no
// registers, while the threads fetch their columns of cos and sin; there are many small CTAs on an SM, and
// the hardware starts the next one as soon as one is through. The code is kept short: a CTA lives for two or
// three microseconds, at the kernel's start and end nothing hides what it does besides moving memory, and with
// twice the instructions the SMs could not issue them all in the time that the memory takes.
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

// Run `index` of q or of k.
template <bool kEdges>
__device__ __forceinline__ Run tile_run(const BulkParams& p, const RopeBulk& r, const BulkTile& t, bool is_k,
                                        int index, char* data) {
  const BulkTensor& x = is_k ? r.k : r.q;
  const int heads = is_k ? t.k_heads : t.q_heads;
  const int token = t.token + (r.by_token && !r.one_run ? index : 0);
  const int head = (is_k ? t.k_first : t.q_first) + (r.by_token ? 0 : index);
  Run run;
  run.in = (is_k ? p.k_in : p.q_in) + bulk_offset(x.from, t.batch, token, head);
  run.out = (is_k ? p.k_out : p.q_out) + bulk_offset(x.to, t.batch, token, head);
  run.bytes = bulk_run_bytes(r, t, heads);
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

// use(run) for each run of the tile, by one thread: what it computes is the same for all threads, and so the
// compiler's to do in uniform registers, which bulk copies want.
template <bool kEdges, class Use>
__device__ __forceinline__ void each_run(const BulkParams& p, const RopeBulk& r, const BulkTile& t,
                                         char* data, Use use) {
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int heads = k ? t.k_heads : t.q_heads;
    if (heads == 0) continue;
#pragma unroll 1
    for (int i = 0; i < bulk_runs(r, t, heads); ++i) use(tile_run<kEdges>(p, r, t, k, i, data));
  }
}

// use(run, byte) for each 4-byte word of the tile's runs outside their middles, by all of a CTA's threads.
template <class Use>
__device__ __forceinline__ void each_edge(const BulkParams& p, const RopeBulk& r, const BulkTile& t,
                                          char* data, int thread, int threads, Use use) {
  constexpr int kWords = 3;  // at either end, at most
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int heads = k ? t.k_heads : t.q_heads, runs = heads == 0 ? 0 : bulk_runs(r, t, heads);
#pragma unroll 1
    for (int i = thread; i < runs * 2 * kWords; i += threads) {
      const Run run = tile_run<true>(p, r, t, k, i / (2 * kWords), data);
      const int word = i % (2 * kWords);
      const bool after = word >= kWords;
      const int at = after ? run.head + run.middle + (word - kWords) * 4 : word * 4;
      if (at < (after ? run.bytes : run.head)) use(run, at);
    }
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
  const auto at = [&](int64_t stride) {  // neither is negative, or larger than 32 bits
    return static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(row)) *
                                static_cast<uint32_t>(stride));
  };
  int64_t cos = at(tables.cos_strides.row), sin = at(tables.sin_strides.row);
  if (batch > 0) {
    cos += batch * tables.cos_strides.batch;
    sin += batch * tables.sin_strides.batch;
  }
  load_angles<kSplit>(tables, cos, sin, column, c, s, LoadVectorColumns{});
}

// Heads that a thread works on at once: what fits the registers.
constexpr int bulk_unroll(int elements) { return elements > 4 ? 1 : 2; }
// Which leaves a thread 40 registers; 8192 x (32+8) x 80 bf16: 0.98 of a copy, with 48 registers 0.96. For Blackwell the
// compiler needs some more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
inline constexpr int kBulkCtasOfMostThreads = 5;
#else
inline constexpr int kBulkCtasOfMostThreads = 6;
#endif

template <class T, int Bytes, int OrderOf, bool kOneRun, bool kEdges>
__global__ void __launch_bounds__(kBulkMostThreads, kBulkCtasOfMostThreads)
    rope_bulk(const __grid_constant__ BulkParams p) {
#if BRIM_BULK_COPIES
  constexpr int N = Bytes / sizeof(T), U = bulk_unroll(N);
  constexpr PairOrder Order{OrderOf};
  RopeBulk r = p.plan;  // with what is known when this is compiled
  r.edges = kEdges;
  r.one_run = kOneRun;
  if (kOneRun) {
    r.by_token = true;
    r.side_shift = 0;
  }
  extern __shared__ __align__(128) char shared[];
  uint64_t* const full = reinterpret_cast<uint64_t*>(shared);
  char* const data = shared + kBulkBarrierBytes;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int token_lane = threadIdx.y, head_lane = threadIdx.z;
  const BulkTile t = bulk_tile(r, blockIdx.x, blockIdx.y, blockIdx.z);
  if (t.tokens <= 0) return;

  if (thread == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    each_run<kEdges>(p, r, t, data, [&](const Run& run) {
      if (kEdges && run.middle == 0) return;
      mbarrier_expect(full, run.middle);
      bulk_load(run.place + run.head, run.in + run.head, run.middle, full);
    });
    mbarrier_arrive(full);
  }
  const auto at_edges = [&](auto&& use) {
    if constexpr (kEdges) each_edge(p, r, t, data, thread, blockDim.x * blockDim.y * blockDim.z, use);
  };
  at_edges([](const Run& run, int at) {
    *reinterpret_cast<uint32_t*>(run.place + at) = *reinterpret_cast<const uint32_t*>(run.in + at);
  });

  // All that can be done before the tile is there.
  const auto column = rope_pair_column<int>(r.rotary_dim, Order, Order, N, threadIdx.x);
  const int token = min(token_lane, t.tokens - 1);
  float c[N], s[N];
  token_angles<rope_split_column(Order, Order, N)>(p, t, token, column, c, s);
  const int step = (column.in_second - column.in_first) * static_cast<int>(sizeof(T));
  const int first = column.in_first * static_cast<int>(sizeof(T));
  int pitch = bulk_head_pitch(r, t), heads = token_lane < t.tokens ? t.q_heads + t.k_heads : 0;
  int q_at = bulk_start(r, t, token, false) + first, k_at = bulk_start(r, t, token, true) + first;
  // The compiler would compute them where they are used first, after the wait.
  asm volatile("" : "+r"(q_at), "+r"(k_at), "+r"(heads), "+r"(pitch));

  __syncthreads();  // the barrier is there for everybody
  mbarrier_wait(full, 0);
  for (int head = head_lane; head < heads; head += U * r.head_lanes) {
    Raw<Bytes> a[U], b[U];
    const auto at = [&](int h) { return data + (h < t.q_heads ? q_at : k_at) + h * pitch; };
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
  at_edges([](const Run& run, int at) {
    *reinterpret_cast<uint32_t*>(run.out + at) = *reinterpret_cast<const uint32_t*>(run.place + at);
  });
  if (thread == 0) {
    each_run<kEdges>(p, r, t, data, [](const Run& run) {
      if (!kEdges || run.middle > 0) bulk_store(run.out + run.head, run.place + run.head, run.middle);
    });
    bulk_commit();
    bulk_wait_read<0>();  // shared memory is not this CTA's any more once it ends
  }
#else
  __trap();  // the plan asks device_props(), which knows the code that was loaded
#endif
}

}  // namespace brim::cuda

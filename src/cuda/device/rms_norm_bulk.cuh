// The norms' forward through shared memory (Hopper and newer).
//
// A CTA has one row or some short ones, and ends. Bulk copies bring the row into shared memory, so that what is on its way
// costs no registers; what is computed takes its place there and leaves by bulk copies too. Many small CTAs on an SM are at
// different steps, which keeps the memory busy.
//
// kShifted: rows need not begin at multiples of 16 bytes. Shared memory holds such a row at the same place within 16 bytes; all
// that these 16 bytes hold is brought along, but of the last row, beside which there may be nothing. The row's
// vectors then are those between multiples of 16 bytes in the tensor that is written (NormGrid); what lies alike there is read
// as whole vectors too, which everything does where rows of an odd length are contiguous, and the rest by unaligned loads. The
// columns at both ends are some threads' single ones.
#pragma once

#include <type_traits>

#include "cuda/device/bulk.cuh"
#include "cuda/device/rms_norm.cuh"
#include "cuda/device/rms_norm_forward.cuh"

namespace brim::cuda {

template <class T, int N>
__device__ __forceinline__ Elements<T, N> shared_elements(const char* at) {
  constexpr int kBytes = N * sizeof(T);
  using Part = typename Words<kPartBytes<kBytes>>::type;
  return {load_parts<kBytes>([=](int i) { return raw(reinterpret_cast<const Part*>(at)[i]); })};
}
template <class T, int N>
__device__ __forceinline__ void shared_put(char* at, const Elements<T, N>& e) {
  constexpr int kBytes = N * sizeof(T);
  using Part = typename Words<kPartBytes<kBytes>>::type;
  store_parts<kBytes>(e.raw, [=](int i, const auto& part) { reinterpret_cast<Part*>(at)[i] = words(part); });
}

// A CTA's `count` columns as `vectors` of N, the first one at column `head`, and single ones before and after these.
template <int N, bool kShifted>
struct NormGrid {
  int count = 0, head = 0, vectors = 0;

  // Whole vectors in the tensor of T where `at` is the first column. kShifted leaves at least N columns after them, which loads
  // of unaligned weights need.
  template <class T>
  static __device__ __forceinline__ NormGrid of(const char* at, int count) {
    if constexpr (!kShifted) return {count, 0, count / N};
    const int off = static_cast<int>(reinterpret_cast<uintptr_t>(at) & 15) / static_cast<int>(sizeof(T)) % N;
    const int head = min((N - off) % N, count);
    return {count, head, max(count - head - N, 0) / N};
  }
  __device__ __forceinline__ int column(int vector) const { return (kShifted ? head : 0) + vector * N; }
  // That of a thread that has a single one, else -1.
  __device__ __forceinline__ int single(int thread) const {
    const int column = thread < N ? thread : this->column(vectors) + thread - N;
    return kShifted && thread < 3 * N && (thread >= N || column < head) && column < count ? column : -1;
  }
  // Whether its vectors are whole ones of T too, where `at` is the first column.
  template <class T>
  __device__ __forceinline__ bool fits(const char* at) const {
    return !kShifted || (reinterpret_cast<uintptr_t>(at) + head * sizeof(T)) % 16 == 0;
  }
};

template <class T, int N, bool kWhole>
__device__ __forceinline__ Elements<T, N> norm_shared(const char* at) {
  if constexpr (kWhole)
    return shared_elements<T, N>(at);
  else
    return {unaligned_shared_load<T, Elements<T, N>::kBytes>(at)};
}

// A CTA's share of a row in memory, and its place in shared memory. `alone`: nothing beside it may be read.
template <class T, bool kShifted>
struct NormPart {
  char *global, *shared;
  int bytes;
  BulkRun run;

  __device__ __forceinline__ NormPart(char* row, int begin, int count, char* slot, bool alone)
      : global(row + begin * static_cast<int64_t>(sizeof(T))),
        shared(slot),
        bytes(count * static_cast<int>(sizeof(T))) {
    if constexpr (kShifted) {
      run = bulk_run(global, bytes);
      shared += run.off;
      if (!alone) run = {run.off, -run.off, bytes > 0 ? (run.off + bytes + 15) & ~15 : 0};
    } else {
      run = {0, 0, bytes};
    }
  }
  // By one thread.
  __device__ __forceinline__ void load(uint64_t* full) const {
    if (run.middle > 0) bulk_load(shared + run.head, global + run.head, run.middle, full);
  }
  // What that leaves out at both ends, by 16 of `thread`'s.
  __device__ __forceinline__ void load_ends(int thread) const {
    if constexpr (kShifted) {
      if (thread >= 16) return;
      constexpr int kSize = sizeof(T);
      const bool after = thread >= 8;
      const int at = after ? run.head + run.middle + (thread - 8) * kSize : thread * kSize;
      if (at < (after ? bytes : run.head))
        *reinterpret_cast<T*>(shared + at) = *reinterpret_cast<const T*>(global + at);
    }
  }
};

// Whether there may be nothing within 16 bytes of a row's end: each other row ends 16 bytes or more before the last one.
__device__ __forceinline__ bool norm_alone(const NormParams& p, int row) {
  return p.rows_overlap || row == p.rows - 1;
}

// For the threads of one row.
__device__ __forceinline__ void norm_row_barrier() {
  if (blockDim.x == 32)
    __syncwarp();
  else
    __syncthreads();
}

template <class TX, class TS, class TW, bool kAdd, int N, bool kShifted>
__device__ __forceinline__ void norm_forward_bulk(const NormParams& p) {
  extern __shared__ __align__(128) char slots[];
  __shared__ uint64_t barriers[32];
  __shared__ NormShared shared;
  const int lanes = blockDim.x, thread = threadIdx.x;
  const int row = blockIdx.x * static_cast<int>(blockDim.y) + static_cast<int>(threadIdx.y);
  const bool on = row < p.rows;
  const int count = on ? static_cast<int>(p.hidden) : 0;
  const NormRow place = norm_row(p, min(row, p.rows - 1));
  char* const slot = slots + threadIdx.y * (p.pitch + (kAdd ? p.sum_pitch : 0));
  uint64_t* const full = barriers + threadIdx.y;
  const bool alone = norm_alone(p, row);
  const NormPart<TX, kShifted> x(norm_at<TX>(p, kX, place), 0, count, slot, alone);
  const NormPart<TS, kShifted> residual(kAdd ? norm_at<TS>(p, kResidual, place) : nullptr, 0,
                                        kAdd ? count : 0, slot + p.pitch, alone);
  if (thread == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    mbarrier_expect(full, x.run.middle + (kAdd ? residual.run.middle : 0));
    x.load(full);
    if constexpr (kAdd) residual.load(full);
    mbarrier_arrive(full);
  }
  if (alone) {
    x.load_ends(thread);
    if constexpr (kAdd) residual.load_ends(thread);
  }
  // What is written: y, and before it the sum, each in its own vectors. Without an add x is summed in x's.
  char* const y = norm_at<TX>(p, kY, place);
  char* const sum = kAdd ? norm_at<TS>(p, kSum, place) : x.global;
  using Grid = NormGrid<N, kShifted>;
  const Grid grid = Grid::template of<TX>(y, count), sum_grid = Grid::template of<TS>(sum, count);

  // Some weights at a time, the first ones while the row is on its way.
  constexpr int kWeights = 16 / N > 2 ? 4 : 2;
  Elements<TW, N> w[kWeights];
  const auto load_weights = [&](int i) {
#pragma unroll
    for (int u = 0; u < kWeights; ++u) {
      if (i + u * lanes >= grid.vectors) continue;
      const int column = grid.column(i + u * lanes);
      if constexpr (kShifted)
        w[u] = norm_load_unaligned_weight<TW, N>(p, column);
      else
        w[u] = norm_load_weight<TW, N>(p, column);
    }
  };
  load_weights(thread);
  const int single = grid.single(thread), sum_single = sum_grid.single(thread);
  Elements<TW, 1> single_weight{};
  if (kShifted && single >= 0) single_weight = norm_load_weight<TW, 1>(p, single);
  __syncthreads();  // the barrier and the ends are there for everybody
  mbarrier_wait(full, 0);

  // S: x, or its sum with the residual, which takes the residual's place, or else is formed twice.
  const auto s_at = [&](auto columns, auto whole, int column, bool again) {
    constexpr int M = decltype(columns)::value;
    constexpr bool kWhole = decltype(whole)::value;
    const char* const from = x.shared + column * static_cast<int>(sizeof(TX));
    if constexpr (!kAdd) {
      return norm_shared<TS, M, kWhole>(from);
    } else {
      const auto r = norm_shared<TS, M, kWhole>(residual.shared + column * static_cast<int>(sizeof(TS)));
      if (again && !kShifted) return r;
      return norm_add<TX, TS, true, M>(norm_shared<TX, M, kWhole>(from), r);
    }
  };
  constexpr std::integral_constant<int, N> kVector;
  constexpr std::integral_constant<int, 1> kSingle;
  // use(true or false): whether all that is read fits that grid.
  const auto by_fit = [&](const Grid& g, auto use) {
    if (g.template fits<TX>(x.shared) && (!kAdd || g.template fits<TS>(residual.shared)))
      use(std::true_type());
    else if constexpr (kShifted)
      use(std::false_type());
  };
  float squares = 0;
  constexpr int kUnrolled = kShifted ? 2 : 4;
  by_fit(sum_grid, [&](auto whole) {
#pragma unroll kUnrolled
    for (int i = thread; i < sum_grid.vectors; i += lanes) {
      const int column = sum_grid.column(i);
      const Elements<TS, N> s = s_at(kVector, whole, column, false);
      if constexpr (kAdd) {
        if constexpr (kShifted)
          norm_store<TS, N>(sum + column * static_cast<int64_t>(sizeof(TS)), s);
        else
          shared_put<TS, N>(residual.shared + column * static_cast<int>(sizeof(TS)), s);
      }
      squares += norm_squares(s);
    }
  });
  if (kShifted && sum_single >= 0) {
    const Elements<TS, 1> s = s_at(kSingle, std::true_type(), sum_single, false);
    if constexpr (kAdd) norm_store<TS, 1>(sum + sum_single * static_cast<int64_t>(sizeof(TS)), s);
    squares += norm_squares(s);
  }
  if constexpr (kAdd && !kShifted) bulk_store_fence();
  squares = norm_sum(squares, shared, 0);
  if constexpr (kAdd && !kShifted) {
    if (lanes == 32) __syncwarp();
    if (thread == 0 && count > 0) {
      bulk_store(sum, residual.shared, residual.bytes);
      bulk_commit();
    }
  }
  const float rstd = norm_rstd(p, squares);
  if (p.saves_rstd && thread == 0 && on) p.rstd[row * p.rstd_stride] = rstd;

  by_fit(grid, [&](auto whole) {
    for (int i = thread; i < grid.vectors; i += kWeights * lanes) {
      if (i > thread) load_weights(i);
#pragma unroll
      for (int u = 0; u < kWeights; ++u) {
        if (i + u * lanes >= grid.vectors) continue;
        const int column = grid.column(i + u * lanes);
        const Elements<TX, N> scaled = norm_scaled<TX>(p, s_at(kVector, whole, column, true), rstd, w[u]);
        if constexpr (kShifted)
          norm_store<TX, N>(y + column * static_cast<int64_t>(sizeof(TX)), scaled);
        else
          shared_put<TX, N>(x.shared + column * static_cast<int>(sizeof(TX)), scaled);
      }
    }
  });
  if (kShifted && single >= 0)
    norm_store<TX, 1>(y + single * static_cast<int64_t>(sizeof(TX)),
                      norm_scaled<TX>(p, s_at(kSingle, std::true_type(), single, true), rstd, single_weight));
  if constexpr (kShifted) return;
  bulk_store_fence();
  norm_row_barrier();
  if (thread == 0 && count > 0) {
    bulk_store(y, x.shared, x.bytes);
    bulk_commit();
    bulk_wait_read<0>();  // shared memory is not this CTA's any more once it ends
  }
}

}  // namespace brim::cuda

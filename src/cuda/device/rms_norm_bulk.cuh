// The norms' forward through shared memory (Hopper and newer).
//
// A CTA has one row or some short ones, and ends. Bulk copies bring the row into shared memory, so that what is on its way
// costs no registers; what is computed takes its place there and leaves by bulk copies too. Many small CTAs on an SM are at
// different steps, which keeps the memory busy.
//
// kShifted: rows need not begin at multiples of 16 bytes. Shared memory holds such a row at the same place within 16 bytes;
// its ends are loaded by element, its vectors read and stored as unaligned ones.
#pragma once

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

// N elements at `at`, the first `left` of them and zeros, or all.
template <class T, int N, bool kShifted>
__device__ __forceinline__ Elements<T, N> norm_shared(const char* at, int left) {
  if constexpr (!kShifted) return shared_elements<T, N>(at);
  Elements<T, N> e{unaligned_shared_load<T, Elements<T, N>::kBytes>(at)};
  if (left < N) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < left) continue;
      if constexpr (sizeof(T) == 2)
        e.raw.word[i / 2] &= i % 2 ? 0x0000ffffu : 0u;
      else
        e.raw.word[i] = 0;
    }
  }
  return e;
}

// A CTA's share of a row in memory, and its place in shared memory.
template <class T, bool kShifted>
struct NormPart {
  char *global, *shared;
  int bytes;
  BulkRun run;

  __device__ __forceinline__ NormPart(char* row, int begin, int count, char* slot)
      : global(row + begin * static_cast<int64_t>(sizeof(T))),
        shared(slot),
        bytes(count * static_cast<int>(sizeof(T))) {
    if constexpr (kShifted) {
      run = bulk_run(global, bytes);
      shared += run.off;
    } else {
      run = {0, 0, bytes};
    }
  }
  // By one thread.
  __device__ __forceinline__ void load(uint64_t* full) const {
    if (run.middle > 0) bulk_load(shared + run.head, global + run.head, run.middle, full);
  }
  // What lies outside the middle, by 16 of `thread`'s.
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
  const NormPart<TX, kShifted> x(norm_at<TX>(p, kX, place), 0, count, slot);
  const NormPart<TS, kShifted> residual(kAdd ? norm_at<TS>(p, kResidual, place) : nullptr, 0,
                                        kAdd ? count : 0, slot + p.pitch);
  if (thread == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    mbarrier_expect(full, x.run.middle + (kAdd ? residual.run.middle : 0));
    x.load(full);
    if constexpr (kAdd) residual.load(full);
    mbarrier_arrive(full);
  }
  x.load_ends(thread);
  if constexpr (kAdd) residual.load_ends(thread);

  // Some weights at a time, the first ones while the row is on its way.
  constexpr int kWeights = 16 / N > 2 ? 4 : 2;
  Elements<TW, N> w[kWeights];
  const auto left_at = [&](int column) { return kShifted ? count - column : N; };
  const auto load_weights = [&](int i) {
#pragma unroll
    for (int u = 0; u < kWeights; ++u) {
      const int column = (i + u * lanes) * N;
      if (column >= count) continue;
      if constexpr (kShifted)
        w[u] = norm_load_weight<TW, N>(p, column, left_at(column));
      else
        w[u] = norm_load_weight<TW, N>(p, column);
    }
  };
  load_weights(thread);
  __syncthreads();  // the barrier and the ends are there for everybody
  mbarrier_wait(full, 0);

  // S: x, or its sum with the residual, which takes the residual's place, or else is formed twice.
  const auto s_at = [&](int column, int left, bool again) {
    if constexpr (!kAdd) {
      return norm_shared<TS, N, kShifted>(x.shared + column * static_cast<int>(sizeof(TS)), left);
    } else {
      const Elements<TS, N> r =
          norm_shared<TS, N, kShifted>(residual.shared + column * static_cast<int>(sizeof(TS)), left);
      if (again && !kShifted) return r;
      return norm_add<TX, TS, true, N>(
          norm_shared<TX, N, kShifted>(x.shared + column * static_cast<int>(sizeof(TX)), left), r);
    }
  };
  // Below, all lanes of a warp go on where one has a column: unaligned stores need them.
  char* const sum = kAdd ? norm_at<TS>(p, kSum, place) : nullptr;
  float squares = 0;
#pragma unroll 4
  for (int i = thread; (kShifted ? i - thread % 32 : i) * N < count; i += lanes) {
    const int column = i * N, left = left_at(column);
    const Elements<TS, N> s = s_at(kShifted && left <= 0 ? 0 : column, left, false);
    if constexpr (kAdd) {
      if constexpr (kShifted)
        norm_put<TS, N, true>(sum + column * static_cast<int64_t>(sizeof(TS)), s, left);
      else
        shared_put<TS, N>(residual.shared + column * static_cast<int>(sizeof(TS)), s);
    }
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

  char* const y = norm_at<TX>(p, kY, place);
  for (int i = thread; (kShifted ? i - thread % 32 : i) * N < count; i += kWeights * lanes) {
    if (i > thread) load_weights(i);
#pragma unroll
    for (int u = 0; u < kWeights; ++u) {
      const int column = (i + u * lanes) * N, left = left_at(column);
      if ((kShifted ? column - thread % 32 * N : column) >= count) continue;
      const Elements<TS, N> s = s_at(kShifted && left <= 0 ? 0 : column, left, true);
      const Elements<TX, N> scaled = norm_scaled<TX>(p, s, rstd, w[u]);
      if constexpr (kShifted)
        norm_put<TX, N, true>(y + column * static_cast<int64_t>(sizeof(TX)), scaled, left);
      else
        shared_put<TX, N>(x.shared + column * static_cast<int>(sizeof(TX)), scaled);
    }
  }
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

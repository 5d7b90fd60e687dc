// What the norms' kernels share: where rows are, sums over a row's threads, the weight.
#pragma once

#include "brim/ops/rms_norm.h"
#include "cuda/device/unaligned.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/rms_norm_plan.h"

namespace brim::cuda {

// The tensors of rows: those of forward, then those of backward, which take the same places.
enum NormTensorIndex { kX = 0, kY, kResidual, kSum, kS = 0, kDy, kDx, kDsum, kDresidual, kNormTensors };
struct NormTensor {
  char* data;
  int64_t stride, column;  // in elements: of the rows' first axis, of columns
};

// What every row needs comes first and lies together: a kernel's start waits for each line of these that it reads.
struct NormParams {
  int64_t hidden;
  int32_t rows;
  int32_t axes;    // of the rows
  int32_t groups;  // see NormPlan, also below
  float inverse_hidden, eps, offset;
  bool round_xhat, saves_rstd, has_dy, has_dsum, wants_dx, wants_dresidual, wants_partials;
  const char* weight;
  float* rstd;
  int64_t weight_stride, rstd_stride;
  NormTensor tensor[kNormTensors];
  int32_t cluster, share, slots, pitch, sum_pitch;
  float* partials;
  float* slopes;      // of the loop form: rstd^2 * mean(m * xhat) of each row
  bool makes_slopes;  // its first launch
  bool rows_overlap;  // some rows begin less than 16 bytes after others
  // Where rows begin anywhere, so do the partials: row i at (partial_off + i * partial_step) & partial_mask.
  int32_t partial_off, partial_step, partial_mask;
  int64_t partial_pitch;   // floats from one row of partials to the next
  int32_t partials_count;  // rows of them
  char* dweight;
  int64_t dweight_stride;
  brim_dtype dweight_dtype;
  int32_t finish_columns;         // that a CTA sums after the whole grid's last row; 0: none
  Divider by[ops::kMostRowAxes];  // the rows' further axes
  int64_t inner[kNormTensors][ops::kMostRowAxes];
};

// A row's place on each axis of the rows.
struct NormRow {
  int place[ops::kMostRowAxes];
};

__device__ __forceinline__ NormRow norm_row(const NormParams& p, int row) {
  NormRow r{};
  if (p.axes > 1) {
#pragma unroll
    for (int i = ops::kMostRowAxes - 1; i > 0; --i) {
      if (i >= p.axes) continue;
      const int next = static_cast<int>(p.by[i](static_cast<uint32_t>(row)));
      r.place[i] = row - next * static_cast<int>(p.by[i].divisor());
      row = next;
    }
  }
  r.place[0] = row;
  return r;
}

// Where a row of T begins.
template <class T>
__device__ __forceinline__ char* norm_at(const NormParams& p, int tensor, const NormRow& row) {
  const NormTensor& t = p.tensor[tensor];
  int64_t at = row.place[0] * t.stride;
  if (p.axes > 1) {
#pragma unroll
    for (int i = 1; i < ops::kMostRowAxes; ++i)
      if (i < p.axes) at += row.place[i] * p.inner[tensor][i];
  }
  return t.data + at * static_cast<int64_t>(sizeof(T));
}

// N adjoining elements of T, kept in their storage type.
template <class T, int N>
struct Elements {
  static constexpr int kBytes = N * sizeof(T);
  Raw<kBytes> raw;

  __device__ __forceinline__ float operator[](int i) const { return widen<T>(raw, i); }
};

// Element `column` of a row that begins at `row`; `stride` counts where N is 1.
template <class T, int N>
__device__ __forceinline__ char* norm_element(char* row, int64_t column, int64_t stride) {
  return row + (N == 1 ? column * stride : column) * static_cast<int64_t>(sizeof(T));
}

template <class T, int N>
__device__ __forceinline__ Elements<T, N> norm_load(const char* at) {
  constexpr int kBytes = N * sizeof(T);
  return {load_parts<kBytes>([=](int i) { return load_once<kPartBytes<kBytes>>(at + 16 * i); })};
}

template <class T, int N>
__device__ __forceinline__ void norm_store(char* at, const Elements<T, N>& e) {
  constexpr int kBytes = N * sizeof(T);
  store_parts<kBytes>(e.raw, [=](int i, const auto& part) { store<kPartBytes<kBytes>>(at + 16 * i, part); });
}

// The same where it may begin between vectors, if kApart.
template <class T, int N, bool kApart>
__device__ __forceinline__ void norm_put(char* at, const Elements<T, N>& e) {
  if constexpr (!kApart || N == 1) {
    norm_store<T, N>(at, e);
  } else if (reinterpret_cast<uintptr_t>(at) % kPartBytes<N * sizeof(T)> == 0) {
    norm_store<T, N>(at, e);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      Raw<sizeof(T)> one;
      if constexpr (sizeof(T) == 2)
        one.word[0] = static_cast<uint16_t>(i % 2 ? e.raw.word[i / 2] >> 16 : e.raw.word[i / 2] & 0xffffu);
      else
        one.word[0] = e.raw.word[i];
      store<sizeof(T)>(at + i * static_cast<int>(sizeof(T)), one);
    }
  }
}

template <class T, int N>
__device__ __forceinline__ Elements<T, N> norm_narrow(const float (&x)[N]) {
  constexpr int kBytes = N * sizeof(T);
  return {narrow<T, kBytes>(x)};
}

// The weights of N adjoining columns.
template <class W, int N>
__device__ __forceinline__ Elements<W, N> norm_load_weight(const NormParams& p, int64_t column) {
  if (!p.weight) return {};
  constexpr int kBytes = N * sizeof(W);
  const char* at = p.weight + (N == 1 ? column * p.weight_stride : column) * static_cast<int64_t>(sizeof(W));
  return {load_constant<kBytes>(at)};
}
// The same wherever they begin, of a weight that has no gaps and N columns more. Its first piece may begin before the weight,
// which then is not where its allocation begins.
template <class W, int N>
__device__ __forceinline__ Elements<W, N> norm_load_unaligned_weight(const NormParams& p, int64_t column) {
  if (!p.weight) return {};
  return {unaligned_load<W, N * sizeof(W)>(
      p.weight + column * static_cast<int64_t>(sizeof(W)),
      [](const char* piece) { return load_constant<kPartBytes<N * sizeof(W)>>(piece); })};
}
// What x * rstd is multiplied by.
template <class W, int N>
__device__ __forceinline__ float norm_factor(const NormParams& p, const Elements<W, N>& w, int i) {
  return p.weight ? p.offset + w[i] : 1;
}

// What the threads of a row add up to, for all of them, always in the same order. Called by all threads of a CTA alike, or,
// where kApart, of a row. `shared`: for two calls in turn, so that one barrier a call is enough.
struct NormShared {
  float warps[2][32];
};
__device__ __forceinline__ float norm_warp_sum(float x) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
template <bool kApart = false>
__device__ __forceinline__ float norm_sum(float x, NormShared& shared, int turn) {
  const int lanes = blockDim.x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2)
    if (step < lanes) x += __shfl_xor_sync(0xffffffffu, x, step);
  if (lanes <= 32) return x;
  const int count = lanes / 32, lane = threadIdx.x % 32;
  float* const warps = shared.warps[turn] + threadIdx.y * count;
  if (lane == 0) warps[threadIdx.x / 32] = x;
  if (!kApart || blockDim.y == 1)
    __syncthreads();
  else
    asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.y), "r"(lanes) : "memory");
  return norm_warp_sum(lane < count ? warps[lane] : 0);
}

}  // namespace brim::cuda

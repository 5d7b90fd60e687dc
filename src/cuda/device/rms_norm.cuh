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
  bool weight_whole;  // whole vectors of weights
  const char* weight;
  float* rstd;
  int64_t weight_stride, rstd_stride;
  NormTensor tensor[kNormTensors];
  int32_t cluster, share, slots, pitch, sum_pitch;
  float* partials;
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

// The first `left` elements, or all; where kShifted at any address and by all lanes of a warp, one after another.
template <class T, int N, bool kShifted>
__device__ __forceinline__ void norm_put(char* at, const Elements<T, N>& e, int left) {
  if constexpr (kShifted)
    unaligned_store<T, Elements<T, N>::kBytes>(at, e.raw, left);
  else
    norm_store<T, N>(at, e);
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
// The same of the first `left` columns, or all, wherever the weight is and however its elements lie.
template <class W, int N>
__device__ __forceinline__ Elements<W, N> norm_load_weight(const NormParams& p, int64_t column, int left) {
  if (p.weight_whole && left >= N) return norm_load_weight<W, N>(p, column);
  Elements<W, N> e{};
  if (!p.weight) return e;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= left) continue;
    const Elements<W, 1> one = norm_load_weight<W, 1>(p, column + i);
    if constexpr (sizeof(W) == 2)
      e.raw.word[i / 2] |= static_cast<uint32_t>(one.raw.word[0]) << (i % 2 * 16);
    else
      e.raw.word[i] = one.raw.word[0];
  }
  return e;
}
// What x * rstd is multiplied by.
template <class W, int N>
__device__ __forceinline__ float norm_factor(const NormParams& p, const Elements<W, N>& w, int i) {
  return p.weight ? p.offset + w[i] : 1;
}

// What the threads of a row add up to, for all of them, always in the same order. Called by all threads of a CTA alike.
// `shared`: for two calls in turn, so that one barrier a call is enough.
struct NormShared {
  float warps[2][32];
};
__device__ __forceinline__ float norm_warp_sum(float x) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
__device__ __forceinline__ float norm_sum(float x, NormShared& shared, int turn) {
  const int lanes = blockDim.x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2)
    if (step < lanes) x += __shfl_xor_sync(0xffffffffu, x, step);
  if (lanes <= 32) return x;
  const int count = lanes / 32, lane = threadIdx.x % 32;
  float* const warps = shared.warps[turn] + threadIdx.y * count;
  if (lane == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  return norm_warp_sum(lane < count ? warps[lane] : 0);
}

}  // namespace brim::cuda

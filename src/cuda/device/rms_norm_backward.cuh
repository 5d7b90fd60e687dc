// The kernels of the norms' backward: dx and, in the same pass, each CTA's float32 sums for dweight; then their sum.
#pragma once

#include "cuda/device/rms_norm.cuh"

namespace brim::cuda {

// N columns of what backward reads, in storage types; dsum only where kAdd.
template <class TX, class TS, bool kAdd, int N>
struct NormGradients {
  Elements<TS, N> s;
  Elements<TX, N> dy;
  Elements<TS, kAdd ? N : 1> dsum;
};

template <class TX, class TS, bool kAdd>
struct NormBackwardRow {
  char *s, *dy, *dsum, *dx, *dresidual;

  __device__ __forceinline__ NormBackwardRow(const NormParams& p, int row) {
    const NormRow place = norm_row(p, row);
    s = norm_at<TS>(p, kS, place);
    dy = norm_at<TX>(p, kDy, place);
    dx = norm_at<TX>(p, kDx, place);
    dsum = kAdd ? norm_at<TS>(p, kDsum, place) : nullptr;
    dresidual = kAdd ? norm_at<TS>(p, kDresidual, place) : nullptr;
  }

  template <int N>
  __device__ __forceinline__ void load(const NormParams& p, int64_t column,
                                       NormGradients<TX, TS, kAdd, N>& g) const {
    if (!kAdd || p.has_dy) {
      g.s = norm_load<TS, N>(norm_element<TS, N>(s, column, p.tensor[kS].column));
      g.dy = norm_load<TX, N>(norm_element<TX, N>(dy, column, p.tensor[kDy].column));
    }
    if constexpr (kAdd)
      if (p.has_dsum) g.dsum = norm_load<TS, N>(norm_element<TS, N>(dsum, column, p.tensor[kDsum].column));
  }

  // dx = rstd * (m - xhat * mean(m * xhat)), plus dsum. slope: rstd^2 * mean(m * xhat).
  template <bool kShifted = false, int N>
  __device__ __forceinline__ void finish(const NormParams& p, int64_t column,
                                         const NormGradients<TX, TS, kAdd, N>& g, const float (&w)[N],
                                         float rstd, float slope, int left = N) const {
    float d[N];
#pragma unroll
    for (int i = 0; i < N; ++i) d[i] = !kAdd || p.has_dy ? fmaf(g.dy[i] * w[i], rstd, -slope * g.s[i]) : 0;
    if constexpr (kAdd)
      if (p.has_dsum) {
#pragma unroll
        for (int i = 0; i < N; ++i) d[i] += g.dsum[i];
      }
    if (p.wants_dx)
      norm_put<TX, N, kShifted>(norm_element<TX, N>(dx, column, p.tensor[kDx].column), norm_narrow<TX, N>(d),
                                left);
    if constexpr (kAdd)
      if (p.wants_dresidual)
        norm_put<TS, N, kShifted>(norm_element<TS, N>(dresidual, column, p.tensor[kDresidual].column),
                                  norm_narrow<TS, N>(d), left);
  }
};

// This row's part of sum(m * s), and of dweight.
template <class TX, class TS, bool kAdd, int N>
__device__ __forceinline__ float norm_products(const NormGradients<TX, TS, kAdd, N>& g, const float (&w)[N],
                                               float rstd, float (&dweight)[N]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float product = g.dy[i] * g.s[i];
    sum = fmaf(product, w[i], sum);
    dweight[i] = fmaf(product, rstd, dweight[i]);
  }
  return sum;
}

// Of the whole row's sum(m * s): what finish() takes.
__device__ __forceinline__ float norm_slope(const NormParams& p, float sum, float rstd) {
  return rstd * (rstd * (rstd * (sum * p.inverse_hidden)));
}

template <class TW, int N>
__device__ __forceinline__ void norm_factors(const NormParams& p, int64_t column, float (&w)[N]) {
  const Elements<TW, N> raw = norm_load_weight<TW, N>(p, column);
#pragma unroll
  for (int i = 0; i < N; ++i) w[i] = norm_factor(p, raw, i);
}

// N sums for dweight, whole vectors of them where there are.
template <int N>
__device__ __forceinline__ void norm_store_sums(float* at, const float (&dweight)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      reinterpret_cast<float4*>(at)[i] =
          make_float4(dweight[4 * i], dweight[4 * i + 1], dweight[4 * i + 2], dweight[4 * i + 3]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) at[i] = dweight[i];
  }
}

// V vectors of N elements a thread: a row is read once, and the next one is on its way while this one is reduced. A vector
// beyond the row's end reads the last one instead, so that no load waits behind a branch.
template <class TX, class TS, class TW, bool kAdd, int N, int V>
__device__ __forceinline__ void norm_backward_rows(const NormParams& p) {
  extern __shared__ __align__(16) float sums[];  // several rows a CTA: their sums for dweight
  __shared__ NormShared shared;
  const int lanes = blockDim.x, hidden = static_cast<int>(p.hidden), last = hidden - N;
  const int first = static_cast<int>(threadIdx.x);
  const auto column = [&](int v) { return (first + v * lanes) * N; };
  const auto place = [&](int v) { return min(column(v), last); };
  const bool has_dy = !kAdd || p.has_dy;
  float w[V][N], dweight[V][N] = {};
#pragma unroll
  for (int v = 0; v < V; ++v) { norm_factors<TW, N>(p, place(v), w[v]); }

  const int group = blockIdx.x, stride = p.groups * static_cast<int>(blockDim.y);
  NormGradients<TX, TS, kAdd, N> now[V], next[V];
  float rstd = 0, next_rstd = 0;
  const auto load = [&](int row, NormGradients<TX, TS, kAdd, N>(&g)[V], float& r) {
    const NormBackwardRow<TX, TS, kAdd> at(p, row);
#pragma unroll
    for (int v = 0; v < V; ++v) at.load(p, place(v), g[v]);
    r = has_dy ? p.rstd[row * p.rstd_stride] : 0;
  };
  int row = group * static_cast<int>(blockDim.y) + static_cast<int>(threadIdx.y);
  load(min(row, p.rows - 1), now, rstd);
  int turn = 0;
  // The same count for all rows of a CTA: its last ones may be beyond the end.
  for (int tile = group * static_cast<int>(blockDim.y); tile < p.rows;
       tile += stride, row += stride, turn ^= 1) {
    if (tile < p.rows - stride) load(min(row + stride, p.rows - 1), next, next_rstd);
    const bool on = row < p.rows;
    float sum = 0;
    if (has_dy && on) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float part = norm_products<TX, TS, kAdd, N>(now[v], w[v], rstd, dweight[v]);
        sum += column(v) < hidden ? part : 0;
      }
    }
    const float slope = has_dy ? norm_slope(p, norm_sum(sum, shared, turn), rstd) : 0;
    if (on && (p.wants_dx || p.wants_dresidual)) {
      const NormBackwardRow<TX, TS, kAdd> at(p, row);
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (column(v) < hidden) at.finish(p, column(v), now[v], w[v], rstd, slope);
    }
#pragma unroll
    for (int v = 0; v < V; ++v) now[v] = next[v];
    rstd = next_rstd;
  }
  if (!p.wants_partials) return;

  float* const partial = p.partials + group * p.hidden;
  if (blockDim.y == 1) {
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (column(v) < hidden) norm_store_sums<N>(partial + column(v), dweight[v]);
    return;
  }
#pragma unroll
  for (int v = 0; v < V; ++v)
    if (column(v) < hidden) norm_store_sums<N>(sums + threadIdx.y * hidden + column(v), dweight[v]);
  __syncthreads();
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int j = thread; j < hidden; j += blockDim.x * blockDim.y) {
    float sum = 0;
    for (int y = 0; y < blockDim.y; ++y) sum += sums[y * hidden + j];
    partial[j] = sum;
  }
}

// A CTA a row, which it goes over twice. Its sums for dweight are in the workspace from the start, each column one
// thread's.
template <class TX, class TS, class TW, bool kAdd, int N>
__device__ __forceinline__ void norm_backward_loop(const NormParams& p) {
  __shared__ NormShared shared;
  const bool has_dy = !kAdd || p.has_dy;
  const int64_t step = static_cast<int64_t>(blockDim.x) * N;
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * N;
  float* const partial = p.wants_partials ? p.partials + blockIdx.x * p.hidden : nullptr;
  bool is_first = true;
  int turn = 0;
  for (int row = blockIdx.x; row < p.rows; row += p.groups, turn ^= 1, is_first = false) {
    const NormBackwardRow<TX, TS, kAdd> at(p, row);
    const float rstd = has_dy ? p.rstd[row * p.rstd_stride] : 0;
    float slope = 0;
    if (has_dy) {
      float sum = 0;
      for (int64_t j = begin; j < p.hidden; j += step) {
        NormGradients<TX, TS, kAdd, N> g;
        at.load(p, j, g);
        float w[N], dweight[N] = {};
        norm_factors<TW, N>(p, j, w);
        if (partial && !is_first) {
#pragma unroll
          for (int i = 0; i < N; ++i) dweight[i] = partial[j + i];
        }
        sum += norm_products<TX, TS, kAdd, N>(g, w, rstd, dweight);
        if (partial) norm_store_sums<N>(partial + j, dweight);
      }
      slope = norm_slope(p, norm_sum(sum, shared, turn), rstd);
    }
    if (p.wants_dx || p.wants_dresidual)
      for (int64_t j = begin; j < p.hidden; j += step) {
        NormGradients<TX, TS, kAdd, N> g;
        at.load(p, j, g);
        float w[N] = {};
        if (has_dy) norm_factors<TW, N>(p, j, w);
        at.finish(p, j, g, w, rstd, slope);
      }
  }
}

// dweight: the partials of each column in a fixed order. A CTA has kNormFinishColumns of them.
struct NormFinishParams {
  const float* partials;
  char* dweight;
  int64_t hidden, count, dweight_stride;
  brim_dtype dtype;
};

__device__ __forceinline__ void norm_finish(const NormFinishParams& p) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the partials are there
#endif
  __shared__ float shared[kNormFinishLanes][kNormFinishColumns];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kNormFinishColumns + threadIdx.x;
  float sum = 0;
  if (column < p.hidden) {
#pragma unroll 8
    for (int64_t i = threadIdx.y; i < p.count; i += kNormFinishLanes)
      sum += __ldcg(p.partials + i * p.hidden + column);
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= p.hidden) return;
  float total[1] = {0};
#pragma unroll
  for (int i = 0; i < kNormFinishLanes; ++i) total[0] += shared[i][threadIdx.x];
  char* const at = p.dweight + column * p.dweight_stride * (p.dtype == BRIM_FLOAT32 ? 4 : 2);
  switch (p.dtype) {
    case BRIM_BFLOAT16: return store<2>(at, narrow<__nv_bfloat16, 2>(total));
    case BRIM_FLOAT16: return store<2>(at, narrow<__half, 2>(total));
    default: return store<4>(at, narrow<float, 4>(total));
  }
}

}  // namespace brim::cuda

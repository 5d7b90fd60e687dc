// The kernels of the norms' forward.
#pragma once

#include "cuda/device/rms_norm.cuh"

namespace brim::cuda {

// S of N columns: x, or the rounded sum with the residual, which is written as well.
template <class TX, class TS, bool kAdd, int N>
__device__ __forceinline__ Elements<TS, N> norm_add(const Elements<TX, N>& x,
                                                    const Elements<TS, N>& residual) {
  if constexpr (!kAdd) {
    return residual;
  } else {
    float sum[N];
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = x[i] + residual[i];
    return norm_narrow<TS, N>(sum);
  }
}

template <class TS, int N>
__device__ __forceinline__ float norm_squares(const Elements<TS, N>& s) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum = fmaf(s[i], s[i], sum);
  return sum;
}

template <class TX, class TS, class TW, int N>
__device__ __forceinline__ Elements<TX, N> norm_scaled(const NormParams& p, const Elements<TS, N>& s,
                                                       float rstd, const Elements<TW, N>& w) {
  float y[N];
#pragma unroll
  for (int i = 0; i < N; ++i) y[i] = s[i] * rstd;
  if constexpr (sizeof(TS) == 2)
    if (p.round_xhat) {
      const Elements<TS, N> rounded = norm_narrow<TS, N>(y);
#pragma unroll
      for (int i = 0; i < N; ++i) y[i] = rounded[i];
    }
#pragma unroll
  for (int i = 0; i < N; ++i) y[i] *= norm_factor(p, w, i);
  return norm_narrow<TX, N>(y);
}

__device__ __forceinline__ float norm_rstd(const NormParams& p, float squares) {
  return __frsqrt_rn(squares * p.inverse_hidden + p.eps);
}

// V vectors of N elements a thread: a row is read once. A vector beyond the row's end reads the last one instead, so that
// no load waits behind a branch.
template <class TX, class TS, class TW, bool kAdd, int N, int V>
__device__ __forceinline__ void norm_forward_rows(const NormParams& p) {
  __shared__ NormShared shared;
  const int lanes = blockDim.x, hidden = static_cast<int>(p.hidden), last = hidden - N;
  const int row = blockIdx.x * static_cast<int>(blockDim.y) + static_cast<int>(threadIdx.y);
  const NormRow place = norm_row(p, min(row, p.rows - 1));
  const auto column = [&](int v) { return (static_cast<int>(threadIdx.x) + v * lanes) * N; };
  const auto at = [&](int v) { return min(column(v), last); };
  char* const in = norm_at<TX>(p, kX, place);
  Elements<TS, N> s[V];
  Elements<TX, kAdd ? N : 1> x[V];
  if constexpr (kAdd) {
    char* const residual = norm_at<TS>(p, kResidual, place);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      x[v] = norm_load<TX, N>(norm_element<TX, N>(in, at(v), p.tensor[kX].column));
      s[v] = norm_load<TS, N>(norm_element<TS, N>(residual, at(v), p.tensor[kResidual].column));
    }
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v) s[v] = norm_load<TS, N>(norm_element<TS, N>(in, at(v), p.tensor[kX].column));
  }
  // Some weights at a time, as registers allow; the first ones while the row is on its way.
  constexpr int kMost = sizeof(TW) > sizeof(TX) ? 2 : 4, kWeights = V < kMost ? V : kMost;
  Elements<TW, N> w[kWeights];
#pragma unroll
  for (int v = 0; v < kWeights; ++v) w[v] = norm_load_weight<TW, N>(p, at(v));
  const bool on = row < p.rows;
  if constexpr (kAdd) {
    char* const sum = norm_at<TS>(p, kSum, place);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      s[v] = norm_add<TX, TS, true, N>(x[v], s[v]);
      if (on && column(v) < hidden)
        norm_store<TS, N>(norm_element<TS, N>(sum, column(v), p.tensor[kSum].column), s[v]);
    }
  }
  float squares = 0;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float part = norm_squares(s[v]);
    squares += column(v) < hidden ? part : 0;
  }
  const float rstd = norm_rstd(p, norm_sum(squares, shared, 0));
  if (!on) return;
  if (p.saves_rstd && threadIdx.x == 0) p.rstd[row * p.rstd_stride] = rstd;
  char* const out = norm_at<TX>(p, kY, place);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    if (v > 0 && v % kWeights == 0) {
#pragma unroll
      for (int i = 0; i < kWeights; ++i) w[i] = norm_load_weight<TW, N>(p, at(v + i));
    }
    if (column(v) < hidden)
      norm_store<TX, N>(norm_element<TX, N>(out, column(v), p.tensor[kY].column),
                        norm_scaled<TX>(p, s[v], rstd, w[v % kWeights]));
  }
}

// A CTA a row, which it goes over twice. The sum is written the first time and read back, by the same threads.
template <class TX, class TS, class TW, bool kAdd, int N>
__device__ __forceinline__ void norm_forward_loop(const NormParams& p) {
  __shared__ NormShared shared;
  const int64_t step = static_cast<int64_t>(blockDim.x) * N;
  const int row = blockIdx.x;
  if (row >= p.rows) return;
  const NormRow place = norm_row(p, row);
  char *const in = norm_at<TX>(p, kX, place), *const out = norm_at<TX>(p, kY, place);
  char *const residual = norm_at<TS>(p, kResidual, place), *const sum = norm_at<TS>(p, kSum, place);
  float squares = 0;
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * N; j < p.hidden; j += step) {
    Elements<TS, N> s;
    if constexpr (kAdd) {
      s = norm_add<TX, TS, true, N>(
          norm_load<TX, N>(norm_element<TX, N>(in, j, p.tensor[kX].column)),
          norm_load<TS, N>(norm_element<TS, N>(residual, j, p.tensor[kResidual].column)));
      norm_store<TS, N>(norm_element<TS, N>(sum, j, p.tensor[kSum].column), s);
    } else {
      s = norm_load<TS, N>(norm_element<TS, N>(in, j, p.tensor[kX].column));
    }
    squares += norm_squares(s);
  }
  const float rstd = norm_rstd(p, norm_sum(squares, shared, 0));
  if (p.saves_rstd && threadIdx.x == 0) p.rstd[row * p.rstd_stride] = rstd;
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * N; j < p.hidden; j += step) {
    const Elements<TW, N> w = norm_load_weight<TW, N>(p, j);
    const Elements<TS, N> s = kAdd ? norm_load<TS, N>(norm_element<TS, N>(sum, j, p.tensor[kSum].column))
                                   : norm_load<TS, N>(norm_element<TS, N>(in, j, p.tensor[kX].column));
    norm_store<TX, N>(norm_element<TX, N>(out, j, p.tensor[kY].column), norm_scaled<TX>(p, s, rstd, w));
  }
}

}  // namespace brim::cuda

// The kernels of the norms' backward: dx and, in the same pass, each CTA's float32 sums for dweight; then their sum.
#pragma once

#include <cooperative_groups.h>

#include <utility>

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
  // kApart: where dresidual's vectors are not whole ones in memory.
  template <bool kApart = false, int N>
  __device__ __forceinline__ void finish(const NormParams& p, int64_t column,
                                         const NormGradients<TX, TS, kAdd, N>& g, const float (&w)[N],
                                         float rstd, float slope) const {
    float d[N];
#pragma unroll
    for (int i = 0; i < N; ++i) d[i] = !kAdd || p.has_dy ? fmaf(g.dy[i] * w[i], rstd, -slope * g.s[i]) : 0;
    if constexpr (kAdd)
      if (p.has_dsum) {
#pragma unroll
        for (int i = 0; i < N; ++i) d[i] += g.dsum[i];
      }
    if (p.wants_dx)
      norm_put<TX, N, kApart>(norm_element<TX, N>(dx, column, p.tensor[kDx].column), norm_narrow<TX, N>(d));
    if constexpr (kAdd)
      if (p.wants_dresidual)
        norm_put<TS, N, kApart>(norm_element<TS, N>(dresidual, column, p.tensor[kDresidual].column),
                                norm_narrow<TS, N>(d));
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

// Where a row of partials begins, in floats. kShifted: so that what are whole vectors of the group's rows are whole ones here.
template <bool kShifted>
__device__ __forceinline__ int64_t norm_partial_at(const NormParams& p, int row) {
  return row * p.partial_pitch + (kShifted ? (p.partial_off + row * p.partial_step) & p.partial_mask : 0);
}

// dweight: the partials of each column in a fixed order. A CTA has blocks of `columns` of them (a power of 2), E a thread; as
// many of its warps as there is work for take turns at the rows. `scratch`: `columns` floats for each warp. All CTAs wait for
// this code and come to it cold: it has few lines and no divisions.
template <bool kShifted>
__device__ __forceinline__ void norm_finish(const NormParams& p, int columns, float* scratch) {
  constexpr int E = kShifted ? 1 : 4, kAtOnce = kShifted ? 8 : 4;  // loads of a thread that are on their way
  const int thread = threadIdx.y * blockDim.x + threadIdx.x, warp = thread / 32, in_warp = thread % 32;
  const int all_warps = blockDim.x * blockDim.y / 32;
  const int across = columns / E, across_bits = 31 - __clz(across);  // threads of a row
  const int count = p.partials_count;
  const int warps = min(((count << across_bits) + 32 * kAtOnce - 1) / (32 * kAtOnce), all_warps);
  const int lanes = warps * 32 >> across_bits;
  for (int64_t block = static_cast<int64_t>(blockIdx.x) * columns; block < p.hidden;
       block += static_cast<int64_t>(gridDim.x) * columns) {
    if (warp < warps) {
      const int first = (thread & (across - 1)) * E;
      const int left = static_cast<int>(min(p.hidden - block, static_cast<int64_t>(columns))) - first;
      float sum[E] = {};
      if (left > 0) {
        const float* const column = p.partials + block + first;
        for (int row = thread >> across_bits; row < count; row += kAtOnce * lanes) {
          float part[kAtOnce][E] = {};
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) {
            if (row + i * lanes >= count) continue;
            const float* const at = column + norm_partial_at<kShifted>(p, row + i * lanes);
            if (E == 4 && left >= 4) {
              const float4 four = __ldcg(reinterpret_cast<const float4*>(at));
              part[i][0] = four.x, part[i][E / 3] = four.y, part[i][E / 2] = four.z, part[i][E - 1] = four.w;
            } else {
#pragma unroll
              for (int j = 0; j < E; ++j)
                if (j < left) part[i][j] = __ldcg(at + j);
            }
          }
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
            for (int j = 0; j < E; ++j) sum[j] += part[i][j];
        }
      }
      for (int step = across; step < 32; step *= 2)
#pragma unroll
        for (int j = 0; j < E; ++j) sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], step);
      if (in_warp < across)
#pragma unroll
        for (int j = 0; j < E; ++j) scratch[warp * columns + first + j] = sum[j];
    }
    __syncthreads();
    for (int j = thread; j < columns && block + j < p.hidden; j += all_warps * 32) {
      float total[1] = {0};
#pragma unroll 4
      for (int i = 0; i < warps; ++i) total[0] += scratch[i * columns + j];
      char* const at = p.dweight + (block + j) * p.dweight_stride * (p.dweight_dtype == BRIM_FLOAT32 ? 4 : 2);
      switch (p.dweight_dtype) {
        case BRIM_BFLOAT16: store<2>(at, narrow<__nv_bfloat16, 2>(total)); break;
        case BRIM_FLOAT16: store<2>(at, narrow<__half, 2>(total)); break;
        default: store<4>(at, narrow<float, 4>(total));
      }
    }
    if (block + static_cast<int64_t>(gridDim.x) * columns < p.hidden) __syncthreads();
  }
}

// The same within the launch that makes the partials, of which all CTAs are on the SMs at once: arrive() when a CTA's
// partials are written, finish() when there is nothing else to do.
struct NormFinish {
  unsigned arrival = 0;

  __device__ __forceinline__ void arrive(const NormParams& p) {
    if (p.finish_columns > 0) arrival = cooperative_groups::this_grid().barrier_arrive();
  }
  template <bool kShifted>
  __device__ __forceinline__ void finish(const NormParams& p) {
    extern __shared__ __align__(16) float scratch[];
    if (p.finish_columns == 0) return;
    cooperative_groups::this_grid().barrier_wait(std::move(arrival));
    norm_finish<kShifted>(p, p.finish_columns, scratch);
  }
};

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
  const int group = blockIdx.x, stride = p.groups * static_cast<int>(blockDim.y);
  NormGradients<TX, TS, kAdd, N> now[V], next[V];
  float rstd = 0, next_rstd = 0;
  const auto load = [&](int row, NormGradients<TX, TS, kAdd, N>(&g)[V], float& r) {
    const NormBackwardRow<TX, TS, kAdd> at(p, row);
#pragma unroll
    for (int v = 0; v < V; ++v) at.load(p, place(v), g[v]);
    r = has_dy ? p.rstd[row * p.rstd_stride] : 0;
  };
  // Once the CTA's last products are in its sums, before the last rows are written.
  float* const partial = p.partials + group * p.partial_pitch;
  const auto write_partials = [&] {
    float* const to = blockDim.y == 1 ? partial : sums + threadIdx.y * hidden;
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (column(v) < hidden) norm_store_sums<N>(to + column(v), dweight[v]);
    if (blockDim.y == 1) return;
    __syncthreads();
    for (int j = threadIdx.y * blockDim.x + threadIdx.x; j < hidden; j += blockDim.x * blockDim.y) {
      float sum = 0;
      for (int y = 0; y < blockDim.y; ++y) sum += sums[y * hidden + j];
      partial[j] = sum;
    }
  };
  NormFinish dweight_finish;

  int row = group * static_cast<int>(blockDim.y) + static_cast<int>(threadIdx.y), turn = 0;
  load(min(row, p.rows - 1), now, rstd);
#pragma unroll
  for (int v = 0; v < V; ++v) norm_factors<TW, N>(p, place(v), w[v]);
  const auto step = [&](bool is_last) {
    const bool on = row < p.rows;
    float sum = 0;
    if (has_dy && on) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float part = norm_products<TX, TS, kAdd, N>(now[v], w[v], rstd, dweight[v]);
        sum += column(v) < hidden ? part : 0;
      }
    }
    if (is_last && p.wants_partials) {
      write_partials();
      dweight_finish.arrive(p);
    }
    const float slope = has_dy ? norm_slope(p, norm_sum<true>(sum, shared, turn), rstd) : 0;
    if (on && (p.wants_dx || p.wants_dresidual)) {
      const NormBackwardRow<TX, TS, kAdd> at(p, row);
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (column(v) < hidden) at.finish(p, column(v), now[v], w[v], rstd, slope);
    }
  };
  // The same count for all rows of a CTA: its last ones may be beyond the end.
  int tile = group * static_cast<int>(blockDim.y);
  for (; tile < p.rows - stride; tile += stride, row += stride, turn ^= 1) {
    load(min(row + stride, p.rows - 1), next, next_rstd);
    step(false);
#pragma unroll
    for (int v = 0; v < V; ++v) now[v] = next[v];
    rstd = next_rstd;
  }
  step(true);
  dweight_finish.finish<false>(p);
}

// Rows of any length and stride. Without dweight a CTA has a row, which it goes over twice, the second time through L2. With
// it there are two launches: the first makes each row's slope,
template <class TX, class TS, class TW, bool kAdd, int N>
__device__ __forceinline__ void norm_backward_rows_twice(const NormParams& p) {
  __shared__ NormShared shared;
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * N, step = static_cast<int64_t>(blockDim.x) * N;
  const int row = blockIdx.x;
  const bool has_dy = !kAdd || p.has_dy;
  const NormBackwardRow<TX, TS, kAdd> at(p, row);
  const float rstd = has_dy ? p.rstd[row * p.rstd_stride] : 0;
  NormGradients<TX, TS, kAdd, N> g;
  float w[N] = {}, slope = 0;
  if (has_dy) {
    float sum = 0, dweight[N] = {};
    for (int64_t j = begin; j < p.hidden; j += step) {
      at.load(p, j, g);
      norm_factors<TW, N>(p, j, w);
      sum += norm_products<TX, TS, kAdd, N>(g, w, rstd, dweight);
    }
    slope = norm_slope(p, norm_sum(sum, shared, 0), rstd);
  }
  if (p.makes_slopes) {
    if (threadIdx.x == 0) p.slopes[row] = slope;
    return;
  }
  for (int64_t j = begin; j < p.hidden; j += step) {
    at.load(p, j, g);
    if (has_dy) norm_factors<TW, N>(p, j, w);
    at.finish(p, j, g, w, rstd, slope);
  }
}

// in the second a CTA has some columns of every groups-th row, with what these need in registers.
template <class TX, class TS, class TW, bool kAdd, int N>
__device__ __forceinline__ void norm_backward_columns(const NormParams& p) {
  const int blocks = gridDim.x / p.groups, group = blockIdx.x / blocks;
  const int64_t column = (static_cast<int64_t>(blockIdx.x % blocks) * blockDim.x + threadIdx.x) * N;
  if (column >= p.hidden) return;
  float w[N], dweight[N] = {};
  norm_factors<TW, N>(p, column, w);
  constexpr int kRows = 2;  // on their way at once
  for (int first = group; first < p.rows; first += kRows * p.groups) {
    NormGradients<TX, TS, kAdd, N> g[kRows];
    float rstd[kRows], slope[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = min(first + i * p.groups, p.rows - 1);
      NormBackwardRow<TX, TS, kAdd>(p, row).load(p, column, g[i]);
      rstd[i] = p.rstd[row * p.rstd_stride];
      slope[i] = p.slopes[row];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * p.groups;
      if (row >= p.rows) continue;
      norm_products<TX, TS, kAdd, N>(g[i], w, rstd[i], dweight);
      if (p.wants_dx || p.wants_dresidual)
        NormBackwardRow<TX, TS, kAdd>(p, row).finish(p, column, g[i], w, rstd[i], slope[i]);
    }
  }
  norm_store_sums<N>(p.partials + group * p.partial_pitch + column, dweight);
}

template <class TX, class TS, class TW, bool kAdd, int N>
__device__ __forceinline__ void norm_backward_loop(const NormParams& p) {
  if (p.wants_partials && !p.makes_slopes)
    norm_backward_columns<TX, TS, TW, kAdd, N>(p);
  else
    norm_backward_rows_twice<TX, TS, TW, kAdd, N>(p);
}

}  // namespace brim::cuda

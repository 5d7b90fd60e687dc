// What RoPE's kernels share: the tables of cos and sin, and the rotation itself.
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/rope_index.h"

namespace brim::cuda {

// Two vectors of 2N elements in the order `In` become two in the order `Out`.
template <class T, int Bytes, PairOrder In, PairOrder Out, int N>
__device__ __forceinline__ void rotate(Raw<Bytes>& a, Raw<Bytes>& b, const float (&c)[N],
                                       const float (&s)[N]) {
  float first[N], second[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int e1 = In == PairOrder::half ? i : 2 * i, e2 = In == PairOrder::half ? N + i : 2 * i + 1;
    const float x1 = e1 < N ? widen<T>(a, e1) : widen<T>(b, e1 - N);
    const float x2 = e2 < N ? widen<T>(a, e2) : widen<T>(b, e2 - N);
    const float y1 = __fmaf_rn(-x2, s[i], __fmul_rn(x1, c[i])), y2 = __fmaf_rn(x1, s[i], __fmul_rn(x2, c[i]));
    const int o1 = Out == PairOrder::half ? i : 2 * i, o2 = Out == PairOrder::half ? N + i : 2 * i + 1;
    (o1 < N ? first[o1] : second[o1 - N]) = y1;
    (o2 < N ? first[o2] : second[o2 - N]) = y2;
  }
  a = narrow<T, Bytes>(first);
  b = narrow<T, Bytes>(second);
}

// cos and sin, and which row of them a token takes.
struct RopeTables {
  const char *cos, *sin;
  const void* positions;
  brim_dtype dtype, position_dtype;
  ops::RopeTableStrides cos_strides, sin_strides;  // elements
  int64_t position_batch_stride, position_seq_stride, rows;
  int32_t* bad_data;
  bool negate_sin;
};

inline RopeTables make_rope_tables(const brim_rope_args& args, const ops::RopeProblem& problem) {
  return {static_cast<const char*>(args.cos.data),
          static_cast<const char*>(args.sin.data),
          args.positions.data,
          problem.table_dtype,
          problem.position_dtype,
          problem.cos,
          problem.sin,
          problem.position_batch_stride,
          problem.position_seq_stride,
          problem.table_rows,
          args.run.bad_data,
          problem.negate_sin};
}

// -1, and the flag set, where the token's position is outside the table.
__device__ __forceinline__ int64_t table_row(const RopeTables& t, int64_t batch, int64_t place) {
  int64_t row = place;
  if (t.position_dtype != BRIM_DTYPE_NONE) {
    const int64_t at = batch * t.position_batch_stride + place * t.position_seq_stride;
    row = t.position_dtype == BRIM_INT32 ? static_cast<const int32_t*>(t.positions)[at]
                                         : static_cast<const int64_t*>(t.positions)[at];
  }
  if (row >= 0 && row < t.rows) return row;
  if (t.bad_data) *t.bad_data = 1;
  return -1;
}

// out[at, at + M) = columns first.. of a row of cos or sin, as vectors.
template <class Table, int M, int N, class Int>
__device__ __forceinline__ void load_vector_columns(const char* row, Int first, float (&out)[N], int at) {
  const Raw<M * sizeof(Table)> v =
      load_constant<M * sizeof(Table)>(row + first * static_cast<Int>(sizeof(Table)));
#pragma unroll
  for (int i = 0; i < M; ++i) out[at + i] = widen<Table>(v, i);
}

// How load_angles gets at M columns, first.., of a row of cos and of sin. One call for both, so that neither
// waits for the other.
struct LoadVectorColumns {
  template <class Table, int M, int N, class Int>
  __device__ __forceinline__ void load(const char* cos, const char* sin, Int first, float (&c)[N],
                                       float (&s)[N], int at) const {
    load_vector_columns<Table, M>(cos, first, c, at);
    load_vector_columns<Table, M>(sin, first, s, at);
  }
};

// The cos and sin of a column's N pairs, `cos_at` and `sin_at` elements after the tables' beginnings. The tables'
// type is the same for all threads: a branch, not a kernel of its own.
template <bool kSplit, int N, class Column, class Loader>
__device__ __forceinline__ void load_angles(const RopeTables& t, int64_t cos_at, int64_t sin_at,
                                            const Column& column, float (&c)[N], float (&s)[N],
                                            const Loader& loader) {
  const auto load_as = [&]<class Table>() {
    constexpr int kSize = sizeof(Table);
    const char *const cos = t.cos + cos_at * kSize, *const sin = t.sin + sin_at * kSize;
    if constexpr (kSplit) {
      loader.template load<Table, N / 2>(cos, sin, column.table, c, s, 0);
      loader.template load<Table, N / 2>(cos, sin, column.table_second, c, s, N / 2);
    } else {
      loader.template load<Table, N>(cos, sin, column.table, c, s, 0);
    }
  };
  if (t.dtype == BRIM_FLOAT32)
    load_as.template operator()<float>();
  else if (t.dtype == BRIM_BFLOAT16)
    load_as.template operator()<__nv_bfloat16>();
  else
    load_as.template operator()<__half>();
  if (t.negate_sin) {
#pragma unroll
    for (int i = 0; i < N; ++i) s[i] = -s[i];
  }
}

// Instead, where the token's position is outside the tables.
template <int N>
__device__ __forceinline__ void no_angles(float (&c)[N], float (&s)[N]) {
  int nan = 0x7fffffff;
  asm volatile("" : "+r"(nan));  // else the compiler writes the NaNs ahead of the branch, for every token
#pragma unroll
  for (int i = 0; i < N; ++i) c[i] = s[i] = __int_as_float(nan);
}

}  // namespace brim::cuda

// What RoPE's kernels share: the rotation itself.
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

template <brim_dtype Dtype>
struct Element;
template <>
struct Element<BRIM_FLOAT32> {
  using type = float;
};
template <>
struct Element<BRIM_BFLOAT16> {
  using type = __nv_bfloat16;
};
template <>
struct Element<BRIM_FLOAT16> {
  using type = __half;
};

}  // namespace brim::cuda

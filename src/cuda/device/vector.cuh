// Vectors as raw bits: load and store of 2 to 32 bytes, and their elements as float32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace brim::cuda {

// Indexed by constants only (unrolled loops): a run-time index would put the words in local memory.
template <int Bytes>
struct Raw {
  uint32_t word[Bytes / 4];
};
template <>
struct Raw<2> {
  uint16_t word[1];
};

template <int Bytes>
struct Words;  // the built-in type of one access
template <>
struct Words<16> {
  using type = uint4;
};
template <>
struct Words<8> {
  using type = uint2;
};
template <>
struct Words<4> {
  using type = unsigned int;
};
template <>
struct Words<2> {
  using type = unsigned short;
};

__device__ __forceinline__ Raw<16> raw(uint4 v) { return {{v.x, v.y, v.z, v.w}}; }
__device__ __forceinline__ Raw<8> raw(uint2 v) { return {{v.x, v.y}}; }
__device__ __forceinline__ Raw<4> raw(unsigned int v) { return {{v}}; }
__device__ __forceinline__ Raw<2> raw(unsigned short v) { return {{v}}; }
__device__ __forceinline__ uint4 words(const Raw<16>& v) {
  return {v.word[0], v.word[1], v.word[2], v.word[3]};
}
__device__ __forceinline__ uint2 words(const Raw<8>& v) { return {v.word[0], v.word[1]}; }
__device__ __forceinline__ unsigned int words(const Raw<4>& v) { return v.word[0]; }
__device__ __forceinline__ unsigned short words(const Raw<2>& v) { return v.word[0]; }

// Data that is read once: evicted from the caches first.
template <int Bytes>
__device__ __forceinline__ Raw<Bytes> load_streaming(const void* p) {
  return raw(__ldcs(static_cast<const typename Words<Bytes>::type*>(p)));
}

// Data that is written once: evicted first where `streaming`, else left in L2 for the next kernel.
template <int Bytes>
__device__ __forceinline__ void store(void* p, const Raw<Bytes>& v, bool streaming) {
  using Word = typename Words<Bytes>::type;
  __builtin_assume(
      __isGlobal(p));  // else a generic store where the compiler has lost sight of where p comes from
  if (streaming)
    __stcs(static_cast<Word*>(p), words(v));
  else
    *static_cast<Word*>(p) = words(v);
}

// Data that is read again and never written by the kernel: the read-only path.
template <int Bytes>
__device__ __forceinline__ Raw<Bytes> load_constant(const void* p) {
  if constexpr (Bytes > 16) {
    Raw<Bytes> v;
#pragma unroll
    for (int i = 0; i < Bytes / 16; ++i) {
      const Raw<16> part = load_constant<16>(static_cast<const char*>(p) + 16 * i);
#pragma unroll
      for (int w = 0; w < 4; ++w) v.word[4 * i + w] = part.word[w];
    }
    return v;
  } else {
    return raw(__ldg(static_cast<const typename Words<Bytes>::type*>(p)));
  }
}

// Element i of a vector of T, as float32. Exact.
template <class T, int Bytes>
__device__ __forceinline__ float widen(const Raw<Bytes>& v, int i) {
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(v.word[i]);
  } else {
    uint16_t bits;
    if constexpr (Bytes == 2)
      bits = v.word[0];
    else
      bits = static_cast<uint16_t>(i % 2 ? v.word[i / 2] >> 16 : v.word[i / 2] & 0xffffu);
    if constexpr (__is_same(T, __nv_bfloat16))
      return __uint_as_float(static_cast<uint32_t>(bits) << 16);
    else
      return __half2float(__ushort_as_half(bits));
  }
}

// The reverse: N floats rounded once, to nearest even.
template <class T, int Bytes>
__device__ __forceinline__ Raw<Bytes> narrow(const float (&x)[Bytes / sizeof(T)]) {
  Raw<Bytes> v;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < Bytes / 4; ++i) v.word[i] = __float_as_uint(x[i]);
  } else if constexpr (Bytes == 2) {
    if constexpr (__is_same(T, __nv_bfloat16))
      v.word[0] = __bfloat16_as_ushort(__float2bfloat16_rn(x[0]));
    else
      v.word[0] = __half_as_ushort(__float2half_rn(x[0]));
  } else {
#pragma unroll
    for (int i = 0; i < Bytes / 4; ++i) {
      if constexpr (__is_same(T, __nv_bfloat16)) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
        v.word[i] = static_cast<uint32_t>(__bfloat16_as_ushort(two.y)) << 16 | __bfloat16_as_ushort(two.x);
      } else {
        const __half2 two = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
        v.word[i] = static_cast<uint32_t>(__half_as_ushort(two.y)) << 16 | __half_as_ushort(two.x);
      }
    }
  }
  return v;
}

}  // namespace brim::cuda

// Vectors as raw bits: load and store of 2 to 32 bytes, and their elements as float32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "brim/tensor.h"

namespace brim::cuda {

// The type that a kernel knows a dtype by.
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

// Bytes as parts that one access moves: part(i) reads the 16 at 16 * i (Bytes of them, where there are less), part(i, raw)
// writes them.
template <int Bytes, class Part>
__device__ __forceinline__ Raw<Bytes> load_parts(Part part) {
  if constexpr (Bytes <= 16) {
    return part(0);
  } else {
    Raw<Bytes> v;
#pragma unroll
    for (int i = 0; i < Bytes / 16; ++i) {
      const Raw<16> p = part(i);
#pragma unroll
      for (int w = 0; w < 4; ++w) v.word[4 * i + w] = p.word[w];
    }
    return v;
  }
}
template <int Bytes, class Part>
__device__ __forceinline__ void store_parts(const Raw<Bytes>& v, Part part) {
  if constexpr (Bytes <= 16) {
    part(0, v);
  } else {
#pragma unroll
    for (int i = 0; i < Bytes / 16; ++i) {
      Raw<16> p;
#pragma unroll
      for (int w = 0; w < 4; ++w) p.word[w] = v.word[4 * i + w];
      part(i, p);
    }
  }
}
template <int Bytes>
inline constexpr int kPartBytes = Bytes < 16 ? Bytes : 16;

// Data that goes through once. No eviction hints: rows that are no multiple of a sector are read in pieces by
// several warps, and the second must find the first one's sector in L1 (evict-first loads cost RoPE 4-7% on
// an H200). The prefetch size makes a first piece bring its whole 128-byte line from DRAM into L2 (d = 92:
// 0.77 of a copy without it, 0.80 with it).
template <int Bytes>
__device__ __forceinline__ Raw<Bytes> load_once(const void* p) {
  const size_t at = __cvta_generic_to_global(p);
  Raw<Bytes> v;
  if constexpr (Bytes == 16)
    asm volatile("ld.global.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(at)
                 : "memory");
  else if constexpr (Bytes == 8)
    asm volatile("ld.global.L2::128B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.word[0]), "=r"(v.word[1])
                 : "l"(at)
                 : "memory");
  else if constexpr (Bytes == 4)
    asm volatile("ld.global.L2::128B.u32 %0, [%1];" : "=r"(v.word[0]) : "l"(at) : "memory");
  else
    asm volatile("ld.global.L2::128B.u16 %0, [%1];" : "=h"(v.word[0]) : "l"(at) : "memory");
  return v;
}

template <int Bytes>
__device__ __forceinline__ void store(void* p, const Raw<Bytes>& v) {
  // Else a generic store, where the compiler has lost sight of where p comes from.
  __builtin_assume(__isGlobal(p));
  *static_cast<typename Words<Bytes>::type*>(p) = words(v);
}

// Data that is read again and never written by the kernel: the read-only path.
template <int Bytes>
__device__ __forceinline__ Raw<Bytes> load_constant(const void* p) {
  using Part = typename Words<kPartBytes<Bytes>>::type;
  return load_parts<Bytes>([=](int i) { return raw(__ldg(static_cast<const Part*>(p) + i)); });
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

// Vectors of elements at addresses that are no multiple of 16 bytes: from shared memory by two aligned reads, to global memory
// with the help of the neighbouring lane.
#pragma once

#include "cuda/device/vector.cuh"

namespace brim::cuda {

// words[i] = words[i + by], 0 <= by < 8, as far as there are some, without an index that is known at run time only.
template <int Step, int Words>
__device__ __forceinline__ void move_words_by(uint32_t (&words)[Words], bool yes) {
#pragma unroll
  for (int i = 0; i + Step < Words; ++i) words[i] = yes ? words[i + Step] : words[i];
}
template <int Words>
__device__ __forceinline__ void move_words(uint32_t (&words)[Words], int by) {
  move_words_by<4>(words, by & 4);
  move_words_by<2>(words, by & 2);
  move_words_by<1>(words, by & 1);
}

// Bytes of T from `at` in shared memory, which is aligned to T. Reads the aligned 16 bytes that they lie in, and 16 more.
template <class T, int Bytes>
__device__ __forceinline__ Raw<Bytes> unaligned_shared_load(const char* at) {
  const int off = static_cast<int>(reinterpret_cast<uintptr_t>(at) & 15);
  const uint4* const from = reinterpret_cast<const uint4*>(at - off);
  constexpr int kWords = Bytes / 4 + 4;
  uint32_t words[kWords];
#pragma unroll
  for (int i = 0; i < kWords / 4; ++i) {
    const Raw<16> part = raw(from[i]);
#pragma unroll
    for (int w = 0; w < 4; ++w) words[4 * i + w] = part.word[w];
  }
  move_words(words, off / 4);
  Raw<Bytes> v;
#pragma unroll
  for (int i = 0; i < Bytes / 4; ++i)
    v.word[i] = sizeof(T) == 2 ? __funnelshift_r(words[i], words[i + 1], off % 4 * 8) : words[i];
  return v;
}

// The first `left` elements of v, or all, to `at`, by all lanes of a warp, where each one's vector follows the former lane's.
// What lies between two multiples of 16 bytes is stored at once where it is whole, by the lane that has its end. (`left` is not
// clamped to 0..N: ptxas 13.0 took a clamped one for whole when it was not.)
template <class T, int Bytes>
__device__ __forceinline__ void unaligned_store(char* at, const Raw<Bytes>& v, int left) {
  constexpr int kSize = sizeof(T), kWords = Bytes / 4;
  const int lane = threadIdx.x % 32, off = static_cast<int>(reinterpret_cast<uintptr_t>(at) & 15),
            own = 16 - off;
  uint32_t words[4 + kWords];  // the former lane's last 16 bytes, and v
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = __shfl_up_sync(0xffffffffu, v.word[kWords - 4 + i], 1);
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[4 + i] = v.word[i];
  // A lane's first chunk begins `off` bytes before its vector. (Lane 0 has nobody's bytes for it.)
  const bool full = left >= Bytes / kSize;
  const bool whole = full && (lane > 0 || off == 0);
  const bool next_whole = __shfl_down_sync(0xffffffffu, whole, 1) && lane < 31;
  move_words(words, own / 4);
  if (full)
#pragma unroll
    for (int chunk = 0; chunk < Bytes / 16; ++chunk) {
      Raw<16> part;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        part.word[i] = kSize == 2
                           ? __funnelshift_r(words[4 * chunk + i], words[4 * chunk + i + 1], own % 4 * 8)
                           : words[4 * chunk + i];
      if (chunk > 0 || whole) store<16>(at - off + 16 * chunk, part);
    }
  // By element: what is in no whole chunk of this lane's or the next one's.
  const int end = Bytes - off;  // of this lane's chunks
  if (whole && (next_whole || off == 0)) return;
#pragma unroll
  for (int i = 0; i < Bytes / kSize; ++i) {
    const int byte = i * kSize;
    const bool stored = full && (byte < own ? whole : byte < end || next_whole);
    if (i < left && !stored) {
      Raw<kSize> element;
      if constexpr (kSize == 2)
        element.word[0] = static_cast<uint16_t>(i % 2 ? v.word[i / 2] >> 16 : v.word[i / 2] & 0xffffu);
      else
        element.word[0] = v.word[i];
      store<kSize>(at + byte, element);
    }
  }
}

}  // namespace brim::cuda

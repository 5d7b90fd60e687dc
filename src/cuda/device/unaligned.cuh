// Vectors of elements at addresses that are no multiple of 16 bytes, by reads of the aligned pieces that they lie in.
#pragma once

#include "cuda/device/vector.cuh"

namespace brim::cuda {

// words[i] = words[i + by], 0 <= by < 4, as far as there are some, without an index that is known at run time only.
template <int Step, int Words>
__device__ __forceinline__ void move_words_by(uint32_t (&words)[Words], bool yes) {
#pragma unroll
  for (int i = 0; i + Step < Words; ++i) words[i] = yes ? words[i + Step] : words[i];
}

// Bytes of T from `at`, which is aligned to T. piece(address) reads an aligned one, of 16 bytes or of Bytes where that is
// less; one more than Bytes alone take is read.
template <class T, int Bytes, class Piece>
__device__ __forceinline__ Raw<Bytes> unaligned_load(const char* at, Piece piece) {
  constexpr int kPiece = kPartBytes<Bytes>, kPieceWords = kPiece / 4, kWords = Bytes / 4 + kPieceWords;
  const int off = static_cast<int>(reinterpret_cast<uintptr_t>(at) & (kPiece - 1));
  uint32_t words[kWords];
#pragma unroll
  for (int i = 0; i < kWords / kPieceWords; ++i) {
    const Raw<kPiece> part = piece(at - off + i * kPiece);
#pragma unroll
    for (int w = 0; w < kPieceWords; ++w) words[kPieceWords * i + w] = part.word[w];
  }
  move_words_by<2>(words, off & 8);
  move_words_by<1>(words, off & 4);
  Raw<Bytes> v;
#pragma unroll
  for (int i = 0; i < Bytes / 4; ++i)
    v.word[i] = sizeof(T) == 2 ? __funnelshift_r(words[i], words[i + 1], off % 4 * 8) : words[i];
  return v;
}

template <class T, int Bytes>
__device__ __forceinline__ Raw<Bytes> unaligned_shared_load(const char* at) {
  using Piece = typename Words<kPartBytes<Bytes>>::type;
  return unaligned_load<T, Bytes>(
      at, [](const char* piece) { return raw(*reinterpret_cast<const Piece*>(piece)); });
}

}  // namespace brim::cuda

// The kernels of the plain copies, and their launch.
#include "cuda/copy.h"

#include <cuda_runtime.h>

#include <iterator>

#include "cuda/device/copy_ring.cuh"
#include "cuda/kernel_table.h"
#include "cuda/runtime.h"

namespace brim::cuda {
namespace {

using core::CopyMemory;
using core::CopyPattern;

template <bool Streaming>
__device__ __forceinline__ uint4 load(const uint4* p) {
  return Streaming ? __ldcs(p) : *p;
}

template <CopyPattern P>
__device__ __forceinline__ unsigned combine(unsigned a, unsigned b) {
  return P == CopyPattern::copy ? a : P == CopyPattern::in_place ? ~a : a ^ b;
}

// Threads step over the whole range, so any grid will do. The bytes after the last whole vector go to the
// first threads of the first CTA.
template <int PatternOf, int Unroll, bool Streaming>
__global__ void __launch_bounds__(kCopyThreads)
    copy_vectors(char* to, const char* from, const char* other, size_t bytes) {
  constexpr CopyPattern P{PatternOf};
  constexpr bool kTwo = P == CopyPattern::two_reads_one_write;
  const uint4 *const a = reinterpret_cast<const uint4*>(from), *const b =
                                                                   reinterpret_cast<const uint4*>(other);
  uint4* const out = reinterpret_cast<uint4*>(to);
  const size_t count = bytes / 16, tile = static_cast<size_t>(kCopyThreads) * Unroll;
  unsigned sum = 0;
  for (size_t start = blockIdx.x * tile + threadIdx.x; start < count; start += gridDim.x * tile) {
    uint4 x[Unroll], y[Unroll] = {};
#pragma unroll
    for (int u = 0; u < Unroll; ++u) {
      const size_t i = start + u * kCopyThreads;
      if (i < count) x[u] = load<Streaming>(a + i);
      if (kTwo && i < count) y[u] = load<Streaming>(b + i);
    }
#pragma unroll
    for (int u = 0; u < Unroll; ++u) {
      const size_t i = start + u * kCopyThreads;
      if (i >= count) continue;
      if constexpr (P == CopyPattern::read) {
        sum ^= x[u].x ^ x[u].y ^ x[u].z ^ x[u].w;
      } else {
        const uint4 v{combine<P>(x[u].x, y[u].x), combine<P>(x[u].y, y[u].y), combine<P>(x[u].z, y[u].z),
                      combine<P>(x[u].w, y[u].w)};
        if constexpr (Streaming)
          __stcs(out + i, v);
        else
          out[i] = v;
      }
    }
  }
  if (const size_t i = count * 16 + threadIdx.x; blockIdx.x == 0 && i < bytes) {
    if constexpr (P == CopyPattern::read)
      sum ^= static_cast<unsigned char>(from[i]);
    else
      to[i] = static_cast<char>(combine<P>(from[i], kTwo ? other[i] : 0));
  }
  if (P == CopyPattern::read && sum == kReadSum) *reinterpret_cast<unsigned*>(to) = sum;
}

using VectorsKernel = void (*)(char*, const char*, const char*, size_t);

template <CopyPattern P>
VectorsKernel vectors_kernel(const CopyForm& form) {
  constexpr int kPattern = static_cast<int>(P);
  if (form.unroll == 1) return copy_vectors<kPattern, 1, true>;
  return form.streaming ? copy_vectors<kPattern, 4, true> : copy_vectors<kPattern, 4, false>;
}

VectorsKernel vectors_kernel_of(const CopyForm& form) {
  switch (form.pattern) {
    case CopyPattern::copy: return vectors_kernel<CopyPattern::copy>(form);
    case CopyPattern::in_place: return vectors_kernel<CopyPattern::in_place>(form);
    case CopyPattern::two_reads_one_write: return vectors_kernel<CopyPattern::two_reads_one_write>(form);
    default: return vectors_kernel<CopyPattern::read>(form);
  }
}

constexpr auto kRingKernels = kernel_table<std::size(kCopyRings)>([](auto index) {
  constexpr CopyRing ring = kCopyRings[decltype(index)::value];
  return copy_ring<ring.slots, ring.slot_bytes>;
});

cudaError_t launch_ring(const CopyForm& form, const CopyMemory& m, cudaStream_t stream) {
  const int shared = copy_ring_shared(kCopyRings[form.ring]);
  const auto kernel = kRingKernels[form.ring];
  if (const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
      e != cudaSuccess)
    return e;
  kernel<<<form.blocks, 32, shared, stream>>>(static_cast<char*>(m.to), static_cast<const char*>(m.from),
                                              m.bytes);
  return cudaGetLastError();
}

cudaError_t launch(const CopyForm& form, const CopyMemory& m, cudaStream_t stream) {
  if (form.kind == CopyForm::Kind::driver)
    return cudaMemcpyAsync(m.to, m.from, m.bytes, cudaMemcpyDeviceToDevice, stream);
  if (form.kind == CopyForm::Kind::ring) return launch_ring(form, m, stream);
  const void* from = form.pattern == CopyPattern::in_place ? m.to : m.from;
  vectors_kernel_of(form)<<<form.blocks, kCopyThreads, 0, stream>>>(
      static_cast<char*>(m.to), static_cast<const char*>(from), static_cast<const char*>(m.other), m.bytes);
  return cudaGetLastError();
}

}  // namespace

Status launch_copy(const CopyForm& form, const CopyMemory& m, int device, void* stream) {
  if (form.kind != CopyForm::Kind::driver &&
      (reinterpret_cast<uintptr_t>(m.to) | reinterpret_cast<uintptr_t>(m.from) |
       reinterpret_cast<uintptr_t>(m.other)) %
              16 !=
          0)
    return core::failure(BRIM_INVALID_ARGUMENT, "copy: form '%s' needs memory aligned to 16 bytes",
                         form.name.c_str());
  const DeviceGuard guard(device);
  cudaError_t error = guard.error();
  if (error == cudaSuccess && m.bytes > 0) error = launch(form, m, static_cast<cudaStream_t>(stream));
  return error == cudaSuccess ? core::success()
                              : cuda_failure("copy", error, ("launching " + form.name).c_str());
}

}  // namespace brim::cuda

// The kernels of RoPE's ring form, and their launch.
#include "cuda/rope_ring.h"

#include <cuda_runtime.h>

#include <array>
#include <utility>

#include "cuda/device/rope_ring.cuh"
#include "cuda/runtime.h"

namespace brim::cuda {
namespace {

using Kernel = void (*)(RingParams);
template <size_t I>
constexpr Kernel kernel() {
  constexpr RingVariant v = kRingVariants[I];
  return rope_ring<typename Element<v.dtype>::type, v.vector_bytes, static_cast<int>(v.order)>;
}
constexpr auto kKernels = []<size_t... I>(std::index_sequence<I...>) {
  return std::array<Kernel, sizeof...(I)>{kernel<I>()...};
}
(std::make_index_sequence<kRingVariants.size()>{});

}  // namespace

Status launch_rope_ring(const char* op, const brim_rope_args& args, const ops::RopeProblem& problem,
                        const RopeRing& ring, int sm_count) {
  const DeviceGuard guard(args.q.device_index);
  cudaError_t error = guard.error();
  const int64_t blocks =
      std::min<int64_t>(ring_tiles(ring), static_cast<int64_t>(sm_count) * ring.ctas_per_sm);
  if (error == cudaSuccess && blocks > 0) {
    RingParams p = make_ring_params(args, problem, ring);
    const void* kernel = reinterpret_cast<const void*>(kKernels[ring_variant_index(ring)]);
    const int shared = kRingBarrierBytes + ring.slots * ring.slot_bytes;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    void* values[] = {&p};
    if (error == cudaSuccess)
      error = cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(ring.workers + 64), values,
                               shared, static_cast<cudaStream_t>(args.run.stream));
  }
  return error == cudaSuccess ? core::success() : cuda_failure(op, error, "launching the ring form");
}

}  // namespace brim::cuda

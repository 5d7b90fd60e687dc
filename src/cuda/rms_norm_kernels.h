// The norms' kernels, as their launch knows them. CUDA code only.
#pragma once

#include "cuda/device/rms_norm.cuh"

namespace brim::cuda {

using NormKernel = void(NormParams);

// That of kNormVariants[index], which is of the bulk form.
NormKernel* norm_bulk_kernel(int index);

template <brim_dtype dtype>
using NormType = typename Element<dtype>::type;

// norm_elements(), by types.
template <class TX, class TS>
constexpr int norm_elements_of(bool single) {
  return single ? 1 : 16 / static_cast<int>(sizeof(TX) < sizeof(TS) ? sizeof(TX) : sizeof(TS));
}

// The CTAs that sum the partials take their places once all of this launch have theirs, and wait there for its end.
__device__ __forceinline__ void norm_finish_may_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace brim::cuda

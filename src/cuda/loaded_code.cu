// Which of the architectures that brim was compiled for the driver has picked for a device.
#include "cuda/runtime.h"

namespace brim::cuda {
namespace {

__global__ void probe() {}

}  // namespace

cudaError_t loaded_capability(int* capability) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, probe);
  if (error == cudaSuccess) *capability = attributes.ptxVersion;
  return error;
}

}  // namespace brim::cuda

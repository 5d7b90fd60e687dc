// Instead of cuda_device.cpp where there is no nvcc.
#include "harness/device.h"

namespace brim::harness {

std::unique_ptr<Device> make_cuda_device(int, std::string* why) {
  if (why) *why = "this build of brim has no CUDA backend";
  return nullptr;
}

}  // namespace brim::harness

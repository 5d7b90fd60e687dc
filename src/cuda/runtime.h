// The little that ops need of the CUDA runtime on the host. Only where there is nvcc (BRIM_WITH_CUDA).
#pragma once

#include <cuda_runtime_api.h>

#include "core/device_props.h"
#include "core/status.h"

namespace brim::cuda {

// Facts of a GPU that is to be used, read once per process and never changed.
Status device_props(const char* op, int device, const core::DeviceProps** props);

// What of brim runs on the current device: 80 where that is the code for compute capability 8.0, compiled anew by
// the driver.
cudaError_t loaded_capability(int* capability);

// Makes `device` current while it lives, and the former one afterwards. Where it is current already, nothing
// is called.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  cudaError_t error() const { return error_; }

 private:
  int former_ = 0;
  bool switched_ = false;
  cudaError_t error_;
};

// The Status of a call that failed while `doing` ("launching on cuda:0 q (1,32,128,64)"). The error is taken
// out of the runtime's last-error slot, so that nobody else meets it; one that an earlier kernel left behind
// is named as such.
Status cuda_failure(const char* op, cudaError_t error, const char* doing);

}  // namespace brim::cuda

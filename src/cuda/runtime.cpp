#include "cuda/runtime.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "cuda/backend.h"

namespace brim::cuda {
namespace {

constexpr int kMaxDevices = 128;
constexpr int kOldestCapability = 80;

struct Entry {
  core::DeviceProps props;
  char name[256];
};
std::atomic<const Entry*> cache[kMaxDevices];

// Errors after which a context is lost: they come from a kernel that ran before, whatever call returns them.
bool is_sticky(cudaError_t e) {
  switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable: return true;
    default: return false;
  }
}

}  // namespace

DeviceGuard::DeviceGuard(int device) {
  error_ = cudaGetDevice(&former_);
  if (error_ != cudaSuccess || former_ == device) return;
  error_ = cudaSetDevice(device);
  switched_ = error_ == cudaSuccess;
}

DeviceGuard::~DeviceGuard() {
  if (switched_) cudaSetDevice(former_);
}

Status cuda_failure(const char* op, cudaError_t error, const char* doing) {
  cudaGetLastError();
  return core::failure(
      BRIM_CUDA_ERROR,
      is_sticky(error) ? "%s: %s: an earlier kernel of this process failed: %s (%s)" : "%s: %s: %s (%s)", op,
      doing, cudaGetErrorString(error), cudaGetErrorName(error));
}

Status device_props(const char* op, int device, const core::DeviceProps** props) {
  if (device < 0 || device >= kMaxDevices)
    return core::failure(BRIM_DEVICE_ERROR, "%s: there is no device cuda:%d", op, device);
  const Entry* entry = cache[device].load(std::memory_order_acquire);
  if (!entry) {
    cudaDeviceProp p;
    if (const cudaError_t e = cudaGetDeviceProperties(&p, device); e != cudaSuccess) {
      const std::string doing = "reading the properties of cuda:" + std::to_string(device);
      return cuda_failure(op, e, doing.c_str());
    }
    auto fresh = std::make_unique<Entry>();
    std::snprintf(fresh->name, sizeof fresh->name, "%s", p.name);
    // A build for older devices runs on newer ones, but has no bulk copies. Where nothing runs at all, the launch
    // will say so.
    const int own = p.major * 10 + p.minor;
    int loaded = own;
    const DeviceGuard guard(device);
    if (guard.error() != cudaSuccess || loaded_capability(&loaded) != cudaSuccess) cudaGetLastError();
    fresh->props = {fresh->name,
                    std::min(own, loaded),
                    p.multiProcessorCount,
                    p.maxThreadsPerMultiProcessor,
                    p.regsPerMultiprocessor,
                    static_cast<int>(p.sharedMemPerMultiprocessor),
                    static_cast<int>(p.sharedMemPerBlockOptin),
                    p.l2CacheSize};
    // Two threads may both come here: the first one's entry stays.
    if (cache[device].compare_exchange_strong(entry, fresh.get(), std::memory_order_acq_rel))
      entry = fresh.release();
  }
  *props = &entry->props;
  return core::success();
}

Status backend_status() {
  int count = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess || count == 0) {
    cudaGetLastError();
    return core::failure(BRIM_NOT_AVAILABLE, "cuda: no GPU can be used: %s",
                         e == cudaSuccess ? "the driver lists none" : cudaGetErrorString(e));
  }
  for (int device = 0; device < count; ++device) {
    int major = 0, minor = 0;
    for (const auto& [number, attribute] : {std::pair{&major, cudaDevAttrComputeCapabilityMajor},
                                            std::pair{&minor, cudaDevAttrComputeCapabilityMinor}})
      if (const cudaError_t e = cudaDeviceGetAttribute(number, attribute, device); e != cudaSuccess)
        return cuda_failure("cuda", e, "reading a device's compute capability");
    if (major * 10 + minor >= kOldestCapability) return core::success();
  }
  return core::failure(BRIM_NOT_AVAILABLE, "cuda: no GPU here has compute capability %d.%d or newer",
                       kOldestCapability / 10, kOldestCapability % 10);
}

}  // namespace brim::cuda

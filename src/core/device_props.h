// What a launch plan may know about a GPU. Filled from the CUDA runtime, or from the table below on a machine without one.
#pragma once

#include <cstdint>
#include <cstring>

namespace brim::core {

struct DeviceProps {
  const char* name;
  int compute_capability;  // 90 for sm_90; that of the code which the driver runs there, where this is older
  int sm_count;
  int max_threads_per_sm;
  int registers_per_sm;
  int shared_per_sm;           // bytes
  int shared_per_block_optin;  // bytes
  int64_t l2_bytes;
};

// The devices that `brim plan` can be asked about. Sources: NVIDIA's datasheets and the CUDA C++ Programming Guide's table
// of compute capabilities; the H200's row was read off the device.
inline constexpr DeviceProps kKnownDevices[] = {
    {"A100", 80, 108, 2048, 65536, 167936, 166912, 40ll << 20},
    {"L40S", 89, 142, 1536, 65536, 102400, 101376, 96ll << 20},
    {"RTX 4090", 89, 128, 1536, 65536, 102400, 101376, 72ll << 20},
    {"H100", 90, 132, 2048, 65536, 233472, 232448, 50ll << 20},
    {"H200", 90, 132, 2048, 65536, 233472, 232448, 60ll << 20},
    {"B200", 100, 148, 2048, 65536, 233472, 232448, 126ll << 20},
    {"RTX 5090", 120, 170, 1536, 65536, 102400, 101376, 96ll << 20},
};

inline const DeviceProps* known_device(const char* name) {
  for (const DeviceProps& d : kKnownDevices)
    if (std::strcmp(d.name, name) == 0) return &d;
  return nullptr;
}

}  // namespace brim::core

// Plain copies on a GPU: the wall that a memory-bound op is measured against is the best of these forms on
// the same bytes. Which one is best differs between sizes, patterns and machines.
#pragma once

#include <string>
#include <vector>

#include "core/copy_pattern.h"
#include "core/device_props.h"
#include "core/status.h"

namespace brim::cuda {

struct CopyForm {
  enum class Kind {
    driver,   // cudaMemcpyAsync
    vectors,  // loads and stores of 16 bytes
    ring,     // bulk copies through a ring of slots in shared memory
  };
  core::CopyPattern pattern;
  Kind kind;
  unsigned blocks = 0;
  int unroll = 0;          // vectors: loads on their way before the first store
  bool streaming = false;  // vectors: tells the caches that nothing comes twice
  int ring = 0;            // of kCopyRings
  std::string name = {};
};

// Every form worth trying, from a closed list. Pure: for any GPU, on any machine.
std::vector<CopyForm> copy_forms(core::CopyPattern pattern, size_t bytes, const core::DeviceProps& device);

// How much is read to fill the L2 cache with clean lines (a memset would leave dirty ones, written back while
// the next kernel is timed), and in which form.
size_t flush_bytes(const core::DeviceProps& device);
CopyForm flush_form(const core::DeviceProps& device);

// Queues `form` on `stream`. All forms but the driver's need memory aligned to 16 bytes (else
// BRIM_INVALID_ARGUMENT). Only where there is nvcc.
Status launch_copy(const CopyForm& form, const core::CopyMemory& memory, int device, void* stream);

// Pattern `read` stores a thread's sum (exclusive or) of the words it has read only when it is this one.
inline constexpr unsigned kReadSum = 0x9e3779b9u;

inline constexpr int kCopyThreads = 256;
struct CopyRing {
  int ctas_per_sm, slots, slot_bytes;
};
inline constexpr CopyRing kCopyRings[] = {{2, 6, 16 << 10}, {3, 4, 16 << 10}, {3, 4, 8 << 10}};
inline constexpr int kCopyRingBarrierBytes = 128;  // before the slots
constexpr int copy_ring_shared(const CopyRing& ring) {
  return kCopyRingBarrierBytes + ring.slots * ring.slot_bytes;
}

}  // namespace brim::cuda

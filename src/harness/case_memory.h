// The memory of a case: which storage each tensor stands in, the image of all storages before a run, and what
// a run may have changed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "harness/device.h"
#include "harness/host_buffer.h"
#include "ops/cases.h"

namespace brim::harness {

using Image = std::vector<HostBuffer>;  // one a storage

// What no output holds: a NaN in every float format and -1 in every integer where something is read, and, so
// that a copy of it shows, another pattern where something is only written (3.4e38, NaN in float16).
inline constexpr std::byte kPoison{0xff}, kOutputPoison{0x7f};

class CaseMemory {
 public:
  explicit CaseMemory(const ops::Case& c);

  size_t bytes() const;  // of all storages
  const std::vector<size_t>& storage_bytes() const { return storage_bytes_; }

  // Inputs filled with random numbers; all else, guards and gaps and outputs, poisoned.
  Image make_image(uint64_t seed) const;

  // Views of all tensors, given where each storage starts.
  std::vector<TensorView> views(const std::vector<void*>& storages, brim_device_type device,
                                int device_index) const;
  std::vector<TensorView> views(Image& image) const;

  static bool equal(const Image& a, const Image& b);

  // Empty when `after` differs from `before` in elements of outputs only; else what was written that should
  // not be. Puts the old elements back into `after`.
  std::string stray_writes(Image& before, Image& after) const;

 private:
  std::byte poison_of(int storage) const;

  const ops::Case& case_;
  std::vector<int> storage_;  // of each tensor; -1 when absent
  std::vector<size_t> storage_bytes_;
};

// Device copies of a case's storages.
class DeviceStorages {
 public:
  DeviceStorages(Device& device, const std::vector<size_t>& bytes);
  ~DeviceStorages();
  DeviceStorages(const DeviceStorages&) = delete;
  DeviceStorages& operator=(const DeviceStorages&) = delete;

  void upload(const Image& image);
  Image download();
  const std::vector<void*>& pointers() const { return pointers_; }

 private:
  Device& device_;
  std::vector<size_t> bytes_;
  std::vector<void*> pointers_;
};

// What a call asks for besides its tensors: exactly that many poisoned bytes between guards, given to its args.
class Workspace {
 public:
  static constexpr size_t kLeastAlignment = 16,
                          kUsualAlignment = 256;  // what is promised, what allocators give

  Workspace(Device& device, const ops::Case& c, brim_op op, void* args, size_t alignment);

  std::string stray_writes();  // as CaseMemory's: what was written beside it, or empty
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_, begin_;                     // of the one storage
  std::unique_ptr<DeviceStorages> storage_;  // null where nothing was asked for
};

// The part of each view that a sample keeps; all of it for the empty sample.
std::vector<TensorView> narrow(std::vector<TensorView> views, const ops::Sample& sample);

}  // namespace brim::harness

// Where a check or a benchmark runs: memory on a device, and one way of timing for brim, its peers and the plain copy.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "brim/brim.h"
#include "core/copy_pattern.h"

namespace brim::harness {

// Work made ready to be timed (on a GPU: captured in a CUDA graph). Each call of run() is one sample.
class Timed {
 public:
  virtual ~Timed() = default;
  // Microseconds; before it, caches are flushed by READING a buffer larger than the last level.
  virtual double run() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "NVIDIA H200", or the CPU's model name with its thread count
  virtual brim_device_type type() const = 0;
  virtual int index() const { return 0; }
  virtual void* stream() const { return nullptr; }
  // For people and for the context of rows: ("SMs", "132"), ("CUDA driver", "13.0"). Empty where there is nothing to add.
  using Facts = std::vector<std::pair<std::string, std::string>>;
  virtual Facts properties() const { return {}; }
  virtual Facts versions() const { return {}; }

  // Errors (out of memory, CUDA) are std::runtime_error with the call and the reason.
  virtual void* allocate(size_t bytes) = 0;  // 256-byte aligned
  virtual void release(void* memory) noexcept = 0;
  virtual size_t free_bytes() const = 0;  // what can still be allocated
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;
  virtual void synchronize() = 0;

  virtual std::unique_ptr<Timed> timed(std::function<void()> work) = 0;  // `work` queues on stream()
  // The plain copies that make the wall: every form worth trying (name, launch); the wall is the best of them.
  struct Copy {
    std::string name;
    std::function<void()> launch;
  };
  virtual std::vector<Copy> copies(core::CopyPattern pattern, const core::CopyMemory& memory) = 0;
};

std::unique_ptr<Device> make_cpu_device();
// Null when this build or machine has none; `why` then says so.
std::unique_ptr<Device> make_cuda_device(int index, std::string* why);

}  // namespace brim::harness

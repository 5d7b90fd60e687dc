// Host memory of the size of a large GPU's: not touched before it is needed, and worked on by all threads.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace brim::harness {

class HostBuffer {
 public:
  explicit HostBuffer(size_t size);  // std::bad_alloc when there is no memory

  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

  void fill(std::byte value);
  // Index of the first byte in which the two differ, or `size()`. Both have one size.
  size_t mismatch(const HostBuffer& other) const;

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  size_t size_;
};

}  // namespace brim::harness

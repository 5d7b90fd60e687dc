// Host memory of the size of a large GPU's: not touched before it is needed, and worked on by all threads.
#pragma once

#include <cstddef>
#include <memory>

namespace brim::harness {

class HostBuffer {
 public:
  explicit HostBuffer(size_t size) : bytes_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}

  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

  void fill(std::byte value);
  // Index of the first byte in which the two differ, or `size()`. Both have one size.
  size_t mismatch(const HostBuffer& other) const;

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t size_;
};

}  // namespace brim::harness

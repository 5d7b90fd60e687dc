#include "harness/host_buffer.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/parallel.h"

namespace brim::harness {
namespace {
constexpr int64_t kGrain = 1 << 20;  // bytes worth a thread
}

void HostBuffer::fill(std::byte value) {
  core::parallel_for(static_cast<int64_t>(size_), kGrain, [&](int64_t begin, int64_t end) {
    std::memset(data() + begin, static_cast<int>(value), static_cast<size_t>(end - begin));
  });
}

size_t HostBuffer::mismatch(const HostBuffer& other) const {
  std::atomic<size_t> first{size_};
  core::parallel_for(static_cast<int64_t>(size_), kGrain, [&](int64_t begin, int64_t end) {
    if (std::memcmp(data() + begin, other.data() + begin, static_cast<size_t>(end - begin)) == 0) return;
    const auto found =
        static_cast<size_t>(std::mismatch(data() + begin, data() + end, other.data() + begin).first - data());
    for (size_t known = first; found < known && !first.compare_exchange_weak(known, found);) {}
  });
  return first;
}

}  // namespace brim::harness

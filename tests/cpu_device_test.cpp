// The harness's CPU device: the plain copies copy, whatever the size, and samples are timed.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "harness/device.h"

namespace brim::harness {
namespace {

using core::CopyPattern;

// What a byte of `to` must be after the copy; `before` is what it was.
uint8_t expected(CopyPattern pattern, uint8_t from, uint8_t other, uint8_t before) {
  switch (pattern) {
    case CopyPattern::copy: return from;
    case CopyPattern::in_place: return static_cast<uint8_t>(~before);
    case CopyPattern::two_reads_one_write: return from ^ other;
    default: return before;
  }
}

TEST(CpuDevice, EveryFormOfCopyCopies) {
  const auto device = make_cpu_device();
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{4097}, size_t{1} << 20, (size_t{5} << 20) + 7}) {
    const auto make = [&](size_t factor) {
      auto* data = static_cast<uint8_t*>(device->allocate(bytes + 1));
      for (size_t i = 0; i <= bytes; ++i) data[i] = static_cast<uint8_t>(i * factor + (i >> 8));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0u);
      return data;
    };
    uint8_t *to = make(1), *from = make(37), *other = make(91);
    for (const CopyPattern pattern :
         {CopyPattern::copy, CopyPattern::in_place, CopyPattern::two_reads_one_write, CopyPattern::read}) {
      const auto forms = device->copies(pattern, {to, from, other, bytes});
      EXPECT_FALSE(forms.empty());
      for (const Device::Copy& copy : forms) {
        const std::vector<uint8_t> before(to, to + bytes + 1);
        copy.launch();
        size_t wrong = 0;
        for (size_t i = 0; i < bytes; ++i) wrong += to[i] != expected(pattern, from[i], other[i], before[i]);
        EXPECT_EQ(wrong, 0u) << copy.name << " of " << bytes;
        EXPECT_EQ(to[bytes], before[bytes]) << copy.name << " of " << bytes;
      }
    }
    for (uint8_t* data : {to, from, other}) device->release(data);
  }
}

TEST(CpuDevice, TimesItsWork) {
  const auto device = make_cpu_device();
  EXPECT_NE(device->name().find("thread"), std::string::npos) << device->name();
  EXPECT_GT(device->free_bytes(), size_t{1} << 20);
  int calls = 0;
  const auto timed = device->timed([&] { ++calls; });
  EXPECT_GE(timed->run(), 0.0);
  EXPECT_LT(timed->run(), 1e6);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace brim::harness

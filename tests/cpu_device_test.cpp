// The harness's CPU device: the plain copies copy, whatever the size, and samples are timed.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "harness/device.h"

namespace brim::harness {
namespace {

TEST(CpuDevice, EveryFormOfCopyCopies) {
  const auto device = make_cpu_device();
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{4097}, size_t{1} << 20, (size_t{5} << 20) + 7}) {
    std::vector<uint8_t> data(bytes + 1);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 37 + (i >> 8));
    auto* from = static_cast<uint8_t*>(device->allocate(bytes));
    auto* to = static_cast<uint8_t*>(device->allocate(bytes + 1));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(from) % 256, 0u);
    device->upload(from, data.data(), bytes);
    for (const Device::Copy& copy : device->copies(to, from, bytes)) {
      std::memset(to, 0xa5, bytes + 1);
      copy.launch();
      EXPECT_EQ(std::memcmp(to, data.data(), bytes), 0) << copy.name << " of " << bytes;
      EXPECT_EQ(to[bytes], 0xa5) << copy.name << " of " << bytes;
    }
    for (const Device::Copy& copy : device->copies_in_place(from, bytes)) {
      copy.launch();
      EXPECT_EQ(std::memcmp(from, data.data(), bytes), 0) << copy.name << " of " << bytes;
    }
    device->release(from);
    device->release(to);
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

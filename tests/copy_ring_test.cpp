// The copying ring's kernel run on the CPU, thread by thread (cuda_on_cpu/): every byte, nothing outside, no
// wait without an answer.
#include "cuda/device/bulk.cuh"

#include <gtest/gtest.h>

#include "cuda/device/copy_ring.cuh"

namespace brim::cuda {
namespace {

template <int Slots, int SlotBytes>
void copies_every_byte() {
  for (int blocks : {1, 3})
    for (size_t tiles : {0, 1, 2, Slots - 1, Slots, Slots + 1, 3 * Slots + 2})
      for (int more : {-16, 0, 1, 15, 16, 40}) {
        const int64_t size = static_cast<int64_t>(tiles * blocks * SlotBytes) + more;
        if (size < 0) continue;
        const size_t bytes = static_cast<size_t>(size);
        std::vector<uint4> from(bytes / 16 + 2), to(bytes / 16 + 2);
        char *const in = reinterpret_cast<char*>(from.data()), *const out =
                                                                   reinterpret_cast<char*>(to.data());
        for (size_t i = 0; i < bytes; ++i) in[i] = static_cast<char>(i * 31 + i / 251);
        std::memset(out, 0x5a, to.size() * 16);
        emulation::run({static_cast<unsigned>(blocks)}, {32},
                       [&] { copy_ring<Slots, SlotBytes>(out, in, bytes); });
        EXPECT_EQ(std::memcmp(in, out, bytes), 0) << bytes << " bytes, " << blocks << " CTAs";
        EXPECT_EQ(out[bytes], 0x5a) << bytes << " bytes, " << blocks << " CTAs";
      }
}

TEST(CopyRing, CopiesEveryByte) {
  copies_every_byte<kCopyRings[0].slots, kCopyRings[0].slot_bytes>();
  copies_every_byte<kCopyRings[1].slots, kCopyRings[1].slot_bytes>();
  copies_every_byte<kCopyRings[2].slots, kCopyRings[2].slot_bytes>();
  copies_every_byte<2, 64>();
}

}  // namespace
}  // namespace brim::cuda

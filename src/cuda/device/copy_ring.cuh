// A copy by bulk copies alone (Hopper and newer): one thread a CTA has tiles loaded into the slots of a ring
// in shared memory and stored from there; no register sees the data.
#pragma once

#include "cuda/copy.h"
#include "cuda/device/bulk.cuh"

namespace brim::cuda {

template <int Slots, int SlotBytes>
__global__ void __launch_bounds__(32) copy_ring(char* to, const char* from, size_t bytes) {
#if BRIM_BULK_COPIES
  static_assert(Slots * sizeof(uint64_t) <= kCopyRingBarrierBytes);
  extern __shared__ __align__(128) char shared[];
  uint64_t* const full = reinterpret_cast<uint64_t*>(shared);
  char* const slots = shared + kCopyRingBarrierBytes;

  const size_t whole = bytes / 16 * 16, tail = whole + threadIdx.x;
  if (blockIdx.x == 0 && tail < bytes) to[tail] = from[tail];
  if (threadIdx.x != 0) return;

  for (int i = 0; i < Slots; ++i) mbarrier_init(&full[i], 1);
  mbarrier_init_fence();
  const size_t stride = static_cast<size_t>(gridDim.x) * SlotBytes;
  const auto part = [&](size_t at) {
    return static_cast<uint32_t>(whole - at < SlotBytes ? whole - at : SlotBytes);
  };
  size_t next = static_cast<size_t>(blockIdx.x) * SlotBytes;  // what is loaded next
  const auto load = [&](int slot) {
    mbarrier_expect(&full[slot], part(next));
    mbarrier_arrive(&full[slot]);
    bulk_load(slots + slot * SlotBytes, from + next, part(next), &full[slot]);
    next += stride;
  };
  size_t at = next;  // what is stored next
  for (int i = 0; i < Slots && next < whole; ++i) load(i);
  int slot = 0, former = -1;
  uint32_t parity = 0;
  for (; at < whole; at += stride) {
    mbarrier_wait(&full[slot], parity);
    bulk_store(to + at, slots + slot * SlotBytes, part(at));
    bulk_commit();
    // The slot before this one is free when its store has read it: that had a turn's time to do so.
    if (former >= 0 && next < whole) {
      bulk_wait_read<1>();
      load(former);
    }
    former = slot;
    if (++slot == Slots) {
      slot = 0;
      parity ^= 1;
    }
  }
  bulk_wait_read<0>();  // shared memory is not this CTA's any more once it ends
#else
  __trap();  // no plan picks this form where the code is not for it
#endif
}

}  // namespace brim::cuda

// Kernels that are written in the words of src/cuda/device/bulk.cuh run on the CPU: this file stands in for
// that one, a thread of the CPU for each of a CTA's, one CTA after the other in an order of chance. Bulk copies
// are done as late as the kernel allows: loads when somebody waits for their mbarrier, the last one issued first;
// stores when their thread waits until they have read. What it shows: every index and bit, each hand-over between
// warps (a wait that is never answered, or left out, ends the test), copies that are not aligned. What it does
// not: fences, and speed.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#define BRIM_BULK_COPIES 1
#undef __grid_constant__
#define __grid_constant__
#undef __launch_bounds__
#define __launch_bounds__(...)
#define __builtin_assume(condition)

namespace brim::cuda {

struct Index {
  unsigned x = 1, y = 1, z = 1;
};
inline thread_local Index threadIdx;
inline Index blockIdx, blockDim, gridDim;
inline unsigned thread_in_cta() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
inline constexpr size_t kSharedBytes = 227 << 10;
alignas(128) inline char shared[kSharedBytes];

using std::max;
using std::min;
inline float __int_as_float(int x) {
  float f;
  std::memcpy(&f, &x, 4);
  return f;
}
inline float __uint_as_float(unsigned x) { return __int_as_float(static_cast<int>(x)); }
inline unsigned __float_as_uint(float f) {
  unsigned x;
  std::memcpy(&x, &f, 4);
  return x;
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }
inline bool __isGlobal(const void*) { return true; }

namespace emulation {

[[noreturn]] inline void give_up(const char* why) {
  std::fprintf(stderr, "thread %u of CTA %u: %s\n", thread_in_cta(), blockIdx.x, why);
  std::_Exit(1);
}

struct Phases {
  int arrivals, missing;
  int64_t bytes;  // still to come
  unsigned phase;
};

struct Copy {
  void* to;
  const void* from;
  uint32_t bytes;
  uint64_t* full;  // of a load
};

struct Cta {
  explicit Cta(int threads) : all(threads) {}
  void settle(Phases& b) {
    if (b.missing || b.bytes) return;
    ++b.phase;
    b.missing = b.arrivals;
    changed.notify_all();
  }
  void finish_loads(const uint64_t* b) {
    for (size_t i = loads.size(); i-- > 0;) {
      const Copy load = loads[i];
      if (load.full != b) continue;
      loads.erase(loads.begin() + static_cast<std::ptrdiff_t>(i));
      std::memcpy(load.to, load.from, load.bytes);
      phases.at(b).bytes -= load.bytes;
      settle(phases.at(b));
    }
  }
  std::barrier<> all;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const uint64_t*, Phases> phases;
  std::vector<Copy> loads;  // issued, not done
};
inline Cta* cta;
// Of a thread: by bulk group, the last one not committed yet.
inline thread_local std::vector<std::vector<Copy>> stores;

// kernel() by the threads of each CTA of the grid.
inline void run(Index grid, Index threads, const std::function<void()>& kernel) {
  gridDim = grid;
  blockDim = threads;
  std::vector<unsigned> blocks(grid.x * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), 0u);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(static_cast<unsigned>(blocks.size())));
  for (const unsigned block : blocks) {
    blockIdx = {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
    Cta here(static_cast<int>(threads.x * threads.y * threads.z));
    cta = &here;
    std::memset(shared, 0xcd, sizeof shared);
    std::vector<std::thread> running;
    for (unsigned z = 0; z < threads.z; ++z)
      for (unsigned y = 0; y < threads.y; ++y)
        for (unsigned x = 0; x < threads.x; ++x)
          running.emplace_back([&, x, y, z] {
            threadIdx = {x, y, z};
            stores.assign(1, {});
            kernel();
            for (const auto& group : stores)
              if (!group.empty()) give_up("ends before its bulk stores have read shared memory");
          });
    for (std::thread& t : running) t.join();
    if (!here.loads.empty()) give_up("ends with bulk loads on their way");
  }
}

inline void check_aligned(const void* to, const void* from, uint32_t bytes) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % 16)
    give_up("a bulk copy that is not aligned to 16 bytes");
  if (bytes == 0) give_up("a bulk copy of nothing");
}
inline void check_shared(const void* p, uint32_t bytes) {
  const char* at = static_cast<const char*>(p);
  if (at < shared || at + bytes > shared + kSharedBytes) give_up("a bulk copy beyond shared memory");
}

}  // namespace emulation

inline void __syncthreads() { emulation::cta->all.arrive_and_wait(); }
inline void mbarrier_init(uint64_t* b, int arrivals) {
  emulation::cta->phases[b] = {arrivals, arrivals, 0, 0};
}
inline void mbarrier_init_fence() {}
inline void mbarrier_arrive(uint64_t* b) {
  emulation::Cta& c = *emulation::cta;
  const std::lock_guard lock(c.mutex);
  emulation::Phases& p = c.phases.at(b);
  --p.missing;
  c.settle(p);
}
inline void mbarrier_expect(uint64_t* b, uint32_t bytes) {
  emulation::Cta& c = *emulation::cta;
  const std::lock_guard lock(c.mutex);
  c.phases.at(b).bytes += bytes;
}
inline void mbarrier_wait(uint64_t* b, uint32_t parity) {
  emulation::Cta& c = *emulation::cta;
  std::unique_lock lock(c.mutex);
  const auto over = [&] {
    const auto passed = [&] { return (c.phases.at(b).phase & 1) != parity; };
    if (!passed()) c.finish_loads(b);  // not those that the phase did not wait for
    return passed();
  };
  if (!c.changed.wait_for(lock, std::chrono::seconds(60), over))
    emulation::give_up("waits for a barrier that nobody completes");
}

inline void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* full) {
  emulation::check_aligned(to, from, bytes);
  emulation::check_shared(to, bytes);
  emulation::Cta& c = *emulation::cta;
  const std::lock_guard lock(c.mutex);
  std::memset(to, 0xcd, bytes);
  c.loads.push_back({to, from, bytes, full});
  c.changed.notify_all();  // somebody may wait already
}
inline void bulk_store(void* to, const void* from, uint32_t bytes) {
  emulation::check_aligned(to, from, bytes);
  emulation::check_shared(from, bytes);
  emulation::stores.back().push_back({to, from, bytes, nullptr});
}
inline void bulk_commit() { emulation::stores.emplace_back(); }
template <int Pending>
void bulk_wait_read() {
  auto& groups = emulation::stores;
  while (groups.size() > Pending + 1) {
    for (const emulation::Copy& store : groups.front()) std::memcpy(store.to, store.from, store.bytes);
    groups.erase(groups.begin());
  }
}
inline void bulk_store_fence() {}

}  // namespace brim::cuda

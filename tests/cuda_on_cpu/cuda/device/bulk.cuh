// Kernels that are written in the words of src/cuda/device/bulk.cuh run on the CPU: this file stands in for
// that one, a thread of the CPU for each of a CTA's, one CTA after the other. What it shows: every index and
// bit, each hand-over between warps (a wait that is never answered ends the test), accesses off the 16-byte
// grid. What it does not: the memory model of a GPU (bulk copies are done at once) and speed.
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
#include <memory>
#include <mutex>
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

struct Cta {
  explicit Cta(int threads) : all(threads) {
    for (int i = 0; i < threads; i += 32)
      warps.push_back(std::make_unique<std::barrier<>>(min(threads - i, 32)));
  }
  void settle(Phases& b) {
    if (b.missing || b.bytes) return;
    ++b.phase;
    b.missing = b.arrivals;
    changed.notify_all();
  }
  std::barrier<> all;
  std::vector<std::unique_ptr<std::barrier<>>> warps;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const uint64_t*, Phases> phases;
};
inline Cta* cta;

// kernel() by the threads of each CTA of the grid.
inline void run(Index grid, Index threads, const std::function<void()>& kernel) {
  gridDim = grid;
  blockDim = threads;
  for (unsigned block = 0; block < grid.x * grid.y * grid.z; ++block) {
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
            kernel();
          });
    for (std::thread& t : running) t.join();
  }
}

inline void check_grid(const void* to, const void* from, uint32_t bytes) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % 16)
    give_up("a bulk copy off the 16-byte grid");
}
inline void check_shared(const void* p, uint32_t bytes) {
  const char* at = static_cast<const char*>(p);
  if (at < shared || at + bytes > shared + kSharedBytes) give_up("a bulk copy beyond shared memory");
}

}  // namespace emulation

inline void __syncthreads() { emulation::cta->all.arrive_and_wait(); }
inline void __syncwarp() { emulation::cta->warps[thread_in_cta() / 32]->arrive_and_wait(); }
inline void barrier_init(uint64_t* b, int arrivals) {
  emulation::cta->phases[b] = {arrivals, arrivals, 0, 0};
}
inline void barrier_init_fence() {}
inline void barrier_arrive(uint64_t* b) {
  emulation::Cta& c = *emulation::cta;
  const std::lock_guard lock(c.mutex);
  emulation::Phases& p = c.phases.at(b);
  --p.missing;
  c.settle(p);
}
inline void barrier_expect(uint64_t* b, uint32_t bytes) {
  emulation::Cta& c = *emulation::cta;
  const std::lock_guard lock(c.mutex);
  c.phases.at(b).bytes += bytes;
}
inline void barrier_wait(uint64_t* b, uint32_t parity) {
  emulation::Cta& c = *emulation::cta;
  std::unique_lock lock(c.mutex);
  const emulation::Phases& p = c.phases.at(b);
  if (!c.changed.wait_for(lock, std::chrono::seconds(60), [&] { return (p.phase & 1) != parity; }))
    emulation::give_up("waits for a barrier that nobody completes");
}

inline void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* full) {
  emulation::check_grid(to, from, bytes);
  emulation::check_shared(to, bytes);
  std::memcpy(to, from, bytes);
  emulation::Cta& c = *emulation::cta;
  const std::lock_guard lock(c.mutex);
  emulation::Phases& p = c.phases.at(full);
  p.bytes -= bytes;
  c.settle(p);
}
inline void bulk_store(void* to, const void* from, uint32_t bytes) {
  emulation::check_grid(to, from, bytes);
  emulation::check_shared(from, bytes);
  std::memcpy(to, from, bytes);
}
inline void bulk_commit() {}
template <int Pending>
void bulk_wait_read() {}
inline void bulk_store_fence() {}

}  // namespace brim::cuda

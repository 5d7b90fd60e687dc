// Words for kernels that move memory with bulk copies between global and shared memory (Hopper and newer).
#pragma once

#include <cstdint>

// Whether the code that is being compiled is for such a GPU.
#define BRIM_BULK_COPIES (__CUDA_ARCH__ >= 900)

namespace brim::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ---- mbarriers: in shared memory, 8 bytes each ----

__device__ __forceinline__ void mbarrier_init(uint64_t* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
// After the inits, by the thread that made them. Other threads come to the mbarriers behind a
// __syncthreads.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t* b, int arrivals) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals)
               : "memory");
}
// More bytes of bulk loads for the present phase to wait for.
__device__ __forceinline__ void mbarrier_expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
               : "memory");
}
// Until the phase of this parity is over.
__device__ __forceinline__ void mbarrier_wait(uint64_t* b, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(shared_address(b)), "r"(parity)
                 : "memory");
  } while (!done);
}

// The CTAs of a cluster write to each other's shared memory with stores that the receiver's mbarrier counts, as it does the
// bytes of bulk loads. (An arrival with release semantics would wait for all that the thread has stored anywhere.)
__device__ __forceinline__ uint32_t cluster_address(const void* shared, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(shared)), "r"(rank));
  return there;
}
__device__ __forceinline__ void cluster_store(float* to, float x, uint64_t* counted, int rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
                   cluster_address(to, rank)),
               "r"(__float_as_uint(x)), "r"(cluster_address(counted, rank))
               : "memory");
}
// By all threads of the cluster's CTAs.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- bulk copies: addresses and bytes are multiples of 16 ----

__device__ __forceinline__ void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* full) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(full))
      : "memory");
}
__device__ __forceinline__ void bulk_store(void* to, const void* from, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the newest `Pending` groups of this thread have read shared memory.
template <int Pending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// Bytes of a run in memory that bulk copies can move where shared memory holds the run at the same place within 16 bytes,
// `off`: `middle` of them after the first `head` ones.
struct BulkRun {
  int off, head, middle;
};
__device__ __forceinline__ BulkRun bulk_run(const void* at, int bytes) {
  BulkRun run;
  run.off = static_cast<int>(reinterpret_cast<uintptr_t>(at) & 15);
  run.head = min((16 - run.off) & 15, bytes);
  run.middle = (bytes - run.head) & ~15;
  return run;
}

// What this thread has written to shared memory is seen by bulk stores that are issued after the next
// barrier.
__device__ __forceinline__ void bulk_store_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace brim::cuda

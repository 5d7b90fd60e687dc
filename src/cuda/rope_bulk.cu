// The kernels of RoPE's bulk form, and their launch.
#include <cuda_runtime.h>

#include "cuda/device/rope_bulk.cuh"
#include "cuda/kernel_table.h"
#include "cuda/rope.h"
#include "cuda/rope_bulk.h"
#include "cuda/runtime.h"

namespace brim::cuda {
namespace {

constexpr auto kKernels = kernel_table<kBulkVariants.size()>([](auto index) {
  constexpr BulkVariant v = kBulkVariants[decltype(index)::value];
  return rope_bulk<typename Element<v.dtype>::type, v.vector_bytes, static_cast<int>(v.order), v.one_run,
                   v.edges>;
});

}  // namespace

Status launch_rope_bulk(const char* op, const brim_rope_args& args, const ops::RopeProblem& problem,
                        const RopeBulk& plan) {
  const DeviceGuard guard(args.q.device_index);
  cudaError_t error = guard.error();
  if (error == cudaSuccess) {
    BulkParams params = make_bulk_params(args, problem, plan);
    void* values[] = {&params};
    const dim3 threads(plan.pair_columns, plan.tile_tokens, plan.head_lanes);
    error = cudaLaunchKernel(reinterpret_cast<const void*>(kKernels[bulk_variant_index(plan)]),
                             dim3(plan.grid_x, plan.grid_y, plan.grid_z), threads, values,
                             kBulkBarrierBytes + plan.tile_bytes, static_cast<cudaStream_t>(args.run.stream));
  }
  return error == cudaSuccess ? core::success() : rope_launch_failure(op, args, error);
}

}  // namespace brim::cuda

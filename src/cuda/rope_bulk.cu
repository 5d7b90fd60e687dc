// The kernels of RoPE's bulk form, and their launch.
#include <cuda_runtime.h>

#include <utility>

#include "cuda/device/rope_bulk.cuh"
#include "cuda/rope_bulk.h"
#include "cuda/runtime.h"

namespace brim::cuda {
namespace {

// One kernel for each line of kBulkVariants, in its order.
using Kernel = void (*)(BulkParams);

template <size_t I>
constexpr Kernel kernel() {
  constexpr BulkVariant v = kBulkVariants[I];
  return rope_bulk<typename Element<v.dtype>::type, v.vector_bytes, static_cast<int>(v.order), v.edges>;
}
constexpr auto kKernels = []<size_t... I>(std::index_sequence<I...>) {
  return std::array<Kernel, sizeof...(I)>{kernel<I>()...};
}
(std::make_index_sequence<kBulkVariants.size()>{});

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
  return error == cudaSuccess ? core::success() : cuda_failure(op, error, "launching the bulk form");
}

}  // namespace brim::cuda

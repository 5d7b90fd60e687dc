// RoPE on CUDA: what rope.cpp (host) asks of rope.cu (kernels).
#pragma once

#include "cuda/rope_plan.h"

namespace brim::cuda {

// Queues the plan's launches on args.run.stream, on the device of args.q. Only where there is nvcc.
Status launch_rope(const char* op, const brim_rope_args& args, const ops::RopeProblem& problem,
                   const RopePlan& plan);

// What both forms say of a launch that failed with a cudaError_t.
Status rope_launch_failure(const char* op, const brim_rope_args& args, int error);

}  // namespace brim::cuda

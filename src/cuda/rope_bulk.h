// RoPE's bulk form: what rope.cpp (host) asks of rope_bulk.cu (kernels).
#pragma once

#include "core/status.h"
#include "cuda/rope_bulk_plan.h"

namespace brim::cuda {

Status launch_rope_bulk(const char* op, const brim_rope_args& args, const ops::RopeProblem& problem,
                        const RopeBulk& plan);

}  // namespace brim::cuda

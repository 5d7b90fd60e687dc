// The norms' launches, of which only the cuda backend knows.
#pragma once

#include "cuda/rms_norm_plan.h"

namespace brim::cuda {

// The one kernel of a forward, the one or two of a backward.
Status launch_rms_norm(const char* op, const brim_rms_norm_args& args, const ops::RmsNormProblem& problem,
                       const NormPlan& plan);

}  // namespace brim::cuda

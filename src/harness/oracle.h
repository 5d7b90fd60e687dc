// The oracle: an op's case in float64 through the reference backend.
#pragma once

#include "harness/device.h"
#include "ops/cases.h"

namespace brim::harness {

// Runs `c` with tensors of the shapes of `views`, float ones in float64, on `inputs`. std::runtime_error when
// the reference refuses the case.
ops::Values run_oracle(const ops::Case& c, brim_op op, const std::vector<TensorView>& views,
                       const ops::Values& inputs);

}  // namespace brim::harness

// Errors counted in the spacing of a floating-point format.
#pragma once

#include "brim/tensor.h"

namespace brim::harness {

// The distance between neighbouring numbers of `dtype` at `magnitude`; that of the subnormals below the
// smallest normal number.
double ulp(brim_dtype dtype, double magnitude);

// `value` rounded to `dtype`.
double rounded(brim_dtype dtype, double value);

// |got - expected| in ulps at `magnitude`. 0 for two NaNs, and where `expected` is infinite or rounds to
// infinity and got is the same infinity; infinite where one is not finite otherwise. Magnitude 0 asks for
// equality, the sign of zero included: 0 or infinite.
double ulp_error(brim_dtype dtype, double got, double expected, double magnitude);

}  // namespace brim::harness

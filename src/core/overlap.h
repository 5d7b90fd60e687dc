// Whether two strided views share memory, exactly: slices of one packed buffer interleave without touching.
#pragma once

#include "core/tensor.h"

namespace brim::core {

enum class Overlap { none, some, undecided };  // undecided: the search gave up; callers treat it as some

Overlap overlap(const TensorView& a, const TensorView& b);

// True when distinct indices are known to reach distinct memory: with the axes in order of their strides, each stride is
// at least the extent of the axes below it. Every layout in use is of this kind; others are refused as outputs.
bool elements_distinct(const TensorView& t);

}  // namespace brim::core

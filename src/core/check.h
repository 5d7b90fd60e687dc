// The words that validation is written in. Each checks one thing about named tensors of an op and answers in a sentence.
#pragma once

#include <initializer_list>

#include "brim/run.h"
#include "core/status.h"
#include "core/tensor.h"

namespace brim::core {

struct Named {
  const char* name;
  const TensorView& tensor;
};

struct OneOf {  // a closed set of element types
  brim_dtype types[6];
};
inline constexpr OneOf kFloats{{BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16, BRIM_FLOAT64}};
inline constexpr OneOf kIntegers{{BRIM_INT32, BRIM_INT64}};

// A well-formed view: known type, rank in [1, 5], sizes and strides not negative, extent within 64-bit byte offsets, data
// there (unless empty) and aligned to its element.
Status check_view(const char* op, Named t);
Status check_dtype(const char* op, Named t, const OneOf& allowed);
Status check_same_dtype(const char* op, Named t, Named as);
// Refuses bfloat16 beside float16, and float64 beside anything else; absent tensors are skipped.
Status check_dtype_mix(const char* op, std::initializer_list<Named> tensors);
Status check_same_shape(const char* op, Named t, Named as);
// All present tensors on one device, and that device one `backend` can work on.
Status check_device(const char* op, brim_backend backend, std::initializer_list<Named> tensors);
// No two elements of an output share memory.
Status check_no_self_overlap(const char* op, Named output);
// No element of `output` shares memory with one of `other`.
Status check_disjoint(const char* op, Named output, Named other);
// As check_disjoint, but the very same view is allowed (an in-place call).
Status check_same_or_disjoint(const char* op, Named output, Named input);
// An option in [0, count).
Status check_option(const char* op, const char* name, int64_t value, int64_t count);

}  // namespace brim::core

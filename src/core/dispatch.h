// Run-time values become compile-time constants: call(type, [](auto tag) { using T = typename decltype(tag)::type; ... }).
#pragma once

#include <utility>

#include "brim/tensor.h"
#include "core/float16.h"

namespace brim::core {

template <class T>
struct Tag {
  using type = T;
};

// Host types of the float storage types. `body` is called once; an unknown type (validation has excluded it) takes float.
template <class Body>
decltype(auto) dispatch_float(brim_dtype dtype, Body&& body) {
  switch (dtype) {
    case BRIM_FLOAT64: return body(Tag<double>{});
    case BRIM_BFLOAT16: return body(Tag<bfloat16>{});
    case BRIM_FLOAT16: return body(Tag<float16>{});
    default: return body(Tag<float>{});
  }
}

}  // namespace brim::core

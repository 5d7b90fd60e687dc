// The elements of a strided host view, in row-major order of its shape.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace brim::harness {

// Calls body(first element, count, bytes between elements) for each run of the last axis.
template <class Body>
void for_each_row(const TensorView& t, Body&& body) {
  if (core::element_count(t) == 0) return;
  const int last = t.rank - 1, size = core::element_size(t.dtype);
  int64_t index[BRIM_MAX_RANK] = {};
  std::byte* at = static_cast<std::byte*>(t.data);
  for (;;) {
    body(at, t.shape[last], core::used_stride(t, last) * size);
    int axis = last - 1;
    for (; axis >= 0; --axis) {
      at += core::used_stride(t, axis) * size;
      if (++index[axis] < t.shape[axis]) break;
      at -= t.shape[axis] * core::used_stride(t, axis) * size;
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

// All elements, widened.
std::vector<double> read_elements(const TensorView& t);

// Rounds `values` to the view's type and writes them, starting over when there are fewer than elements.
void write_elements(const TensorView& t, std::span<const double> values);

// Elements whose bits are all ones, which is what memory is poisoned with.
int64_t count_poisoned(const TensorView& t);

// Copies the elements of `from` to `to`, a view of the same shape, strides and type in other memory.
void copy_elements(const TensorView& to, const TensorView& from);

}  // namespace brim::harness

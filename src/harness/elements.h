// The elements of a strided host view, in row-major order of its shape.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/parallel.h"
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

// Shares a large view out to all threads, cut along its outermost axis: body(part, how many elements stand
// before it). An expanded view stays whole, since its elements share memory.
template <class Body>
void for_each_part(const TensorView& t, Body&& body) {
  int axis = 0;
  while (axis + 1 < t.rank && t.shape[axis] == 1) ++axis;
  const int64_t inner = t.shape[axis] > 0 ? core::element_count(t) / t.shape[axis] : 0;
  const int64_t grain = core::used_stride(t, axis) == 0 ? t.shape[axis] : 1 + (1 << 20) / (1 + inner);
  core::parallel_for(t.shape[axis], grain, [&](int64_t begin, int64_t end) {
    TensorView part = t;
    part.data =
        static_cast<std::byte*>(t.data) + begin * core::used_stride(t, axis) * core::element_size(t.dtype);
    part.shape[axis] = end - begin;
    body(part, begin * inner);
  });
}

// All elements, widened.
std::vector<double> read_elements(const TensorView& t);

// Rounds `values` to the view's type and writes them, starting over when there are fewer than elements.
void write_elements(const TensorView& t, std::span<const double> values);

// Elements all of whose bytes are `poison`.
int64_t count_poisoned(const TensorView& t, std::byte poison);

// Copies the elements of `from` to `to`, a view of the same shape, strides and type in other memory.
void copy_elements(const TensorView& to, const TensorView& from);

}  // namespace brim::harness

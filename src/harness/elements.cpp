#include "harness/elements.h"

#include <cstring>

#include "core/dispatch.h"

namespace brim::harness {
namespace {

// Calls body(Tag) with the host type that stores elements of `dtype`, integers included.
template <class Body>
void dispatch_storage(brim_dtype dtype, Body&& body) {
  if (dtype == BRIM_INT32)
    body(core::Tag<int32_t>{});
  else if (dtype == BRIM_INT64)
    body(core::Tag<int64_t>{});
  else
    core::dispatch_float(dtype, body);
}

template <class T>
T from_double(double x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(x);
  else
    return core::narrow<T>(x);
}
template <class T>
double to_double(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<double>(x);
  else
    return core::widen(x);
}

bool all_ones(const std::byte* element, int size) {
  for (int i = 0; i < size; ++i)
    if (element[i] != std::byte{0xff}) return false;
  return true;
}

}  // namespace

std::vector<double> read_elements(const TensorView& t) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(core::element_count(t)));
  dispatch_storage(t.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_row(t, [&](const std::byte* at, int64_t count, int64_t step) {
      for (int64_t i = 0; i < count; ++i, at += step) {
        T x;
        std::memcpy(&x, at, sizeof x);
        values.push_back(to_double(x));
      }
    });
  });
  return values;
}

void write_elements(const TensorView& t, std::span<const double> values) {
  dispatch_storage(t.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> stored(values.size());
    for (size_t i = 0; i < values.size(); ++i) stored[i] = from_double<T>(values[i]);
    size_t next = 0;
    for_each_row(t, [&](std::byte* at, int64_t count, int64_t step) {
      for (int64_t i = 0; i < count; ++i, at += step) {
        std::memcpy(at, &stored[next], sizeof(T));
        if (++next == stored.size()) next = 0;
      }
    });
  });
}

int64_t count_poisoned(const TensorView& t) {
  const int size = core::element_size(t.dtype);
  int64_t poisoned = 0;
  for_each_row(t, [&](const std::byte* at, int64_t count, int64_t step) {
    for (int64_t i = 0; i < count; ++i) poisoned += all_ones(at + i * step, size);
  });
  return poisoned;
}

void copy_elements(const TensorView& to, const TensorView& from) {
  const int size = core::element_size(to.dtype);
  const std::ptrdiff_t distance = static_cast<std::byte*>(to.data) - static_cast<std::byte*>(from.data);
  for_each_row(from, [&](const std::byte* at, int64_t count, int64_t step) {
    if (step == size || count == 1) {
      std::memcpy(const_cast<std::byte*>(at) + distance, at, static_cast<size_t>(count * size));
      return;
    }
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(const_cast<std::byte*>(at + i * step) + distance, at + i * step, size);
  });
}

}  // namespace brim::harness

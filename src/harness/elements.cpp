#include "harness/elements.h"

#include <atomic>
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
    for_each_part(t, [&](const TensorView& part, int64_t before) {
      size_t next = stored.empty() ? 0 : static_cast<size_t>(before) % stored.size();
      for_each_row(part, [&](std::byte* at, int64_t count, int64_t step) {
        for (int64_t i = 0; i < count; ++i, at += step) {
          std::memcpy(at, &stored[next], sizeof(T));
          if (++next == stored.size()) next = 0;
        }
      });
    });
  });
}

int64_t count_poisoned(const TensorView& t, std::byte poison) {
  std::atomic<int64_t> poisoned{0};
  dispatch_storage(t.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T poisoned_element;
    std::memset(&poisoned_element, static_cast<int>(poison), sizeof(T));
    for_each_part(t, [&](const TensorView& part, int64_t) {
      int64_t found = 0;
      for_each_row(part, [&](const std::byte* at, int64_t count, int64_t step) {
        for (int64_t i = 0; i < count; ++i)
          found += std::memcmp(at + i * step, &poisoned_element, sizeof(T)) == 0;
      });
      poisoned += found;
    });
  });
  return poisoned;
}

void copy_elements(const TensorView& to, const TensorView& from) {
  const size_t size = static_cast<size_t>(core::element_size(to.dtype));
  const std::ptrdiff_t distance = static_cast<std::byte*>(to.data) - static_cast<std::byte*>(from.data);
  for_each_part(from, [&](const TensorView& part, int64_t) {
    for_each_row(part, [&](std::byte* at, int64_t count, int64_t step) {
      if (step == static_cast<int64_t>(size)) {
        std::memcpy(at + distance, at, static_cast<size_t>(count) * size);
        return;
      }
      for (int64_t i = 0; i < count; ++i, at += step) std::memcpy(at + distance, at, size);
    });
  });
}

}  // namespace brim::harness

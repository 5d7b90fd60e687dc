// Facts about a TensorView that every op asks for.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "brim/tensor.h"

namespace brim::core {

inline bool present(const TensorView& t) { return t.dtype != BRIM_DTYPE_NONE; }

constexpr int element_size(brim_dtype dtype) {
  switch (dtype) {
    case BRIM_FLOAT64:
    case BRIM_INT64: return 8;
    case BRIM_FLOAT32:
    case BRIM_INT32: return 4;
    case BRIM_BFLOAT16:
    case BRIM_FLOAT16: return 2;
    default: return 0;
  }
}

constexpr const char* dtype_name(brim_dtype dtype) {
  switch (dtype) {
    case BRIM_DTYPE_NONE: return "none";
    case BRIM_FLOAT32: return "float32";
    case BRIM_BFLOAT16: return "bfloat16";
    case BRIM_FLOAT16: return "float16";
    case BRIM_FLOAT64: return "float64";
    case BRIM_INT32: return "int32";
    case BRIM_INT64: return "int64";
    default: return "unknown dtype";
  }
}

inline bool empty(const TensorView& t) {
  for (int i = 0; i < t.rank; ++i)
    if (t.shape[i] == 0) return true;
  return false;
}

inline int64_t element_count(const TensorView& t) {
  int64_t n = 1;
  for (int i = 0; i < t.rank; ++i) n *= t.shape[i];
  return n;
}

// The stride that addressing uses: that of an axis of size 1, and every one of an empty view, is meaningless and counts
// as 0.
inline int64_t used_stride(const TensorView& t, int axis) {
  return t.shape[axis] > 1 && !empty(t) ? t.strides[axis] : 0;
}

// Elements from the first to one past the last that the view can reach; 0 for an empty view.
inline int64_t span_elements(const TensorView& t) {
  if (empty(t)) return 0;
  int64_t last = 0;
  for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * used_stride(t, i);
  return last + 1;
}

inline bool same_view(const TensorView& a, const TensorView& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.shape[i] != b.shape[i] || used_stride(a, i) != used_stride(b, i)) return false;
  return true;
}

// "(2,32,128,64)", for messages.
struct ShapeText {
  char text[128];
  explicit ShapeText(const int64_t* values, int count) {
    int at = std::snprintf(text, sizeof text, "(");
    for (int i = 0; i < count; ++i)
      at +=
          std::snprintf(text + at, sizeof text - at, i ? ",%lld" : "%lld", static_cast<long long>(values[i]));
    std::snprintf(text + at, sizeof text - at, ")");
  }
};
inline ShapeText shape_text(const TensorView& t) { return ShapeText(t.shape, t.rank); }
inline ShapeText strides_text(const TensorView& t) { return ShapeText(t.strides, t.rank); }

// The largest power of two, at most 16, that divides `bytes`: alignments are combined by OR-ing addresses and strides.
constexpr int alignment_of(uint64_t bytes) {
  const uint64_t low = (bytes | 16) & ~((bytes | 16) - 1);
  return static_cast<int>(low);
}

// OR of the addresses and byte strides that lead to the first element of a row of the last axis.
inline uint64_t row_bits(const TensorView& t) {
  if (!present(t) || empty(t)) return 0;
  uint64_t bits = reinterpret_cast<uintptr_t>(t.data);
  for (int i = 0; i + 1 < t.rank; ++i)
    bits |= static_cast<uint64_t>(used_stride(t, i)) * static_cast<uint64_t>(element_size(t.dtype));
  return bits;
}

}  // namespace brim::core

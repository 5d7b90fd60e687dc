#include "core/check.h"

#include "core/overlap.h"

namespace brim::core {
namespace {
// Beyond any address space, and small enough that what is added up of two views stays within 64 bits: extents in
// overlap.cpp, bytes read and written in plans.
constexpr int64_t kMaxBytes = int64_t{1} << 60;
}  // namespace

Status check_view(const char* op, Named n) {
  const TensorView& t = n.tensor;
  const int size = element_size(t.dtype);
  if (size == 0)
    return failure(
        BRIM_INVALID_DTYPE, "%s: %s has %s", op, n.name,
        present(t) ? "an element type brim does not know" : "no element type: it is absent, but needed");
  if (t.rank < 1 || t.rank > BRIM_MAX_RANK)
    return failure(BRIM_INVALID_ARGUMENT, "%s: %s has rank %d, expected 1 to %d", op, n.name, t.rank,
                   BRIM_MAX_RANK);
  for (int i = 0; i < t.rank; ++i)
    if (t.shape[i] < 0)
      return failure(BRIM_INVALID_ARGUMENT, "%s: %s has the negative size %lld on axis %d", op, n.name,
                     static_cast<long long>(t.shape[i]), i);
  // Bytes that the view reaches over, and those of its elements; a size of 0 counts as 1, so that the product of any of
  // the sizes stays within the bound too.
  int64_t reach = size, bytes = size;
  for (int i = 0; i < t.rank; ++i) {
    int64_t step;
    if (used_stride(t, i) < 0)
      return failure(BRIM_INVALID_ARGUMENT,
                     "%s: %s has the negative stride %lld on axis %d, which is not served", op, n.name,
                     static_cast<long long>(t.strides[i]), i);
    if (__builtin_mul_overflow(bytes, t.shape[i] > 1 ? t.shape[i] : 1, &bytes) || bytes > kMaxBytes ||
        __builtin_mul_overflow(t.shape[i] - 1, used_stride(t, i), &step) ||
        __builtin_mul_overflow(step, static_cast<int64_t>(size), &step) ||
        __builtin_add_overflow(reach, step, &reach) || reach > kMaxBytes)
      return failure(BRIM_INVALID_ARGUMENT, "%s: %s of shape %s and strides %s reaches beyond 64-bit offsets",
                     op, n.name, shape_text(t).text, strides_text(t).text);
  }
  if (!t.data && !empty(t))
    return failure(BRIM_INVALID_ARGUMENT, "%s: %s has elements but its data is null", op, n.name);
  if (reinterpret_cast<uintptr_t>(t.data) % size)
    return failure(BRIM_INVALID_ARGUMENT, "%s: %s's data is not aligned to its element of %d bytes", op,
                   n.name, size);
  return success();
}

Status check_dtype(const char* op, Named n, const OneOf& allowed) {
  for (brim_dtype type : allowed.types)
    if (type == n.tensor.dtype && present(n.tensor)) return success();
  char list[96] = "";
  int at = 0;
  for (brim_dtype type : allowed.types)
    if (type) at += std::snprintf(list + at, sizeof list - at, at ? ", %s" : "%s", dtype_name(type));
  return failure(BRIM_INVALID_DTYPE, "%s: %s is %s, expected one of %s", op, n.name,
                 dtype_name(n.tensor.dtype), list);
}

Status check_same_dtype(const char* op, Named n, Named as) {
  if (n.tensor.dtype == as.tensor.dtype) return success();
  return failure(BRIM_INVALID_DTYPE, "%s: %s is %s, %s is %s; they must have one type", op, n.name,
                 dtype_name(n.tensor.dtype), as.name, dtype_name(as.tensor.dtype));
}

Status check_dtype_mix(const char* op, std::initializer_list<Named> tensors) {
  for (const Named& a : tensors)
    for (const Named& b : tensors) {
      const brim_dtype x = a.tensor.dtype, y = b.tensor.dtype;
      if (!present(a.tensor) || !present(b.tensor)) continue;
      if ((x == BRIM_BFLOAT16 && y == BRIM_FLOAT16) || (x == BRIM_FLOAT64 && y != BRIM_FLOAT64))
        return failure(BRIM_INVALID_DTYPE,
                       "%s: %s is %s and %s is %s; these two types do not mix in one call", op, a.name,
                       dtype_name(x), b.name, dtype_name(y));
    }
  return success();
}

Status check_same_shape(const char* op, Named n, Named as) {
  bool same = n.tensor.rank == as.tensor.rank;
  for (int i = 0; same && i < n.tensor.rank; ++i) same = n.tensor.shape[i] == as.tensor.shape[i];
  if (same) return success();
  return failure(BRIM_INVALID_ARGUMENT, "%s: %s has shape %s, expected that of %s, %s", op, n.name,
                 shape_text(n.tensor).text, as.name, shape_text(as.tensor).text);
}

namespace {
struct DeviceText {
  char text[24];
  explicit DeviceText(const TensorView& t) {
    if (t.device == BRIM_CPU)
      std::snprintf(text, sizeof text, "cpu");
    else if (t.device == BRIM_CUDA)
      std::snprintf(text, sizeof text, "cuda:%d", t.device_index);
    else
      std::snprintf(text, sizeof text, "device type %d", t.device);
  }
};
}  // namespace

Status check_device(const char* op, brim_backend backend, std::initializer_list<Named> tensors) {
  const Named* first = nullptr;
  for (const Named& n : tensors) {
    if (!present(n.tensor)) continue;
    if (!first) first = &n;
    const TensorView &a = first->tensor, &b = n.tensor;
    if (a.device != b.device || (a.device == BRIM_CUDA && a.device_index != b.device_index))
      return failure(BRIM_DEVICE_ERROR, "%s: %s is on %s, %s is on %s; they must be on one device", op,
                     n.name, DeviceText(b).text, first->name, DeviceText(a).text);
  }
  if (!first) return success();
  const TensorView& t = first->tensor;
  if (t.device != BRIM_CPU && t.device != BRIM_CUDA)
    return failure(BRIM_DEVICE_ERROR, "%s: %s is on %s; brim knows 0 (cpu) and 1 (cuda)", op, first->name,
                   DeviceText(t).text);
  const bool wants_cuda = backend == BRIM_BACKEND_CUDA, is_cuda = t.device == BRIM_CUDA;
  if (wants_cuda != is_cuda)
    return failure(BRIM_DEVICE_ERROR, "%s: %s is on %s, which the %s backend cannot reach", op, first->name,
                   DeviceText(t).text, wants_cuda ? "cuda" : "cpu or reference");
  return success();
}

Status check_no_self_overlap(const char* op, Named n) {
  if (elements_distinct(n.tensor)) return success();
  return failure(BRIM_INVALID_ARGUMENT, "%s: the output %s of shape %s and strides %s overlaps itself", op,
                 n.name, shape_text(n.tensor).text, strides_text(n.tensor).text);
}

Status check_disjoint(const char* op, Named output, Named other) {
  if (!present(output.tensor) || !present(other.tensor)) return success();
  switch (overlap(output.tensor, other.tensor)) {
    case Overlap::none: return success();
    case Overlap::some:
      return failure(BRIM_INVALID_ARGUMENT, "%s: the output %s overlaps %s", op, output.name, other.name);
    default:
      return failure(BRIM_INVALID_ARGUMENT, "%s: the output %s could not be shown to be apart from %s", op,
                     output.name, other.name);
  }
}

Status check_same_or_disjoint(const char* op, Named output, Named input) {
  if (same_view(output.tensor, input.tensor)) return success();
  return check_disjoint(op, output, input);
}

Status check_option(const char* op, const char* name, int64_t value, int64_t count) {
  if (value >= 0 && value < count) return success();
  return failure(BRIM_INVALID_ARGUMENT, "%s: %s is %lld, expected 0 to %lld", op, name,
                 static_cast<long long>(value), static_cast<long long>(count - 1));
}

}  // namespace brim::core

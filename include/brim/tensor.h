// A view of somebody else's memory: what every op takes and writes. C11 and C++.
#ifndef BRIM_TENSOR_H
#define BRIM_TENSOR_H

#include <stdint.h>

#ifdef __cplusplus
#include <initializer_list>
#endif

#define BRIM_MAX_RANK 5

// Element types. BRIM_DTYPE_NONE (zero) marks a tensor that is absent.
typedef int32_t brim_dtype;
enum {
  BRIM_DTYPE_NONE = 0,
  BRIM_FLOAT32 = 1,
  BRIM_BFLOAT16 = 2,
  BRIM_FLOAT16 = 3,
  BRIM_FLOAT64 = 4,  // CPU and reference backends only
  BRIM_INT32 = 5,
  BRIM_INT64 = 6
};

typedef int32_t brim_device_type;
enum { BRIM_CPU = 0, BRIM_CUDA = 1 };

// Strides count elements, not bytes, and are never negative; the stride of an axis of size 1 is never used.
// `data` is aligned to its element size; it may be null when the view has no elements.
typedef struct brim_tensor {
  void* data;
  brim_dtype dtype;
  brim_device_type device;
  int32_t device_index;  // ordinal of the GPU; 0 on the CPU
  int32_t rank;          // 0 .. BRIM_MAX_RANK
  int64_t shape[BRIM_MAX_RANK];
  int64_t strides[BRIM_MAX_RANK];
} brim_tensor;

#ifdef __cplusplus
namespace brim {

using TensorView = brim_tensor;

// A contiguous (row-major) view; pass `strides` for any other layout. At most BRIM_MAX_RANK sizes are read.
inline TensorView view(const void* data, brim_dtype dtype, std::initializer_list<int64_t> shape,
                       std::initializer_list<int64_t> strides = {}, brim_device_type device = BRIM_CPU,
                       int device_index = 0) {
  TensorView t{};
  t.data = const_cast<void*>(data);
  t.dtype = dtype;
  t.device = device;
  t.device_index = device_index;
  for (int64_t n : shape)
    if (t.rank < BRIM_MAX_RANK) t.shape[t.rank++] = n;
  int64_t stride = 1;
  for (int i = t.rank; i-- > 0; stride *= t.shape[i]) t.strides[i] = stride;
  int i = 0;
  for (int64_t s : strides)
    if (i < t.rank) t.strides[i++] = s;
  return t;
}

}  // namespace brim
#endif

#endif  // BRIM_TENSOR_H

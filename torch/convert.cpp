#include "convert.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace brim::binding {
namespace {

brim_dtype dtype_of(AtenTensorHandle tensor) {
  // The numbers behind PyTorch's names are no part of its ABI, so they are asked for, once.
  static const std::pair<int32_t, brim_dtype> kTypes[] = {
      {aoti_torch_dtype_float32(), BRIM_FLOAT32}, {aoti_torch_dtype_bfloat16(), BRIM_BFLOAT16},
      {aoti_torch_dtype_float16(), BRIM_FLOAT16}, {aoti_torch_dtype_float64(), BRIM_FLOAT64},
      {aoti_torch_dtype_int64(), BRIM_INT64},     {aoti_torch_dtype_int32(), BRIM_INT32}};
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor, &dtype));
  for (const auto& [torch_type, type] : kTypes)
    if (torch_type == dtype) return type;
  return -1;  // known to nobody: check_view says so
}

TensorView describe(AtenTensorHandle tensor) {
  static const int32_t cpu = aoti_torch_device_type_cpu(), cuda = aoti_torch_device_type_cuda();
  TensorView view{};
  int32_t device;
  int64_t rank, *shape, *strides;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor, &device));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor, &rank));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor, &shape));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor, &strides));
  view.dtype = dtype_of(tensor);
  view.device = device == cpu ? BRIM_CPU : device == cuda ? BRIM_CUDA : -1;
  if (view.device == BRIM_CUDA)
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor, &view.device_index));
  view.rank = static_cast<int32_t>(rank);  // a rank beyond brim's is kept, and refused with its name
  std::copy_n(shape, std::min<int64_t>(rank, BRIM_MAX_RANK), view.shape);
  std::copy_n(strides, std::min<int64_t>(rank, BRIM_MAX_RANK), view.strides);
  return view;
}

using Axes = std::array<int, 8>;

// As PyTorch orders the axes of a new tensor after an old one (TensorIterator, empty_like): by stride, where
// the strides of expanded axes and of axes of one element say nothing and leave the order of the axes alone.
Axes order_of(const int64_t* shape, const int64_t* strides, int rank) {
  Axes axes{};
  for (int i = 0; i < rank; ++i) axes[i] = i;
  const auto says_nothing = [&](int axis) { return shape[axis] <= 1 || strides[axis] == 0; };
  for (int i = 1; i < rank; ++i)
    for (int at = i, other = i; other-- > 0;) {
      const int a = axes[other], b = axes[at];
      if (says_nothing(a) || says_nothing(b)) continue;
      if (strides[a] >= strides[b]) break;
      std::swap(axes[other], axes[at]);
      at = other;
    }
  return axes;
}

Axes unpack(int64_t order, int rank) {
  Axes axes{};
  for (int i = 0; i < rank; ++i) axes[i] = static_cast<int>(order >> 3 * i & 7);
  return axes;
}

}  // namespace

TensorView input(AtenTensorHandle tensor) {
  if (!tensor) return {};
  TensorView view = describe(tensor);
  const void* data;
  TORCH_ERROR_CODE_CHECK(torch_get_const_data_ptr(tensor, &data));
  view.data = const_cast<void*>(data);
  return view;
}

TensorView output(AtenTensorHandle tensor) {
  if (!tensor) return {};
  TensorView view = describe(tensor);
  TORCH_ERROR_CODE_CHECK(torch_get_mutable_data_ptr(tensor, &view.data));
  return view;
}

namespace {

// What says how to make a tensor like another one.
struct Like {
  int32_t dtype, device, index;
  int64_t rank, *shape, *strides;

  explicit Like(AtenTensorHandle tensor) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor, &dtype));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor, &device));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor, &index));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor, &rank));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor, &shape));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor, &strides));
    if (rank > 8) throw std::invalid_argument("brim: a tensor has more than 8 axes");
  }

  // Dense, its axes in the order that `axes` says.
  Handle empty(int64_t of_rank, const int64_t* of_shape, const Axes& axes, int32_t of_dtype) const {
    int64_t dense[8], step = 1;
    for (auto i = static_cast<int>(of_rank); i-- > 0; step *= std::max<int64_t>(of_shape[axes[i]], 1))
      dense[axes[i]] = step;
    AtenTensorHandle made;
    TORCH_ERROR_CODE_CHECK(
        aoti_torch_empty_strided(of_rank, of_shape, dense, of_dtype, device, index, &made));
    return Handle(made);
  }
};

constexpr Axes kAsTheyAre{0, 1, 2, 3, 4, 5, 6, 7};

}  // namespace

Handle empty_in_order(AtenTensorHandle tensor, int64_t order, AtenTensorHandle typed) {
  const Like like(tensor);
  const int rank = static_cast<int>(like.rank);
  int32_t dtype = like.dtype;
  if (typed) TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(typed, &dtype));
  return like.empty(rank, like.shape,
                    order == kOrderOfInput ? order_of(like.shape, like.strides, rank) : unpack(order, rank),
                    dtype);
}

Handle empty_rstd(AtenTensorHandle rows) {
  static const int32_t float32 = aoti_torch_dtype_float32(), float64 = aoti_torch_dtype_float64();
  const Like like(rows);
  return like.empty(std::max<int64_t>(like.rank - 1, 0), like.shape, kAsTheyAre,
                    like.dtype == float64 ? float64 : float32);
}

Handle empty_bytes(AtenTensorHandle like, size_t bytes) {
  static const int32_t uint8 = aoti_torch_dtype_uint8();
  const auto size = static_cast<int64_t>(bytes);
  return Like(like).empty(1, &size, kAsTheyAre, uint8);
}

void* current_stream([[maybe_unused]] AtenTensorHandle tensor) {
  void* stream = nullptr;
#ifdef USE_CUDA
  static const int32_t cuda = aoti_torch_device_type_cuda();
  int32_t device, index;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor, &device));
  if (device != cuda) return nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor, &index));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(index, &stream));
#endif
  return stream;
}

void raise(const Status& status) {
  switch (status.code) {
    case BRIM_OK: return;
    case BRIM_INVALID_ARGUMENT: throw std::invalid_argument(status.message);
    case BRIM_OUT_OF_RANGE: throw std::out_of_range(status.message);
    default: throw std::runtime_error(status.message);
  }
}

}  // namespace brim::binding

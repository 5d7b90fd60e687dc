#include "convert.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace brim::binding {
namespace {

brim_dtype dtype_of(int32_t dtype) {
  // The numbers behind PyTorch's names are no part of its ABI, so they are asked for, once.
  static const std::pair<int32_t, brim_dtype> kTypes[] = {
      {aoti_torch_dtype_float32(), BRIM_FLOAT32}, {aoti_torch_dtype_bfloat16(), BRIM_BFLOAT16},
      {aoti_torch_dtype_float16(), BRIM_FLOAT16}, {aoti_torch_dtype_float64(), BRIM_FLOAT64},
      {aoti_torch_dtype_int64(), BRIM_INT64},     {aoti_torch_dtype_int32(), BRIM_INT32}};
  for (const auto& [torch_type, type] : kTypes)
    if (torch_type == dtype) return type;
  return -1;  // known to nobody: check_view says so
}

int32_t cuda_device() {
  static const int32_t cuda = aoti_torch_device_type_cuda();
  return cuda;
}

// All but the data.
TensorView describe(const Facts& t) {
  static const int32_t cpu = aoti_torch_device_type_cpu();
  TensorView view{};
  view.dtype = dtype_of(t.dtype);
  view.device = t.device == cpu ? BRIM_CPU : t.device == cuda_device() ? BRIM_CUDA : -1;
  if (view.device == BRIM_CUDA) view.device_index = t.index;
  view.rank = static_cast<int32_t>(t.rank);  // a rank beyond brim's is kept, and refused with its name
  std::copy_n(t.shape, std::min<int64_t>(t.rank, BRIM_MAX_RANK), view.shape);
  std::copy_n(t.strides, std::min<int64_t>(t.rank, BRIM_MAX_RANK), view.strides);
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

constexpr Axes kAsTheyAre{0, 1, 2, 3, 4, 5, 6, 7};

// Dense, its axes in the order that `axes` says; of `like`'s device.
Made empty(const Facts& like, int64_t rank, int64_t* shape, const Axes& axes, int32_t dtype) {
  int64_t dense[8], step = 1;
  for (auto i = static_cast<int>(rank); i-- > 0; step *= std::max<int64_t>(shape[axes[i]], 1))
    dense[axes[i]] = step;
  Facts made = like;
  made.dtype = dtype;
  made.rank = rank;
  made.shape = shape;
  made.strides = dense;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(rank, shape, dense, dtype, like.device, like.index, &made.tensor));
  return {Handle(made.tensor), output(made)};
}

}  // namespace

Facts::Facts(AtenTensorHandle of) : tensor(of), dtype(0), device(0), index(0), rank(0) {
  if (!of) return;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(of, &dtype));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(of, &device));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(of, &index));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(of, &rank));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(of, &shape));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(of, &strides));
}

TensorView input(const Facts& t) {
  if (!t.tensor) return {};
  TensorView view = describe(t);
  const void* data;
  TORCH_ERROR_CODE_CHECK(torch_get_const_data_ptr(t.tensor, &data));
  view.data = const_cast<void*>(data);
  return view;
}

TensorView output(const Facts& t) {
  if (!t.tensor) return {};
  TensorView view = describe(t);
  TORCH_ERROR_CODE_CHECK(torch_get_mutable_data_ptr(t.tensor, &view.data));
  return view;
}

Made empty_in_order(const Facts& like, int64_t order, int32_t dtype) {
  if (like.rank > 8) throw std::invalid_argument("brim: a tensor has more than 8 axes");
  const int rank = static_cast<int>(like.rank);
  return empty(like, rank, like.shape,
               order == kOrderOfInput ? order_of(like.shape, like.strides, rank) : unpack(order, rank),
               dtype);
}

Made empty_like(const Facts& like, int32_t dtype) {
  return like.tensor ? empty_in_order(like, kOrderOfInput, dtype) : Made();
}

Made empty_rstd(const Facts& rows) {
  static const int32_t float32 = aoti_torch_dtype_float32(), float64 = aoti_torch_dtype_float64();
  return empty(rows, std::max<int64_t>(rows.rank - 1, 0), rows.shape, kAsTheyAre,
               rows.dtype == float64 ? float64 : float32);
}

Made empty_bytes(const Facts& like, size_t bytes) {
  static const int32_t uint8 = aoti_torch_dtype_uint8();
  auto size = static_cast<int64_t>(bytes);
  return empty(like, 1, &size, kAsTheyAre, uint8);
}

void* current_stream([[maybe_unused]] const Facts& tensor) {
  void* stream = nullptr;
#ifdef USE_CUDA
  if (tensor.device == cuda_device())
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.index, &stream));
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

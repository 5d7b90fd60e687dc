// Between PyTorch's stable ABI and brim: tensors become views, a Status becomes the exception that PyTorch
// turns into Python's.
#pragma once

#include <torch/csrc/stable/stableivalue_conversions.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "brim/brim.hpp"

namespace brim::binding {

using torch::stable::Tensor;

// A tensor's handle and its owner. torch::stable::Tensor keeps each behind a shared pointer, which costs an
// allocation for every argument and result of an op; what is called for every layer uses this.
class Handle {
 public:
  explicit Handle(AtenTensorHandle handle = nullptr) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(other.release()) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (handle_) aoti_torch_delete_tensor_object(handle_);
  }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }

 private:
  AtenTensorHandle handle_;
};

// The tensor that an op was given, or none.
inline Handle optional_tensor(StableIValue value) {
  return Handle(torch::stable::detail::to<std::optional<AtenTensorHandle>>(value).value_or(nullptr));
}

// What PyTorch knows of a tensor, or of none: asked once, since each question is a call.
struct Facts {
  AtenTensorHandle tensor;
  int32_t dtype, device, index;  // PyTorch's numbers
  int64_t rank, *shape, *strides;

  Facts(AtenTensorHandle of);
  Facts(const Handle& of) : Facts(of.get()) {}
  Facts(const Tensor& of) : Facts(of.get()) {}
};

// The view of a tensor that is only read, and of one that is written (PyTorch's copy-on-write needs to know
// which); absent where there is none.
TensorView input(const Facts& tensor);
TensorView output(const Facts& tensor);

// The order of a tensor's axes in memory, outermost first, three bits an axis from the lowest up;
// kOrderOfInput asks for the order of the tensor at hand. An output with the axis order of what it is the
// gradient of is accumulated without a copy.
inline constexpr int64_t kOrderOfInput = -1;

// A new tensor and its view, to write; or none.
struct Made {
  Handle tensor;
  TensorView view{};
};

// Of `like`'s shape, device and type (or another one of PyTorch's), dense, its axes in `order`.
Made empty_in_order(const Facts& like, int64_t order, int32_t dtype);
inline Made empty_in_order(const Facts& like, int64_t order) {
  return empty_in_order(like, order, like.dtype);
}
// The same in the order of `like` itself; none for none.
Made empty_like(const Facts& like, int32_t dtype);
inline Made empty_like(const Facts& like) { return empty_like(like, like.dtype); }

// A number for each row of `rows`, of its shape without the last axis: float32, or float64 beside float64.
Made empty_rstd(const Facts& rows);

// Workspace on `like`'s device.
Made empty_bytes(const Facts& like, size_t bytes);

// A result of an op.
inline StableIValue give(Made& made) { return torch::stable::detail::from(made.tensor.release()); }

// The stream that PyTorch queues work on for the tensor's device; null on the CPU.
void* current_stream(const Facts& tensor);

// ValueError, IndexError or RuntimeError with the status' message, unless it is BRIM_OK.
void raise(const Status& status);

}  // namespace brim::binding

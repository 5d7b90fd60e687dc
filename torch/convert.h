// Between PyTorch's stable ABI and brim: tensors become views, a Status becomes the exception that PyTorch
// turns into Python's.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>

#include "brim/brim.hpp"

namespace brim::binding {

using torch::stable::Tensor;

// The view of a tensor that is only read, and of one that is written (PyTorch's copy-on-write needs to know
// which).
TensorView input(const Tensor& tensor);
TensorView output(const Tensor& tensor);
TensorView input(const std::optional<Tensor>& tensor);  // absent where there is none
TensorView output(const std::optional<Tensor>& tensor);

// The order of a tensor's axes in memory, outermost first, three bits an axis from the lowest up;
// kOrderOfInput asks for the order of the tensor at hand. An output with the axis order of what it is the
// gradient of is accumulated without a copy.
inline constexpr int64_t kOrderOfInput = -1;

// A new tensor of `like`'s shape, type and device, dense, its axes in `order`.
Tensor empty_in_order(const Tensor& like, int64_t order);

// The stream that PyTorch queues work on for the tensor's device; null on the CPU.
void* current_stream(const Tensor& tensor);

// ValueError, IndexError or RuntimeError with the status' message, unless it is BRIM_OK.
void raise(const Status& status);

}  // namespace brim::binding

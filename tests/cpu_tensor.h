// Tensors for tests: any type, layout and alignment, with canaries around and between the elements.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "brim/tensor.h"
#include "core/dispatch.h"
#include "core/tensor.h"

namespace brim::test {

// A tensor inside a larger buffer whose every other byte is a canary.
class Tensor {
 public:
  static constexpr uint8_t kCanary = 0xa5;
  static constexpr size_t kGuard = 256;

  Tensor() = default;
  // `shift` elements from a 64-byte boundary, with `tail` bytes of canaries behind: none for a tensor that is
  // only read, so that the address sanitizer sees a read past its end.
  Tensor(brim_dtype dtype, std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t shift = 0,
         size_t tail = kGuard)
      : shift_(shift) {
    view_.dtype = dtype;
    view_.rank = static_cast<int>(shape.size());
    for (int i = 0; i < view_.rank; ++i) {
      view_.shape[i] = shape[i];
      view_.strides[i] = strides[i];
    }
    const size_t bytes = core::span_elements(view_) * size();
    storage_.resize(kGuard + 64 + shift * size() + bytes + tail);
    const size_t misaligned = reinterpret_cast<uintptr_t>(storage_.data()) % 64;
    const size_t first = kGuard + 64 - misaligned + shift * size();
    storage_.resize(first + bytes + tail);  // shrinks in place
    std::fill(storage_.begin(), storage_.end(), kCanary);
    view_.data = storage_.data() + first;
    used_.assign(storage_.size(), 0);
    each([&](int64_t offset) { std::memset(used_.data() + (at(offset) - storage_.data()), 1, size()); });
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;

  Tensor clone(size_t tail = kGuard) const {
    Tensor t(view_.dtype, {view_.shape, view_.shape + view_.rank},
             {view_.strides, view_.strides + view_.rank}, shift_, tail);
    each([&](int64_t offset) { std::memcpy(t.at(offset), at(offset), size()); });
    return t;
  }

  const TensorView& view() const { return view_; }
  size_t size() const { return core::element_size(view_.dtype); }
  uint8_t* at(int64_t offset) const {
    return static_cast<uint8_t*>(view_.data) + offset * static_cast<int64_t>(size());
  }

  // body(element offset) for each index, the last axis fastest.
  template <class Body>
  void each(Body&& body) const {
    if (!core::present(view_) || core::element_count(view_) == 0) return;
    int64_t index[BRIM_MAX_RANK] = {};
    for (;;) {
      int64_t offset = 0;
      for (int i = 0; i < view_.rank; ++i) offset += index[i] * view_.strides[i];
      body(offset);
      int axis = view_.rank - 1;
      for (; axis >= 0 && ++index[axis] == view_.shape[axis]; --axis) index[axis] = 0;
      if (axis < 0) return;
    }
  }
  // Random bits of the type on the scale of `spread`: a sign, a fraction and an exponent.
  void fill(std::mt19937_64& random, double spread = 2) {
    each([&](int64_t offset) {
      const double x = spread * (static_cast<double>(random() >> 11) * 0x1p-52 - 1);
      core::dispatch_float(view_.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T v = core::narrow<T>(x);
        std::memcpy(at(offset), &v, sizeof v);
      });
    });
  }
  double value(int64_t offset) const {
    return core::dispatch_float(view_.dtype, [&](auto tag) -> double {
      typename decltype(tag)::type v;
      std::memcpy(&v, at(offset), sizeof v);
      return core::widen(v);
    });
  }
  uint64_t bits(int64_t offset) const {
    uint64_t b = 0;
    std::memcpy(&b, at(offset), size());
    return b;
  }
  bool canaries_intact() const {
    for (size_t i = 0; i < storage_.size(); ++i)
      if (!used_[i] && storage_[i] != kCanary) return false;
    return true;
  }

 private:
  TensorView view_{};
  int64_t shift_ = 0;
  std::vector<uint8_t> storage_, used_;
};

}  // namespace brim::test

// The rows of a tensor, one after the other, and what bodies of RMSNorm do alike. For rms_norm_isa.cpp only.
#pragma once

#include "cpu/parts.h"
#include "cpu/rms_norm.h"
#include "cpu/stage.h"

namespace brim::cpu {
namespace {

using ops::RmsNormProblem;
using ops::RowStrides;

// Strided rows go through buffers of this many elements.
inline constexpr int64_t kPiece = kSumBlock;

// Where in a tensor the call is; row() is null for an absent one.
template <class T>
class Rows {
 public:
  Rows(const RmsNormProblem& p, const brim_tensor& t, const RowStrides& strides)
      : p_(p),
        data_(static_cast<T*>(t.data)),
        strides_(strides),
        step_(p.axes ? strides.axis[p.axes - 1] : 0),
        column_(p.hidden > 1 ? strides.column : 1) {}

  void seek(int64_t row) {
    if (!data_) return;
    row_ = data_;
    for (int i = p_.axes; i-- > 0; row /= p_.sizes[i]) row_ += row % p_.sizes[i] * strides_.axis[i];
  }
  HWY_INLINE void next() {
    if (data_) row_ += step_;
  }
  HWY_INLINE T* row() const { return row_; }
  HWY_INLINE int64_t step() const { return step_; }

  // n elements from `first` on, side by side: in place, or copied.
  HWY_INLINE T* fetch(int64_t first, int64_t n, std::remove_const_t<T>* buffer) const {
    if (HWY_LIKELY(column_ == 1)) return row_ ? row_ + first : nullptr;
    if (!row_) return nullptr;
    for (int64_t i = 0; i < n; ++i) buffer[i] = row_[(first + i) * column_];
    return buffer;
  }
  // The same for writing, and what is done after it.
  HWY_INLINE T* place(int64_t first, T* buffer) const {
    if (!row_) return nullptr;
    return HWY_LIKELY(column_ == 1) ? row_ + first : buffer;
  }
  HWY_INLINE void put_back(int64_t first, int64_t n, const T* buffer) const {
    if (HWY_LIKELY(column_ == 1) || !row_) return;
    for (int64_t i = 0; i < n; ++i) row_[(first + i) * column_] = buffer[i];
  }

 private:
  const RmsNormProblem& p_;
  T* data_;
  const RowStrides& strides_;
  int64_t step_, column_;
  T* row_ = nullptr;
};

// body(row, whether another is `ahead` rows further on at the same steps, though it may be another thread's) for
// rows begin .. end-1 of all these tensors.
template <class Body, class... Tensors>
HWY_INLINE void each_row(const RmsNormProblem& p, int64_t begin, int64_t end, int64_t ahead, Body&& body,
                         Tensors&... tensors) {
  const int64_t inner = p.axes ? p.sizes[p.axes - 1] : 1;
  for (int64_t row = begin, last; row < end; row = last) {
    const int64_t left = inner - row % inner;
    last = end - row < left ? end : row + left;
    (tensors.seek(row), ...);
    for (int64_t i = row; i < last; ++i) {
      body(i, i + ahead < row + left);
      (tensors.next(), ...);
    }
  }
}

// Sums are always formed in this order, and dweight's too unless rows have heads (RowWriting).
template <class X, class S>
inline constexpr Order kOrder =
    std::is_same_v<X, bfloat16>&& std::is_same_v<S, bfloat16> ? Order::paired : Order::natural;

// Elements before the first that begins a cache line.
template <class T>
HWY_INLINE int64_t head_of(const T* p) {
  return place_in_line(-address(p)) / static_cast<int64_t>(sizeof(T));
}

template <class C>
HWY_INLINE const C* factors_of(const RmsNormCall& call, Order order) {
  return static_cast<const C*>(order == Order::paired ? call.paired_factors : call.factors);
}

// The memory of n elements, into L2 (as cpu/rope_heads.h).
template <int64_t n, class T>
HWY_INLINE void fetch_ahead(const T* p, int64_t ahead) {
  constexpr int64_t kBytes = n * static_cast<int64_t>(sizeof(T));
  const uintptr_t at = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(ahead) * sizeof(T);
  for (int64_t i = 0; i < kBytes; i += kLine)
    __builtin_prefetch(reinterpret_cast<const void*>(at + static_cast<uintptr_t>(i)), 0, 2);
}

// A NaN of float32 may be of any kind, which bfloat16's rounding must not see (short_nans).
template <class X, class S, class D>
HWY_INLINE hn::Vec<D> short_nans_from(D d, hn::Vec<D> v) {
  if constexpr (std::is_same_v<X, bfloat16> && std::is_same_v<S, float>)
    return short_nans(d, v);
  else
    return v;
}

}  // namespace
}  // namespace brim::cpu

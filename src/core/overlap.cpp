#include "core/overlap.h"

namespace brim::core {
namespace {

// An integer unknown in [low, high] that moves the distance between an element of a and one of b by `step` bytes.
struct Unknown {
  int64_t step, low, high;
};

// Is there a choice of the unknowns, the largest step first, that brings sum(step * value) within [low, high]?
// Each level keeps only values that the remaining unknowns can still make up for: two or so for nested layouts.
class Search {
 public:
  Search(const Unknown* unknowns, int count) : unknowns_(unknowns), count_(count) {}

  Overlap run(int i, int64_t low, int64_t high) {
    if (low > high) return Overlap::none;
    if (i == count_) return low <= 0 && 0 <= high ? Overlap::some : Overlap::none;
    int64_t rest_low = 0, rest_high = 0;  // what unknowns i+1.. can add
    for (int k = i + 1; k < count_; ++k) {
      rest_low += unknowns_[k].step * unknowns_[k].low;
      rest_high += unknowns_[k].step * unknowns_[k].high;
    }
    const Unknown& u = unknowns_[i];
    int64_t first = ceil_div(low - rest_high, u.step), last = floor_div(high - rest_low, u.step);
    if (first < u.low) first = u.low;
    if (last > u.high) last = u.high;
    for (int64_t v = first; v <= last; ++v) {
      if (--budget_ < 0) return Overlap::undecided;
      const Overlap found = run(i + 1, low - v * u.step, high - v * u.step);
      if (found != Overlap::none) return found;
    }
    return Overlap::none;
  }

 private:
  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
  static int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

  const Unknown* unknowns_;
  int count_;
  int budget_ = 4096;
};

}  // namespace

Overlap overlap(const TensorView& a, const TensorView& b) {
  const int64_t a_size = element_size(a.dtype), b_size = element_size(b.dtype);
  const int64_t a_span = span_elements(a) * a_size, b_span = span_elements(b) * b_size;
  if (a_span == 0 || b_span == 0) return Overlap::none;
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data), b_begin = reinterpret_cast<uintptr_t>(b.data);
  if (a_begin + a_span <= b_begin || b_begin + b_span <= a_begin) return Overlap::none;

  Unknown unknowns[2 * BRIM_MAX_RANK];
  int count = 0;
  const auto add = [&](int64_t step, int64_t low, int64_t high) {
    for (int i = 0; i < count; ++i)
      if (unknowns[i].step == step) {
        unknowns[i].low += low;
        unknowns[i].high += high;
        return;
      }
    int at = count++;
    for (; at > 0 && unknowns[at - 1].step < step; --at) unknowns[at] = unknowns[at - 1];
    unknowns[at] = {step, low, high};
  };
  for (int i = 0; i < a.rank; ++i)
    if (used_stride(a, i) > 0) add(used_stride(a, i) * a_size, 0, a.shape[i] - 1);
  for (int i = 0; i < b.rank; ++i)
    if (used_stride(b, i) > 0) add(used_stride(b, i) * b_size, -(b.shape[i] - 1), 0);
  // Elements meet when -a_size < (address of b's) - (address of a's) < b_size, turned round: a - b in (-a_size, b_size).
  const int64_t distance = static_cast<int64_t>(a_begin - b_begin);
  return Search(unknowns, count).run(0, -distance - a_size + 1, -distance + b_size - 1);
}

bool elements_distinct(const TensorView& t) {
  if (empty(t)) return true;
  int order[BRIM_MAX_RANK], count = 0;
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] <= 1) continue;
    int at = count++;
    for (; at > 0 && t.strides[order[at - 1]] > t.strides[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  int64_t extent = 1;
  for (int k = 0; k < count; ++k) {
    const int axis = order[k];
    if (t.strides[axis] < extent) return false;
    extent += (t.shape[axis] - 1) * t.strides[axis];
  }
  return true;
}

}  // namespace brim::core

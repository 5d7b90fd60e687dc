// Division by a number that a plan knows: on a GPU a multiplication and a shift instead of some 20 instructions.
#pragma once

#include <cstdint>

namespace brim::cuda {

// Exact for dividends below 2^31. (Granlund and Montgomery, "Division by invariant integers using
// multiplication", 1994.)
class Divider {
 public:
  constexpr Divider() = default;
  // 1 <= divisor < 2^31
  constexpr explicit Divider(uint32_t divisor) : divisor_(divisor), shift_(31) {
    while ((uint64_t{1} << (shift_ - 31)) < divisor) ++shift_;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << shift_) + divisor - 1) / divisor);
  }
  constexpr uint32_t divisor() const { return divisor_; }
  constexpr uint32_t operator()(uint32_t n) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(n) * multiplier_ >> shift_);
  }
  bool operator==(const Divider&) const = default;

 private:
  uint32_t divisor_ = 1, multiplier_ = 1u << 31, shift_ = 31;
};

}  // namespace brim::cuda

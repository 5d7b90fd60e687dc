#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace brim::cuda {

// The kernels of a closed list of `Count` variants, in its order: those that kernel(index) names, where
// decltype(index)::value is the index.
template <size_t Count, class KernelOf>
constexpr auto kernel_table(KernelOf kernel) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return std::array{kernel(std::integral_constant<size_t, I>{})...};
  }
  (std::make_index_sequence<Count>{});
}

}  // namespace brim::cuda

// A short list of combinations in which every pair of feature values that can occur together does occur: most
// faults need two features to meet (Kuhn et al., "Software fault interactions", 2004), and the full product
// would take hours.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace brim::ops {

using Combination = std::vector<int>;  // one value in [0, sizes[i]) a feature

// The same list in every run. Pairs that no valid combination was found for are left out.
std::vector<Combination> all_pairs(std::span<const int> sizes,
                                   const std::function<bool(const Combination&)>& valid);

}  // namespace brim::ops

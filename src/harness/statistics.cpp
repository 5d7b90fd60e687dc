#include "harness/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace brim::harness {

double percentile(std::vector<double> values, double p) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const double place = p / 100 * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(place), above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], place - static_cast<double>(below));
}

Spread spread(const std::vector<double>& values) {
  return {percentile(values, 50), percentile(values, 20), percentile(values, 80)};
}

}  // namespace brim::harness

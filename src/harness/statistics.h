// Order statistics of timings.
#pragma once

#include <vector>

namespace brim::harness {

// The p-th percentile (0 to 100) by linear interpolation between the two nearest of the sorted values; NaN of
// nothing.
double percentile(std::vector<double> values, double p);

struct Spread {
  double median, p20, p80;
};
Spread spread(const std::vector<double>& values);

}  // namespace brim::harness

#include "ops/cases.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace brim::ops {

const CaseList& case_list(brim_op op) {
  constexpr const CaseList& (*kLists[])() = {
#define BRIM_OP(family, mode, args) case_list_##family##_##mode,
#include "brim/ops.inc"
#undef BRIM_OP
  };
  return kLists[op]();
}

bool Case::in_place() const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const CaseTensor& t) { return t.dtype && t.role == Role::in_place; });
}

void fill_normal(std::span<double> values, Random& random) {
  std::normal_distribution<double> normal;
  for (double& v : values) v = normal(random);
}

void fill_cos(std::span<double> values, Random& random) {
  std::uniform_real_distribution<double> turn(0, 2 * std::numbers::pi);
  for (double& v : values) v = std::cos(turn(random));
}

void fill_sin(std::span<double> values, Random& random) {
  std::uniform_real_distribution<double> turn(0, 2 * std::numbers::pi);
  for (double& v : values) v = std::sin(turn(random));
}

Fill fill_index(int64_t limit) {
  return [limit](std::span<double> values, Random& random) {
    for (double& v : values) v = static_cast<double>(random() % static_cast<uint64_t>(limit));
  };
}

}  // namespace brim::ops

#include "ops/all_pairs.h"

#include <random>

namespace brim::ops {
namespace {

class Pairs {
 public:
  explicit Pairs(std::span<const int> sizes) : sizes_(sizes) {
    for (int n : sizes) {
      first_.push_back(values_);
      values_ += n;
    }
    seen_.resize(static_cast<size_t>(values_) * values_);
  }

  bool seen(int i, int a, int j, int b) const { return seen_[at(i, a, j, b)]; }

  int new_pairs(const Combination& c) const {
    int count = 0;
    each(c, [&](size_t pair) { count += !seen_[pair]; });
    return count;
  }

  void mark(const Combination& c) {
    each(c, [&](size_t pair) { seen_[pair] = true; });
  }

 private:
  size_t at(int i, int a, int j, int b) const {
    return static_cast<size_t>(first_[i] + a) * values_ + static_cast<size_t>(first_[j] + b);
  }
  template <class Body>
  void each(const Combination& c, Body&& body) const {
    for (size_t i = 0; i < c.size(); ++i)
      for (size_t j = i + 1; j < c.size(); ++j) body(at(i, c[i], j, c[j]));
  }

  std::span<const int> sizes_;
  std::vector<int> first_;
  int values_ = 0;
  std::vector<bool> seen_;
};

}  // namespace

std::vector<Combination> all_pairs(std::span<const int> sizes,
                                   const std::function<bool(const Combination&)>& valid) {
  constexpr int kTries = 2000,
                kEnough = 30;  // random completions of a pair; valid ones to choose the best of
  std::mt19937 random(1);      // its sequence is fixed by the standard, unlike that of the distributions
  const int features = static_cast<int>(sizes.size());
  Pairs pairs(sizes);
  std::vector<Combination> result;
  for (int i = 0; i < features; ++i)
    for (int j = i + 1; j < features; ++j)
      for (int a = 0; a < sizes[i]; ++a)
        for (int b = 0; b < sizes[j]; ++b) {
          if (pairs.seen(i, a, j, b)) continue;
          Combination best, c(features);
          int best_new = 0;
          for (int tries = 0, found = 0; tries < kTries && found < kEnough; ++tries) {
            for (int f = 0; f < features; ++f)
              c[f] = static_cast<int>(random() % static_cast<unsigned>(sizes[f]));
            c[i] = a;
            c[j] = b;
            if (!valid(c)) continue;
            ++found;
            if (const int n = pairs.new_pairs(c); n > best_new) {
              best_new = n;
              best = c;
            }
          }
          if (best.empty()) continue;
          pairs.mark(best);
          result.push_back(best);
        }
  return result;
}

}  // namespace brim::ops

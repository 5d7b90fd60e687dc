#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/float16.h"
#include "ops/rope_case.h"

namespace brim::ops {
namespace {

using namespace rope_tensor;

// x1*c and x2*s are exact in float64 (24 bits each), so the two terms of the sum tell what float32 makes of
// them: fl32(a + fl32(b)), the sum rounded to odd on the way so that going through float64 is one rounding.
double fused_float32(double product, double other) {
  const double rounded = static_cast<double>(static_cast<float>(product));
  double sum = rounded + other;
  const double t = sum - rounded, error = (rounded - (sum - t)) + (other - t);
  if (error != 0 && std::isfinite(sum)) {
    uint64_t bits;
    std::memcpy(&bits, &sum, sizeof bits);
    if (!(bits & 1)) sum = std::nextafter(sum, error > 0 ? INFINITY : -INFINITY);
  }
  return static_cast<double>(static_cast<float>(sum));
}

double rounded_to(brim_dtype dtype, double x) {
  switch (dtype) {
    case BRIM_BFLOAT16: return core::widen(core::narrow<core::bfloat16>(x));
    case BRIM_FLOAT16: return core::widen(core::narrow<core::float16>(x));
    default: return x;
  }
}

// Which (flattened) token of positions or of q a bad position stands at, and a good one in its place.
struct Repaired {
  std::vector<bool> bad;  // b*s
  Values inputs;
};
Repaired repair(const RopeSpec& x, const Values& inputs) {
  Repaired result{std::vector<bool>(static_cast<size_t>(x.b * x.s)), inputs};
  std::vector<double>& p = result.inputs[kPositions];
  const auto outside = [&](double v) { return v < 0 || v >= static_cast<double>(x.table_rows()); };
  for (size_t i = 0; i < result.bad.size(); ++i) result.bad[i] = outside(p[i % p.size()]);
  for (double& v : p)
    if (outside(v)) v = 0;
  return result;
}

// The token that element i of q or k, of `heads` heads, belongs to.
int64_t token_of(const RopeSpec& x, int64_t heads, int64_t i) {
  if (x.layout != BRIM_LAYOUT_BHSD) return i / (x.d * heads);
  return i / (x.d * x.s * heads) * x.s + i / x.d % x.s;
}

}  // namespace

std::vector<Expected> expect_rope(const RopeSpec& x, const Values& given, const Oracle& oracle) {
  const bool bad = x.data == RopeData::bad_positions;
  const Repaired repaired = bad ? repair(x, given) : Repaired{{}, given};
  const Values& inputs = repaired.inputs;
  const Values result = oracle(inputs);
  Values changed = inputs;  // with one table zero the result is one term of the sum
  changed[kSin].assign(inputs[kSin].size(), 0);
  const Values cos_terms = oracle(changed);
  changed[kSin] = inputs[kSin];
  changed[kCos].assign(inputs[kCos].size(), 0);
  const Values sin_terms = oracle(changed);

  std::vector<Expected> expected(kTensors);
  for (int t : {kQ, kK}) {
    const int out = x.in_place ? t : t == kQ ? kQOut : kKOut;
    const brim_dtype dtype = t == kQ ? x.q : x.k;
    const std::vector<double>&value = result[out], &first = cos_terms[out], &second = sin_terms[out];
    Expected& e = expected[out];
    e.value = e.fused = value;
    e.magnitude.assign(value.size(), 0);  // elements from r on pass through: exact
    for (size_t i = 0; i < value.size(); ++i) {
      if (static_cast<int64_t>(i) % x.d >= x.r) continue;
      if (bad && repaired.bad[token_of(x, t == kQ ? x.h : x.hk, static_cast<int64_t>(i))]) {
        e.value[i] = e.fused[i] = NAN;
        continue;
      }
      e.magnitude[i] = std::max(std::abs(first[i]), std::abs(second[i]));
      if (dtype != BRIM_FLOAT64 &&
          std::isfinite(value[i]))  // float64: the oracle's own formula is the promised one
        e.fused[i] = rounded_to(dtype, fused_float32(first[i], second[i]));
    }
  }
  return expected;
}

// With M the larger of |x1*c| and |x2*s|, u(t) the ulp of t and |result| <= 2M, so that u(result) <= 2 u(M):
// float32: half an ulp of M for each rounded product (one is exact inside a fused multiply-add), half of
// u(2M), that is one ulp of M, for the sum. 16 bits: one ulp of M for the final rounding, and the float32
// error, 2^16 (bfloat16) or 2^13 (float16) times smaller in ulps of the wider grid. float64: the oracle errs
// as much as a fused path does.
double rope_limit_ulp(brim_dtype output, bool fused) {
  const double arithmetic = fused ? 1.5 : 2.0;
  switch (output) {
    case BRIM_BFLOAT16: return 1 + arithmetic * 0x1p-16;
    case BRIM_FLOAT16: return 1 + arithmetic * 0x1p-13;
    case BRIM_FLOAT64: return arithmetic + 1.5;
    default: return arithmetic;
  }
}

}  // namespace brim::ops

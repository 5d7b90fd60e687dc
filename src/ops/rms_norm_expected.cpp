#include <algorithm>
#include <cmath>

#include "core/dispatch.h"
#include "ops/rms_norm_case.h"

namespace brim::ops {
namespace {

using namespace rms_norm_tensor;

double rounded_to(brim_dtype dtype, double x) {
  return core::dispatch_float(dtype, [&](auto tag) {
    return static_cast<double>(core::widen(core::narrow<typename decltype(tag)::type>(x)));
  });
}

struct Format {
  int precision;    // bits of the significand, the hidden one included
  double least;     // smallest normal number
  double half_ulp;  // 2^-precision: the error of one rounding, relative
};
Format format_of(brim_dtype dtype) {
  switch (dtype) {
    case BRIM_BFLOAT16: return {8, 0x1p-126, 0x1p-8};
    case BRIM_FLOAT16: return {11, 0x1p-14, 0x1p-11};
    case BRIM_FLOAT64: return {53, 0x1p-1022, 0x1p-53};
    default: return {24, 0x1p-126, 0x1p-24};
  }
}

// The bounds count roundings of float32 (of float64, for float64 tensors): e = 2^-24 relative each.
//
// A sum of n terms, one after the other: n roundings of random sign, of which with probability 1 - 2 exp(-18) no more than
// 6 sqrt(n) remain (Higham and Mary, A new approach to probabilistic rounding error analysis, 2019, lambda = 6), and
// never more than n.
double sum_error(double n) { return std::min(n, 6 * std::sqrt(n)); }

// Of a row, relative to the sum of its terms' magnitudes (their root sum of squares where signs are random, as those of
// the cases are): each of 4 lanes, the fewest of any instruction set, adds every fourth term, then the lanes meet. The
// oracle adds one by one.
double row_error(const RmsNormSpec& x) {
  const double hidden = static_cast<double>(x.hidden);
  const double lanes = sum_error(std::ceil(hidden / 4) + 2);
  return x.x == BRIM_FLOAT64 ? lanes + sum_error(hidden) : lanes;
}

// Each column of dweight by itself, in one chain at worst.
double column_error(const RmsNormSpec& x) {
  const double rows = sum_error(static_cast<double>(x.rows()));
  return x.x == BRIM_FLOAT64 ? 2 * rows : rows;
}

// The square, the sum, 1/H and the product with it, eps and its addition: 5 + the sum's; the root halves them. Then the
// root and the division, or an approximation within 2 ulp, which is 4 roundings.
double rstd_error(const RmsNormSpec& x) { return (row_error(x) + 5) / 2 + 4; }

// x * rstd, offset + w and their product.
double y_error(const RmsNormSpec& x) { return rstd_error(x) + 3; }

// With A = rstd*m, t = m*xhat, Q the larger of |sum t| and its terms' root sum of squares, and B = rstd*xhat*Q/H:
// offset + w, m, rstd*m are 3 roundings of A. t has 4 (offset + w, m, xhat, t), its sum the row's, its mean 2, and xhat,
// rstd and two products 4 more of B. The difference, and the sum with dsum, are at most 3 and 2 times the largest.
double dx_error(const RmsNormSpec& x) { return 3 + (4 + row_error(x) + 2 + 4) + 3 + 2; }

// dy*xhat is 2 roundings, and the sum over the rows.
double dweight_error(const RmsNormSpec& x) { return 2 + column_error(x); }

// y under casting llama. Rounding xhat moves y by up to an ulp, so the rounding is part of what is expected: float32 gives
// the same 16 bits as float64 unless a tie of them is within float32's error, and then either neighbour may come out.
void round_xhat(const RmsNormSpec& x, const Values& inputs, const Values& xhats, Expected& e) {
  const brim_dtype type = x.add ? x.s : x.x;
  const double error = (rstd_error(x) + 1) * 0x1p-24;
  const Format format = format_of(x.x);
  const std::vector<double>& xhat = xhats[rms_norm_place(x, kY)];
  for (size_t i = 0; i < xhat.size(); ++i) {
    const double factor = x.offset + inputs[kWeight][i % static_cast<size_t>(x.hidden)];
    const double low = rounded_to(type, xhat[i] * (1 - error)),
                 high = rounded_to(type, xhat[i] * (1 + error));
    e.value[i] = (low == high || std::isnan(low) ? low : (low + high) / 2) * factor;
    e.magnitude[i] = std::abs(e.value[i]);
    // Half an ulp of this covers half the distance to either result, and half an ulp of y.
    if (low != high && std::isfinite(e.value[i]))
      e.magnitude[i] = std::ldexp(std::abs(high - low) * std::abs(factor) + format.least, format.precision) +
                       2 * e.magnitude[i];
  }
}

std::vector<Expected> expect_forward(const RmsNormSpec& x, const Values& inputs, const Oracle& oracle) {
  std::vector<Expected> expected(kTensors);
  Values changed = inputs;
  if (x.add) {
    // The oracle's sum would not be rounded: it gets the rounded one. The sum of two numbers that pass through float32 on
    // the way to 16 bits is the same as without (24 >= 2*11 + 2).
    std::vector<double>& s = changed[kX];
    for (size_t i = 0; i < s.size(); ++i) s[i] = rounded_to(x.s, s[i] + inputs[kResidual][i]);
    changed[kResidual].assign(s.size(), -0.0);  // which keeps the sign of zeros
    Expected& sum = expected[rms_norm_place(x, kSum)];
    sum.value = s;
    sum.magnitude.assign(s.size(), 0);  // exact
  }
  const Values result = oracle(changed);
  const auto take = [&](int tensor) {
    Expected& e = expected[rms_norm_place(x, tensor)];
    e.value = result[rms_norm_place(x, tensor)];
    for (double v : e.value) e.magnitude.push_back(std::abs(v));
  };
  take(kY);
  if (x.rstd) take(kRstd);
  if (x.rounds_xhat()) {
    for (double& w : changed[kWeight]) w = 1 - x.offset;
    round_xhat(x, inputs, oracle(changed), expected[rms_norm_place(x, kY)]);
  }
  return expected;
}

std::vector<Expected> expect_backward(const RmsNormSpec& x, const Values& inputs, const Oracle& oracle) {
  constexpr double kLittle = 1e-300;  // a magnitude that leaves the sign of a zero open
  std::vector<Expected> expected(kTensors);
  const Values result = oracle(inputs);
  const std::vector<double>&s = inputs[x.add ? kSum : kX], &dy = inputs[kDy], &dsum = inputs[kDsum];
  const size_t hidden =
      x.weight ? inputs[kWeight].size() : static_cast<size_t>(x.hidden);  // columns of the sample
  std::vector<double> largest(s.size()), squares(hidden), t(hidden);
  for (size_t row = 0; row * hidden < s.size(); ++row) {
    const size_t first = row * hidden;
    const double rstd = x.dy ? inputs[kRstd][row] : 0;
    const auto m = [&](size_t j) {
      return x.dy ? dy[first + j] * (x.weight ? x.offset + inputs[kWeight][j] : 1) : 0;
    };
    double sum = 0, sum_of_squares = 0;
    for (size_t j = 0; j < hidden; ++j) {
      const double xhat = s[first + j] * rstd;
      const double term = m(j) * xhat;
      sum += term;
      sum_of_squares += term * term;
      if (x.dy) squares[j] += dy[first + j] * xhat * dy[first + j] * xhat;
    }
    const double mean = std::max(std::abs(sum), std::sqrt(sum_of_squares)) / static_cast<double>(hidden);
    for (size_t j = 0; j < hidden; ++j)
      largest[first + j] = std::max({std::abs(rstd * m(j)), std::abs(s[first + j] * rstd * rstd) * mean,
                                     dsum.empty() ? 0 : std::abs(dsum[first + j]), kLittle});
  }
  const auto take = [&](int tensor, brim_dtype type) {
    Expected& e = expected[rms_norm_place(x, tensor)];
    e.value = result[rms_norm_place(x, tensor)];
    e.magnitude = largest;
    for (size_t i = 0; i < e.value.size(); ++i) {
      if (!x.dy) e.value[i] = rounded_to(type, e.value[i]);  // dsum, rounded and nothing else
      e.magnitude[i] = !x.dy && e.value[i] != 0 ? 0 : std::max(largest[i], std::abs(e.value[i]));
    }
  };
  const bool whole_rows = hidden == static_cast<size_t>(x.hidden);
  const bool all_rows = s.size() == hidden * static_cast<size_t>(x.rows());
  if (x.dx && whole_rows) take(kDx, x.x);
  if (x.add && x.dresidual && whole_rows) take(kDresidual, x.s);
  if (x.dweight && all_rows) {
    Expected& e = expected[kDweight];
    e.value = result[kDweight];
    // Zeros where there is nothing to add, and sums of ones, are exact: whole numbers below 2^24.
    const bool exact = x.rows() == 0 || !x.dy || (x.data == RmsNormData::ones && x.rows() < 1 << 24);
    for (size_t j = 0; j < e.value.size(); ++j) {
      if (exact) e.value[j] = rounded_to(x.weight, e.value[j]);
      e.magnitude.push_back(exact ? 0 : std::max({std::abs(e.value[j]), std::sqrt(squares[j]), kLittle}));
    }
  }
  return expected;
}

}  // namespace

std::vector<Expected> expect_rms_norm(const RmsNormSpec& x, const Values& inputs, const Oracle& oracle) {
  return x.backward ? expect_backward(x, inputs, oracle) : expect_forward(x, inputs, oracle);
}

// An error of one rounding is at most an ulp of float32. Of 16 bits it is 2^-16 (bfloat16) or 2^-13 (float16) ulps, and the
// rounding to them half an ulp more: magnitudes are never less than the value's. In float64 the oracle errs too.
double rms_norm_limit_ulp(const RmsNormSpec& x, int tensor) {
  brim_dtype type = x.x;
  double error = 1;
  switch (tensor) {
    case kX:
    case kY: error = y_error(x); break;
    case kRstd:
      error = rstd_error(x);
      type = x.x == BRIM_FLOAT64 ? BRIM_FLOAT64 : BRIM_FLOAT32;
      break;
    case kResidual:
    case kSum: return 0.5;  // magnitude 0: exact
    case kDresidual:
    case kDsum:
      error = dx_error(x);
      type = x.s;
      break;
    case kDweight:
      error = dweight_error(x);
      type = x.weight;
      break;
    default: error = dx_error(x); break;
  }
  switch (type) {
    case BRIM_FLOAT64: return 2 * error;
    case BRIM_BFLOAT16:
    case BRIM_FLOAT16: return 0.5 + error * 0x1p-24 / format_of(type).half_ulp;
    default: return error;
  }
}

}  // namespace brim::ops

#include "ops/rope_tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/dispatch.h"
#include "core/parallel.h"

namespace brim::ops {
namespace {

using core::failure;
using core::success;
using ll = long long;

constexpr const char* kOp = "rope_tables";
constexpr double kPi = std::numbers::pi;
constexpr const char* kRules[] = {"default", "linear", "dynamic", "yarn", "longrope", "llama3"};

// What a rule makes of the arguments: the inverse frequency of column j is computed from these alone.
struct Frequencies {
  brim_rope_scaling_rule rule;
  double base, factor, half;    // half = r/2
  double ramp_low, ramp_high;   // yarn, in columns
  double original, low, high;   // llama3
  const double* column_factor;  // longrope
  double attention;             // multiplies both tables

  double operator()(int64_t j) const {
    const double f = std::pow(base, -static_cast<double>(j) / half);
    switch (rule) {
      case BRIM_ROPE_LINEAR: return f / factor;
      case BRIM_ROPE_YARN: {
        const double ramp = std::clamp((j - ramp_low) / (ramp_high - ramp_low), 0.0, 1.0);
        return f / factor * ramp + f * (1 - ramp);
      }
      case BRIM_ROPE_LONGROPE: return f / column_factor[j];
      case BRIM_ROPE_LLAMA3: {
        const double turns = original * f / (2 * kPi);  // of this column over the original length
        if (turns < low) return f / factor;
        if (turns > high) return f;
        const double kept = (turns - low) / (high - low);
        return (1 - kept) * f / factor + kept * f;
      }
      default: return f;
    }
  }
};

bool positive(double x) { return std::isfinite(x) && x > 0; }

Status needs(const brim_rope_tables_args& a, const char* name, double value) {
  if (positive(value)) return success();
  return failure(BRIM_INVALID_ARGUMENT, "%s: rule %s needs %s, a positive number; it is %g", kOp,
                 kRules[a.rule], name, value);
}

double original_length(const brim_rope_tables_args& a) {
  return static_cast<double>(a.original_max_position_embeddings ? a.original_max_position_embeddings
                                                                : a.max_position_embeddings);
}

// `factor` as given, or else the ratio of the model's length to the original one.
double length_ratio(const brim_rope_tables_args& a) {
  return a.factor ? a.factor : static_cast<double>(a.max_position_embeddings) / original_length(a);
}

double magnitude_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

Status dynamic(const brim_rope_tables_args& a, Frequencies& f) {
  BRIM_TRY(needs(a, "factor", a.factor));
  // The model's own length, not the original one, is what transformers grows the base from.
  const double length =
      a.max_position_embeddings ? static_cast<double>(a.max_position_embeddings) : original_length(a);
  BRIM_TRY(needs(a, "max_position_embeddings", length));
  if (a.rotary_dim < 4)
    return failure(BRIM_INVALID_ARGUMENT, "%s: rule dynamic needs a rotary_dim of 4 or more, it is %lld", kOp,
                   ll(a.rotary_dim));
  const double seen = std::max(static_cast<double>(a.seq_len ? a.seq_len : a.cos.shape[0]), length);
  const double r = static_cast<double>(a.rotary_dim);
  f.base *= std::pow(a.factor * seen / length - (a.factor - 1), r / (r - 2));
  return success();
}

Status yarn(const brim_rope_tables_args& a, Frequencies& f) {
  BRIM_TRY(needs(a, "original_max_position_embeddings", original_length(a)));
  f.factor = length_ratio(a);
  BRIM_TRY(needs(a, "factor", f.factor));
  if (f.base <= 1)
    return failure(BRIM_INVALID_ARGUMENT, "%s: rule yarn needs a base above 1, it is %g", kOp, f.base);
  if (a.attention_factor)
    f.attention = a.attention_factor;
  else if (a.mscale && a.mscale_all_dim)
    f.attention = magnitude_scale(f.factor, a.mscale) / magnitude_scale(f.factor, a.mscale_all_dim);
  else
    f.attention = magnitude_scale(f.factor, 1);
  // The column that makes `turns` turns over the original length.
  const double r = static_cast<double>(a.rotary_dim);
  const auto column = [&](double turns) {
    return r * std::log(original_length(a) / (turns * 2 * kPi)) / (2 * std::log(f.base));
  };
  const double fast = a.beta_fast ? a.beta_fast : 32, slow = a.beta_slow ? a.beta_slow : 1;
  BRIM_TRY(needs(a, "beta_fast", fast));
  BRIM_TRY(needs(a, "beta_slow", slow));
  const double low = column(fast), high = column(slow);
  f.ramp_low = std::max(a.truncate_off ? low : std::floor(low), 0.0);
  f.ramp_high = std::min(a.truncate_off ? high : std::ceil(high), r - 1);
  if (f.ramp_low == f.ramp_high) f.ramp_high += 0.001;  // transformers' guard against a division by zero
  return success();
}

Status longrope(const brim_rope_tables_args& a, Frequencies& f) {
  const double original = original_length(a);
  BRIM_TRY(needs(a, "original_max_position_embeddings", original));
  const double seen = static_cast<double>(a.seq_len ? a.seq_len : a.cos.shape[0]);
  f.column_factor = seen > original ? a.long_factor : a.short_factor;
  const char* name = seen > original ? "long_factor" : "short_factor";
  if (!f.column_factor)
    return failure(BRIM_INVALID_ARGUMENT, "%s: rule longrope needs %s, %lld numbers", kOp, name,
                   ll(a.rotary_dim / 2));
  for (int64_t j = 0; j < a.rotary_dim / 2; ++j)
    if (!positive(f.column_factor[j]))
      return failure(BRIM_INVALID_ARGUMENT, "%s: %s[%lld] is %g, expected a positive number", kOp, name,
                     ll(j), f.column_factor[j]);
  const double factor = length_ratio(a);
  if (a.attention_factor)
    f.attention = a.attention_factor;
  else if (factor > 1 && original > 1)
    f.attention = std::sqrt(1 + std::log(factor) / std::log(original));
  return success();
}

Status llama3(const brim_rope_tables_args& a, Frequencies& f) {
  BRIM_TRY(needs(a, "factor", a.factor));
  BRIM_TRY(needs(a, "low_freq_factor", a.low_freq_factor));
  BRIM_TRY(needs(a, "high_freq_factor", a.high_freq_factor));
  f.original = original_length(a);
  BRIM_TRY(needs(a, "original_max_position_embeddings", f.original));
  if (a.high_freq_factor <= a.low_freq_factor)
    return failure(BRIM_INVALID_ARGUMENT,
                   "%s: high_freq_factor is %g, expected more than low_freq_factor, %g", kOp,
                   a.high_freq_factor, a.low_freq_factor);
  f.low = a.low_freq_factor;
  f.high = a.high_freq_factor;
  return success();
}

Status make_frequencies(const brim_rope_tables_args& a, Frequencies& f) {
  f = {};
  f.rule = a.rule;
  f.base = a.base ? a.base : 10000.0;
  f.factor = a.factor;
  f.half = static_cast<double>(a.rotary_dim) / 2;
  f.attention = 1;
  if (!positive(f.base))
    return failure(BRIM_INVALID_ARGUMENT, "%s: base is %g, expected a positive number", kOp, f.base);
  switch (a.rule) {
    case BRIM_ROPE_LINEAR: BRIM_TRY(needs(a, "factor", a.factor)); break;
    case BRIM_ROPE_DYNAMIC: BRIM_TRY(dynamic(a, f)); break;
    case BRIM_ROPE_YARN: BRIM_TRY(yarn(a, f)); break;
    case BRIM_ROPE_LONGROPE: BRIM_TRY(longrope(a, f)); break;
    case BRIM_ROPE_LLAMA3: BRIM_TRY(llama3(a, f)); break;
    default: break;
  }
  return needs(a, "attention_factor", f.attention);
}

Status check_tensors(const brim_rope_tables_args& a) {
  const core::Named cos{"cos", a.cos}, sin{"sin", a.sin};
  for (const core::Named& n : {cos, sin}) {
    BRIM_TRY(core::check_view(kOp, n));
    BRIM_TRY(core::check_dtype(kOp, n, core::kFloats));
  }
  BRIM_TRY(core::check_same_shape(kOp, sin, cos));
  BRIM_TRY(core::check_same_dtype(kOp, sin, cos));
  BRIM_TRY(core::check_device(kOp, BRIM_BACKEND_CPU, {cos, sin}));
  const int64_t r = a.rotary_dim;
  if (r <= 0 || r % 2)
    return failure(BRIM_INVALID_ARGUMENT, "%s: rotary_dim is %lld, expected an even positive number", kOp,
                   ll(r));
  if (a.cos.rank != 2 || (a.cos.shape[1] != r && a.cos.shape[1] != r / 2))
    return failure(BRIM_INVALID_ARGUMENT,
                   "%s: cos has shape %s, expected (max_position,%lld) or (max_position,%lld)", kOp,
                   core::shape_text(a.cos).text, ll(r), ll(r / 2));
  BRIM_TRY(core::check_no_self_overlap(kOp, cos));
  BRIM_TRY(core::check_no_self_overlap(kOp, sin));
  return core::check_disjoint(kOp, cos, sin);
}

Status check_options(const brim_rope_tables_args& a) {
  BRIM_TRY(core::check_option(kOp, "rule", a.rule, 6));
  BRIM_TRY(core::check_option(kOp, "truncate_off", a.truncate_off, 2));
  const struct {
    const char* name;
    int64_t value;
  } lengths[] = {{"seq_len", a.seq_len},
                 {"max_position_embeddings", a.max_position_embeddings},
                 {"original_max_position_embeddings", a.original_max_position_embeddings}};
  for (const auto& length : lengths)
    if (length.value < 0)
      return failure(BRIM_INVALID_ARGUMENT, "%s: %s is %lld, expected 0 (not given) or more", kOp,
                     length.name, ll(length.value));
  return success();
}

template <class T>
void fill(const brim_rope_tables_args& a, const Frequencies& frequency) {
  const auto put = [](const TensorView& t, int64_t row, int64_t column, T value) {
    static_cast<T*>(t.data)[row * core::used_stride(t, 0) + column * core::used_stride(t, 1)] = value;
  };
  const int64_t half = a.rotary_dim / 2;
  const bool repeated = a.cos.shape[1] != half;
  core::parallel_for(a.cos.shape[0], 64, [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlock =
        256;  // columns whose frequencies are held at a time: no allocation at any width
    double f[kBlock];
    for (int64_t first = 0; first < half; first += kBlock) {
      const int64_t count = std::min(kBlock, half - first);
      for (int64_t i = 0; i < count; ++i) f[i] = frequency(first + i);
      for (int64_t p = begin; p < end; ++p)
        for (int64_t i = 0; i < count; ++i) {
          const double angle = static_cast<double>(p) * f[i];
          const T c = core::narrow<T>(frequency.attention * std::cos(angle));
          const T s = core::narrow<T>(frequency.attention * std::sin(angle));
          for (int64_t column = first + i; column < (repeated ? 2 * half : half); column += half) {
            put(a.cos, p, column, c);
            put(a.sin, p, column, s);
          }
        }
    }
  });
}

}  // namespace

Status rope_tables(const brim_rope_tables_args& a) {
  BRIM_TRY(check_tensors(a));
  BRIM_TRY(check_options(a));
  Frequencies frequency;
  BRIM_TRY(make_frequencies(a, frequency));
  core::dispatch_float(a.cos.dtype, [&](auto tag) { fill<typename decltype(tag)::type>(a, frequency); });
  return success();
}

}  // namespace brim::ops

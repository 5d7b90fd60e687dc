#include "ops/rms_norm.h"

#include <cmath>
#include <vector>

#include "core/dispatch.h"
#include "reference/backend.h"

namespace brim::reference {
namespace {

using ops::RmsNormProblem;
using ops::RowStrides;

// A tensor of rows, in double.
template <class T>
struct Rows {
  const RmsNormProblem& p;
  const RowStrides& strides;
  T* data;

  T& at(int64_t row, int64_t column) const {
    return data[ops::row_offset(p, strides, row) + column * strides.column];
  }
  double get(int64_t row, int64_t column) const { return data ? core::widen(at(row, column)) : 0; }
  void set(int64_t row, int64_t column, double value) const {
    if (data) at(row, column) = core::narrow<std::remove_const_t<T>>(value);
  }
};

template <class X, class S, class W>
struct Norm {
  using Rstd = std::conditional_t<std::is_same_v<S, double>, double, float>;

  const brim_rms_norm_args& a;
  const RmsNormProblem& p;

  template <class T>
  Rows<T> rows(const TensorView& t, const RowStrides& strides) const {
    return {p, strides, static_cast<T*>(t.data)};
  }
  double factor(int64_t j) const {
    if (p.weight_dtype == BRIM_DTYPE_NONE) return 1;
    return p.offset + core::widen(static_cast<const W*>(a.weight.data)[j * p.weight_stride]);
  }

  void forward() const {
    const auto x = rows<const X>(a.x, p.x);
    const auto residual = rows<const S>(a.residual, p.residual);
    const auto sum = rows<S>(a.sum, p.sum);
    const auto y = rows<X>(a.y, p.y);
    std::vector<double> s(static_cast<size_t>(p.hidden));
    for (int64_t row = 0; row < p.rows; ++row) {
      double squares = 0;
      for (int64_t j = 0; j < p.hidden; ++j) {
        s[j] = x.get(row, j);
        if (p.add) s[j] = core::widen(core::narrow<S>(s[j] + residual.get(row, j)));
        squares += s[j] * s[j];
      }
      const double mean = p.hidden ? squares / static_cast<double>(p.hidden) : 0;
      const double rstd = 1 / std::sqrt(mean + p.eps);
      if (p.saves_rstd) static_cast<Rstd*>(a.rstd.data)[row * p.rstd_stride] = static_cast<Rstd>(rstd);
      for (int64_t j = 0; j < p.hidden; ++j) {
        double xhat = s[j] * rstd;
        if (p.round_xhat) xhat = core::widen(core::narrow<S>(xhat));
        if (p.add) sum.set(row, j, s[j]);
        y.set(row, j, xhat * factor(j));
      }
    }
  }

  void backward() const {
    const auto s = rows<const S>(p.add ? a.sum : a.x, p.s);
    const auto dy = rows<const X>(a.dy, p.dy);
    const auto dsum = rows<const S>(a.dsum, p.dsum);
    const auto dx = rows<X>(a.dx, p.dx);
    const auto dresidual = rows<S>(a.dresidual, p.dresidual);
    std::vector<double> dweight(static_cast<size_t>(p.hidden));
    for (int64_t row = 0; row < p.rows; ++row) {
      const double rstd = p.has_dy ? static_cast<const Rstd*>(a.rstd.data)[row * p.rstd_stride] : 0;
      double mean = 0;
      if (p.has_dy)
        for (int64_t j = 0; j < p.hidden; ++j) {
          const double xhat = s.get(row, j) * rstd;
          mean += dy.get(row, j) * factor(j) * xhat / static_cast<double>(p.hidden);
          dweight[j] += dy.get(row, j) * xhat;
        }
      for (int64_t j = 0; j < p.hidden; ++j) {
        double d = dsum.get(row, j);
        if (p.has_dy) d += rstd * (dy.get(row, j) * factor(j) - s.get(row, j) * rstd * mean);
        dx.set(row, j, d);
        dresidual.set(row, j, d);
      }
    }
    if (p.wants_dweight)
      for (int64_t j = 0; j < p.hidden; ++j)
        static_cast<W*>(a.dweight.data)[j * p.dweight_stride] = core::narrow<W>(dweight[j]);
  }
};

template <bool kAdd, bool kBackward>
Status run(const brim_rms_norm_args& a) {
  const RmsNormProblem p = ops::make_rms_norm_problem(a, kAdd, kBackward);
  if (a.run.path && std::strcmp(a.run.path, "reference") != 0)
    return core::failure(BRIM_NOT_AVAILABLE, "%srms_norm: the reference backend has no path '%s'",
                         kAdd ? "add_" : "", a.run.path);
  core::dispatch_float(p.dtype, [&](auto x) {
    core::dispatch_float(p.sum_dtype, [&](auto s) {
      core::dispatch_float(p.weight_dtype, [&](auto w) {
        const Norm<typename decltype(x)::type, typename decltype(s)::type, typename decltype(w)::type> norm{
            a, p};
        kBackward ? norm.backward() : norm.forward();
      });
    });
  });
  return core::success();
}

Status describe(const brim_rms_norm_args&, const core::DeviceProps*, char* text, size_t size) {
  std::snprintf(text, size, "reference");
  return core::success();
}

}  // namespace

constinit const core::Slot rms_norm_forward = core::slot<brim_rms_norm_args, run<false, false>, describe>();
constinit const core::Slot rms_norm_backward = core::slot<brim_rms_norm_args, run<false, true>, describe>();
constinit const core::Slot add_rms_norm_forward =
    core::slot<brim_rms_norm_args, run<true, false>, describe>();
constinit const core::Slot add_rms_norm_backward =
    core::slot<brim_rms_norm_args, run<true, true>, describe>();

}  // namespace brim::reference

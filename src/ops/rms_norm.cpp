#include "ops/rms_norm.h"

#include <cmath>

#include "core/check.h"

namespace brim::ops {
namespace {

using core::failure;
using core::Named;
using core::present;
using core::success;
using ll = long long;

// What an entry does with each tensor of the struct.
enum class Use { absent, optional, needed };
struct Uses {
  const char* op;
  bool add, backward;
  Use x, y, rstd, dy, dx, dweight, residual, sum, dsum, dresidual;
};
constexpr auto kAbsent = Use::absent, kOptional = Use::optional, kNeeded = Use::needed;
constexpr Uses kForward{"rms_norm_forward",
                        false,
                        false,
                        kNeeded,
                        kNeeded,
                        kOptional,
                        kAbsent,
                        kAbsent,
                        kAbsent,
                        kAbsent,
                        kAbsent,
                        kAbsent,
                        kAbsent};
constexpr Uses kBackward{"rms_norm_backward", false,     true,    kNeeded, kAbsent, kNeeded, kNeeded,
                         kOptional,           kOptional, kAbsent, kAbsent, kAbsent, kAbsent};
constexpr Uses kAddForward{"add_rms_norm_forward",
                           true,
                           false,
                           kNeeded,
                           kNeeded,
                           kOptional,
                           kAbsent,
                           kAbsent,
                           kAbsent,
                           kNeeded,
                           kNeeded,
                           kAbsent,
                           kAbsent};
constexpr Uses kAddBackward{"add_rms_norm_backward",
                            true,
                            true,
                            kAbsent,
                            kAbsent,
                            kOptional,
                            kOptional,
                            kOptional,
                            kOptional,
                            kAbsent,
                            kNeeded,
                            kOptional,
                            kOptional};

Status check_use(const char* op, Named t, Use use) {
  if (present(t.tensor)) {
    if (use == Use::absent)
      return failure(BRIM_INVALID_ARGUMENT, "%s: %s is given, and this entry neither reads nor writes it", op,
                     t.name);
    BRIM_TRY(core::check_view(op, t));
    return core::check_dtype(op, t, core::kFloats);
  }
  return use == Use::needed ? core::check_view(op, t) : success();
}

// Of a weight or its gradient.
Status check_width(const char* op, Named t, const Named& rows) {
  const int64_t hidden = rows.tensor.shape[rows.tensor.rank - 1];
  if (!present(t.tensor) || (t.tensor.rank == 1 && t.tensor.shape[0] == hidden)) return success();
  if (t.tensor.rank == 1)
    return failure(
        BRIM_INVALID_ARGUMENT, "%s: %s has %lld elements, last dimension of %s is %lld; %s has shape %s", op,
        t.name, ll(t.tensor.shape[0]), rows.name, ll(hidden), rows.name, core::shape_text(rows.tensor).text);
  return failure(BRIM_INVALID_ARGUMENT, "%s: %s has shape %s, expected (%lld), the last dimension of %s", op,
                 t.name, core::shape_text(t.tensor).text, ll(hidden), rows.name);
}

int64_t rows_of(const TensorView& t) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < t.rank; ++i) rows *= t.shape[i];
  return rows;
}

Status check_rstd(const char* op, Named rstd, const Named& rows) {
  if (!present(rstd.tensor)) return success();
  const brim_dtype type = rows.tensor.dtype == BRIM_FLOAT64 ? BRIM_FLOAT64 : BRIM_FLOAT32;
  if (rstd.tensor.dtype != type)
    return failure(BRIM_INVALID_DTYPE, "%s: rstd is %s, expected %s", op, core::dtype_name(rstd.tensor.dtype),
                   core::dtype_name(type));
  if (rstd.tensor.rank == 1 && rstd.tensor.shape[0] == rows_of(rows.tensor)) return success();
  return failure(BRIM_INVALID_ARGUMENT, "%s: rstd has shape %s, expected (%lld), a number for each row of %s",
                 op, core::shape_text(rstd.tensor).text, ll(rows_of(rows.tensor)), rows.name);
}

Status check_weight_dtype(const char* op, Named weight, Named rows) {
  if (!present(weight.tensor) || !present(rows.tensor)) return success();
  return core::check_dtype_mix(op, {rows, weight});
}

// `wide` of the type of `narrow`, or float32 beside 16 bits.
Status check_residual_dtype(const char* op, Named wide, Named narrow) {
  if (!present(wide.tensor) || !present(narrow.tensor) || wide.tensor.dtype == narrow.tensor.dtype ||
      (wide.tensor.dtype == BRIM_FLOAT32 && narrow.tensor.dtype != BRIM_FLOAT64))
    return success();
  return failure(BRIM_INVALID_DTYPE, "%s: %s is %s, expected %s%s, as %s", op, wide.name,
                 core::dtype_name(wide.tensor.dtype), core::dtype_name(narrow.tensor.dtype),
                 core::element_size(narrow.tensor.dtype) == 2 ? " or float32" : "", narrow.name);
}

// An output may be an input only where that is read at the same place first, and then no more: one of `pairs`.
struct Pair {
  Named output, input;
};
Status check_aliasing(const char* op, std::initializer_list<Named> inputs,
                      std::initializer_list<Named> outputs, std::initializer_list<Pair> pairs) {
  for (const Named& out : outputs) {
    if (!present(out.tensor)) continue;
    BRIM_TRY(core::check_no_self_overlap(op, out));
    for (const Named& in : inputs) {
      if (!present(in.tensor)) continue;
      bool may_be = false;
      for (const Pair& p : pairs) may_be |= &p.output.tensor == &out.tensor && &p.input.tensor == &in.tensor;
      BRIM_TRY(may_be ? core::check_same_or_disjoint(op, out, in) : core::check_disjoint(op, out, in));
    }
    for (const Named& other : outputs) {
      if (&other.tensor == &out.tensor) break;
      if (present(other.tensor)) BRIM_TRY(core::check_disjoint(op, out, other));
    }
  }
  return success();
}

Status validate(const Uses& use, const brim_rms_norm_args& a, brim_backend backend) {
  const char* op = use.op;
  const Named x{"x", a.x}, weight{"weight", a.weight}, y{"y", a.y}, rstd{"rstd", a.rstd}, dy{"dy", a.dy},
      dx{"dx", a.dx}, dweight{"dweight", a.dweight}, residual{"residual", a.residual}, sum{"sum", a.sum},
      dsum{"dsum", a.dsum}, dresidual{"dresidual", a.dresidual};
  BRIM_TRY(core::check_option(op, "casting", a.casting, 3));
  if (!std::isfinite(a.eps) || a.eps < 0)
    return failure(BRIM_INVALID_ARGUMENT, "%s: eps is %g, expected a number from 0 up", op, a.eps);
  if (!std::isfinite(a.offset))
    return failure(BRIM_INVALID_ARGUMENT, "%s: offset is %g, expected a finite number", op, a.offset);
  const struct {
    Named tensor;
    Use use;
  } uses[] = {{x, use.x},   {residual, use.residual},   {sum, use.sum},        {weight, Use::optional},
              {y, use.y},   {rstd, use.rstd},           {dy, use.dy},          {dsum, use.dsum},
              {dx, use.dx}, {dresidual, use.dresidual}, {dweight, use.dweight}};
  for (const auto& [tensor, how] : uses) BRIM_TRY(check_use(op, tensor, how));

  if (use.backward) {
    if (!present(a.dx) && !present(a.dresidual) && !present(a.dweight))
      return failure(BRIM_INVALID_ARGUMENT, "%s: no gradient is wanted: %s are absent", op,
                     use.add ? "dx, dresidual and dweight" : "dx and dweight");
    if (present(a.dweight) && !present(a.weight))
      return failure(BRIM_INVALID_ARGUMENT, "%s: dweight is given without weight", op);
    if (use.add && !present(a.dy) && !present(a.dsum))
      return failure(BRIM_INVALID_ARGUMENT, "%s: dy and dsum are both absent, expected one at least", op);
    if (present(a.dy) && !present(a.rstd))
      return failure(BRIM_INVALID_ARGUMENT, "%s: dy is given without rstd", op);
  }

  const Named rows = use.add && use.backward ? sum : x;
  for (const Named& t : {residual, sum, y, dy, dsum, dx, dresidual})
    if (present(t.tensor)) BRIM_TRY(core::check_same_shape(op, t, rows));
  BRIM_TRY(check_width(op, weight, rows));
  BRIM_TRY(check_width(op, dweight, rows));
  BRIM_TRY(check_rstd(op, rstd, rows));

  if (use.add) {
    const Named narrow = use.backward ? present(a.dy) ? dy : dx : x;
    BRIM_TRY(check_residual_dtype(op, use.backward ? sum : residual, narrow));
    for (const Named& t : {y, dx})
      if (present(t.tensor) && present(narrow.tensor)) BRIM_TRY(core::check_same_dtype(op, t, narrow));
    for (const Named& t : {dsum, dresidual})
      if (present(t.tensor)) BRIM_TRY(core::check_same_dtype(op, t, sum));
    if (present(a.residual)) BRIM_TRY(core::check_same_dtype(op, sum, residual));
    BRIM_TRY(check_weight_dtype(op, weight, narrow));
  } else {
    for (const Named& t : {y, dy, dx})
      if (present(t.tensor)) BRIM_TRY(core::check_same_dtype(op, t, x));
  }
  BRIM_TRY(check_weight_dtype(op, weight, rows));
  if (present(a.dweight)) BRIM_TRY(core::check_same_dtype(op, dweight, weight));
  if (rows.tensor.dtype == BRIM_FLOAT64 && backend == BRIM_BACKEND_CUDA)
    return failure(BRIM_INVALID_DTYPE, "%s: %s is float64, which only the cpu and reference backends take",
                   op, rows.name);
  BRIM_TRY(
      core::check_device(op, backend, {x, residual, sum, weight, y, rstd, dy, dsum, dx, dresidual, dweight}));

  return use.backward ? check_aliasing(op, {x, sum, weight, rstd, dy, dsum}, {dx, dresidual, dweight},
                                       {{dx, dy}, {dx, dsum}, {dresidual, dsum}})
                      : check_aliasing(op, {x, residual, weight}, {y, sum, rstd}, {{y, x}, {sum, residual}});
}

}  // namespace

Status validate_rms_norm_forward(const brim_rms_norm_args& args, brim_backend backend) {
  return validate(kForward, args, backend);
}
Status validate_rms_norm_backward(const brim_rms_norm_args& args, brim_backend backend) {
  return validate(kBackward, args, backend);
}
Status validate_add_rms_norm_forward(const brim_rms_norm_args& args, brim_backend backend) {
  return validate(kAddForward, args, backend);
}
Status validate_add_rms_norm_backward(const brim_rms_norm_args& args, brim_backend backend) {
  return validate(kAddBackward, args, backend);
}

RmsNormProblem make_rms_norm_problem(const brim_rms_norm_args& a, bool add, bool backward) {
  RmsNormProblem p{};
  const TensorView& s = add && backward ? a.sum : a.x;  // of the shape of the rows
  p.add = add;
  p.backward = backward;
  p.sum_dtype = add ? a.sum.dtype : a.x.dtype;
  p.dtype = !backward || !add ? a.x.dtype
            : present(a.dy)   ? a.dy.dtype
            : present(a.dx)   ? a.dx.dtype
                              : p.sum_dtype;
  p.weight_dtype = a.weight.dtype;
  p.round_xhat = !backward && a.casting == BRIM_CASTING_LLAMA && present(a.weight);
  p.saves_rstd = !backward && present(a.rstd);
  p.has_dy = present(a.dy);
  p.has_dsum = present(a.dsum);
  p.wants_dx = present(a.dx);
  p.wants_dresidual = present(a.dresidual);
  p.wants_dweight = present(a.dweight);
  p.eps = a.eps;
  p.offset = a.offset;
  p.rows = rows_of(s);
  p.hidden = s.shape[s.rank - 1];

  const struct {
    const TensorView& tensor;
    RowStrides& strides;
  } tensors[] = {{add && !backward ? a.sum : s, p.s},
                 {a.x, p.x},
                 {a.residual, p.residual},
                 {a.sum, p.sum},
                 {a.y, p.y},
                 {a.dy, p.dy},
                 {a.dsum, p.dsum},
                 {a.dx, p.dx},
                 {a.dresidual, p.dresidual}};
  for (int i = 0; i + 1 < s.rank; ++i) {
    if (s.shape[i] == 1) continue;
    bool one = p.axes > 0;  // with the axis before it
    for (const auto& [t, strides] : tensors)
      if (present(t))
        one &= strides.axis[p.axes - 1 < 0 ? 0 : p.axes - 1] == core::used_stride(t, i) * s.shape[i];
    if (!one) ++p.axes;
    const int at = p.axes - 1;
    p.sizes[at] = (one ? p.sizes[at] : 1) * s.shape[i];
    for (const auto& [t, strides] : tensors)
      if (present(t)) strides.axis[at] = core::used_stride(t, i);
  }
  uint64_t bits = 0;
  for (const auto& [t, strides] : tensors)
    if (present(t)) {
      strides.column = core::used_stride(t, t.rank - 1);
      bits |= core::row_bits(t);
    }
  p.alignment = core::alignment_of(bits);
  if (present(a.weight)) {
    p.weight_stride = core::used_stride(a.weight, 0);
    p.weight_alignment = core::alignment_of(reinterpret_cast<uintptr_t>(a.weight.data));
  }
  if (present(a.dweight)) p.dweight_stride = core::used_stride(a.dweight, 0);
  if (present(a.rstd)) p.rstd_stride = core::used_stride(a.rstd, 0);
  return p;
}

}  // namespace brim::ops

// The room of RMSNorm and residual-add RMSNorm: what every backend needs to know of a call, and the checks and the
// canonical form that lead there.
#pragma once

#include "brim/ops/add_rms_norm.h"
#include "brim/ops/rms_norm.h"
#include "core/status.h"
#include "core/tensor.h"

namespace brim::ops {

// The tensor whose device decides the backend.
inline const TensorView& lead_tensor(const brim_rms_norm_args& args) {
  return core::present(args.x) ? args.x : args.sum;
}

Status validate_rms_norm_forward(const brim_rms_norm_args& args, brim_backend backend);
Status validate_rms_norm_backward(const brim_rms_norm_args& args, brim_backend backend);
Status validate_add_rms_norm_forward(const brim_rms_norm_args& args, brim_backend backend);
Status validate_add_rms_norm_backward(const brim_rms_norm_args& args, brim_backend backend);

// The axes of the rows: those of size 1 are left out, and those are one that every tensor steps through alike.
inline constexpr int kMostRowAxes = BRIM_MAX_RANK - 1;

// Element strides of a tensor of rows, all 0 for one that is absent.
struct RowStrides {
  int64_t axis[kMostRowAxes];
  int64_t column;

  bool operator==(const RowStrides&) const = default;
};

// The facts of a validated call, without pointers: comparable, printable, the input of every launch plan. `S` are the rows
// that are normalised: x, or the sum with the residual.
struct RmsNormProblem {
  brim_dtype dtype;         // of x, y, dy and dx
  brim_dtype sum_dtype;     // of S, residual, dsum and dresidual; dtype where nothing is added
  brim_dtype weight_dtype;  // BRIM_DTYPE_NONE without a weight
  bool add, backward;
  bool round_xhat;        // to sum_dtype: casting llama with a weight
  bool saves_rstd;        // forward
  bool has_dy, has_dsum;  // backward
  bool wants_dx, wants_dresidual, wants_dweight;
  double eps, offset;
  int64_t rows, hidden;
  int32_t axes;  // of the rows: 0 (one row) to 4
  int64_t sizes[kMostRowAxes];
  RowStrides s;                 // x without a residual; backward: what forward normalised
  RowStrides x, residual, sum;  // forward of the add: what is added, and S as it is written
  RowStrides y, dy, dsum, dx, dresidual;
  int64_t weight_stride, dweight_stride, rstd_stride;
  // Largest power of two, at most 16, that divides every address of a row, of all these tensors.
  int alignment;
  int weight_alignment;  // the same of weight

  bool operator==(const RmsNormProblem&) const = default;
};

// `args` must have passed validation for that entry.
RmsNormProblem make_rms_norm_problem(const brim_rms_norm_args& args, bool add, bool backward);

// Elements from a tensor's first to where a row begins.
inline int64_t row_offset(const RmsNormProblem& p, const RowStrides& s, int64_t row) {
  int64_t at = 0;
  for (int i = p.axes; i-- > 0; row /= p.sizes[i]) at += row % p.sizes[i] * s.axis[i];
  return at;
}

}  // namespace brim::ops

// What the validation tests of the norms share: a valid call of each entry to spoil.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "brim/brim.hpp"
#include "entry/entry.h"

namespace brim {

inline constexpr int64_t kNormRows = 6, kNormHidden = 8;  // shape (2,3,8)

// Rows may be widened to 64-bit elements.
struct NormCall {
  static constexpr size_t kRoom = 2 * kNormRows * kNormHidden + 64;
  alignas(64) float x[kRoom] = {}, residual[kRoom] = {}, sum[kRoom] = {}, y[kRoom] = {}, dy[kRoom] = {},
                    dsum[kRoom] = {}, dx[kRoom] = {}, dresidual[kRoom] = {}, weight[kRoom] = {},
                    dweight[kRoom] = {}, rstd[kRoom] = {};
  brim_op op;
  RmsNormArgs args;

  explicit NormCall(brim_op entry) : op(entry) {
    const bool forward = op == BRIM_OP_rms_norm_forward || op == BRIM_OP_add_rms_norm_forward;
    const bool add = op == BRIM_OP_add_rms_norm_forward || op == BRIM_OP_add_rms_norm_backward;
    const auto rows = [](const float* data) { return view(data, BRIM_FLOAT32, {2, 3, kNormHidden}); };
    args.weight = view(weight, BRIM_FLOAT32, {kNormHidden});
    args.rstd = view(rstd, BRIM_FLOAT32, {kNormRows});
    if (forward || !add) args.x = rows(x);
    if (add) args.sum = rows(sum);
    if (forward) {
      args.y = rows(y);
      if (add) args.residual = rows(residual);
    } else {
      args.dy = rows(dy);
      args.dx = rows(dx);
      args.dweight = view(dweight, BRIM_FLOAT32, {kNormHidden});
      if (add) args.dsum = rows(dsum), args.dresidual = rows(dresidual);
    }
    args.eps = 1e-6;
    args.run.backend = BRIM_BACKEND_REFERENCE;
  }

  std::array<brim_tensor*, 11> tensors() {  // some are absent
    return {&args.x,  &args.residual,  &args.sum,    &args.y,       &args.dy,  &args.dsum,
            &args.dx, &args.dresidual, &args.weight, &args.dweight, &args.rstd};
  }
  void retype(brim_dtype dtype) {  // rstd stays as it is
    for (brim_tensor* t : tensors())
      if (t->dtype && t != &args.rstd) t->dtype = dtype;
  }
  void retype_x(brim_dtype dtype) {
    for (brim_tensor* t : {&args.x, &args.y, &args.dy, &args.dx})
      if (t->dtype) t->dtype = dtype;
  }
  void on(brim_device_type device, int index) {
    for (brim_tensor* t : tensors()) t->device = device, t->device_index = index;
  }

  Status run() const {
    switch (op) {
      case BRIM_OP_rms_norm_forward: return rms_norm_forward(args);
      case BRIM_OP_rms_norm_backward: return rms_norm_backward(args);
      case BRIM_OP_add_rms_norm_forward: return add_rms_norm_forward(args);
      default: return add_rms_norm_backward(args);
    }
  }
};

inline constexpr brim_op kNormOps[] = {BRIM_OP_rms_norm_forward, BRIM_OP_rms_norm_backward,
                                       BRIM_OP_add_rms_norm_forward, BRIM_OP_add_rms_norm_backward};

}  // namespace brim

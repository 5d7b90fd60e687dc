// Residual add and RMSNorm in one pass: the norm (ops/rms_norm.h) of the rounded sum.
//
//     S = x + residual      added in float32, rounded once to the residual's type
//     y = rms_norm(S)
// Under BRIM_CASTING_LLAMA S * rstd is rounded to the type of S. Backward, with g the gradient of S through y as in
// ops/rms_norm.h (S in the place of x):
//     d = g + dsum          the gradient of x and of residual alike, added in float32, rounded once to each type
//
// Shapes: x, residual, sum, y, dy, dsum, dx, dresidual (...,H); weight, dweight (H); rstd (R).
// Forward reads x, residual, weight and writes y, sum, rstd (absent when not wanted). Backward reads sum, weight, rstd, dy
// and dsum, of which dy or dsum may be absent and count as 0, and writes dx, dresidual and dweight, each only if it is
// present (one is). Where x and residual have one type dx alone is enough. dweight is zeros without dy, and then neither
// weight nor rstd is read.
//
// Types: residual of x's type or float32; sum, dsum and dresidual as residual; y, dy and dx as x; the rest as for
// rms_norm.
// Strides and workspace: as for rms_norm.
// Aliasing: sum may be residual, y may be x; dx may be dy or dsum, dresidual may be dsum (the same view); no other
// overlap of an output with anything.
#ifndef BRIM_OPS_ADD_RMS_NORM_H
#define BRIM_OPS_ADD_RMS_NORM_H

#include "brim/ops/rms_norm.h"

typedef brim_rms_norm_args brim_add_rms_norm_args;

#endif  // BRIM_OPS_ADD_RMS_NORM_H

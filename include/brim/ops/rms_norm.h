// RMSNorm over the last axis, of rows x, and of the rounded sum of x and a residual (ops/add_rms_norm.h).
//
//     rstd = 1 / sqrt(mean(x^2) + eps)      y = x * rstd * (offset + w)
// Backward, with xhat = x * rstd and m = dy * (offset + w):
//     dx = rstd * (m - xhat * mean(m * xhat))      dw = sum over rows of dy * xhat
// in float32 on values widened from their storage type (float64 tensors: in float64), each output rounded once to nearest
// even. mean(x^2) + eps is formed in float32; eps does not depend on any type. Sums of a row are taken in an order that
// depends on its length, the types and alignment, the chip and the instruction set, never on the number of rows; dw is
// summed over rows in float32 in a fixed order. The same call gives the same bits.
//
// casting says where x * rstd is rounded in between:
//     BRIM_CASTING_LLAMA   to the type of x, before it is multiplied by offset + w in float32    (Llama, Qwen, Mistral)
//     BRIM_CASTING_GEMMA   nowhere                                                               (Gemma: offset 1)
//     BRIM_CASTING_NONE    nowhere
// Without a weight the factor is 1, offset does not count, and neither does casting. The backward takes xhat unrounded
// under every casting. A row of no elements (H = 0) has mean 0.
//
// Shapes (rows R: all axes of x but the last, 1 to 5 axes in all; H >= 0):
//     x, y, dy, dx      (...,H)      weight, dweight   (H)
//     rstd              (R)          forward: absent when not wanted; backward: what forward wrote
// Forward reads x, weight and writes y, rstd. Backward reads x, weight, rstd, dy and writes dx and dweight, each only if it is
// present (one is); dweight asks for a weight. The fields of the other direction are absent.
//
// Types: x float32, bfloat16 or float16, y, dy and dx of its type; weight float32 or the type of x, or 16-bit beside
// float32; dweight as weight; rstd float32. bfloat16 never meets float16. float64 only when all are, rstd too, and not on
// CUDA.
// Strides: any non-negative strides on every axis, stride-0 (expanded) inputs too; an output must not overlap itself.
// Aliasing: y may be x, dx may be dy (the same view); no other overlap of an output with anything.
// Workspace: brim_workspace_size bytes, aligned to 16, on the device of x, for backward with dweight; its contents are of no
// matter before and after.
//
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467; casting as in the model code of Hugging
// Face transformers.
#ifndef BRIM_OPS_RMS_NORM_H
#define BRIM_OPS_RMS_NORM_H

#include "brim/run.h"
#include "brim/status.h"
#include "brim/tensor.h"

typedef int32_t brim_rms_norm_casting;
enum { BRIM_CASTING_LLAMA = 0, BRIM_CASTING_GEMMA = 1, BRIM_CASTING_NONE = 2 };

typedef struct brim_rms_norm_args {
  uint64_t struct_size;  // sizeof(brim_rms_norm_args)
  brim_tensor x, weight;
  brim_tensor y, rstd;
  brim_tensor dy, dx, dweight;
  brim_tensor residual, sum;    // of add_rms_norm, else absent
  brim_tensor dsum, dresidual;  // the same
  double eps, offset;
  brim_rms_norm_casting casting;
  void* workspace;
  uint64_t workspace_bytes;
  brim_run run;
} brim_rms_norm_args;

#endif  // BRIM_OPS_RMS_NORM_H

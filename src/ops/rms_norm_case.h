// One case of the norms from a short description of it.
#pragma once

#include "ops/cases.h"

namespace brim::ops {

// How the tensors of rows lie in memory.
enum class RmsNormView {
  contiguous,
  transposed,     // the first two axes swapped
  mixed,          // inputs transposed, outputs contiguous
  padded,         // something after each row and after each of the blocks above it: no two axes are one
  sliced,         // columns [8:] of wider rows
  expanded,       // inputs are one element, every stride 0: the gradient of .sum()
  expanded_rows,  // inputs are one row
  inner_strided,  // every second element: the last stride is 2
  inner_inputs,   // the same of inputs only
  inner_outputs,
  column_major,  // neighbours along the last axis are the furthest apart
  unaligned,     // contiguous, every base one element past its alignment
};

// Data besides the ordinary.
enum class RmsNormData {
  normal,
  special,  // rows with infinities, NaN, zeros of both signs, subnormal and tiny numbers, numbers near float16's largest
  zeros,  // in the rows that are normalised
  ones,   // everywhere, rstd too
};

struct RmsNormSpec {
  bool add = false, backward = false;
  brim_dtype x = BRIM_FLOAT32;
  brim_dtype s = BRIM_FLOAT32;       // of residual and sum; x where nothing is added
  brim_dtype weight = BRIM_FLOAT32;  // BRIM_DTYPE_NONE: absent
  std::vector<int64_t> outer = {7};  // all axes but the last
  int64_t hidden = 64;
  brim_rms_norm_casting casting = BRIM_CASTING_LLAMA;
  double eps = 1e-6, offset = 0;
  RmsNormView view = RmsNormView::contiguous;
  int64_t weight_stride = 1, rstd_stride = 1;
  int unaligned = -1;  // the one tensor, by index, whose base is one element past its alignment
  RmsNormData data = RmsNormData::normal;
  // Optional tensors that are present.
  bool rstd = true;                                  // forward
  bool dy = true, dsum = true;                       // backward of the add; without it dy alone
  bool dx = true, dresidual = true, dweight = true;  // dresidual: of the add
  // Outputs that are inputs.
  bool y_is_x = false, sum_is_residual = false;
  bool dx_is_dy = false, dx_is_dsum = false, dresidual_is_dsum = false;

  int64_t rows() const;
  bool rounds_xhat() const;  // to the 16 bits of s
};

Case make_rms_norm_case(const RmsNormSpec& spec);

// The tensors of a case, by index.
namespace rms_norm_tensor {
enum { kX, kResidual, kSum, kWeight, kRstd, kDy, kDsum, kY, kDx, kDresidual, kDweight, kTensors };
}

// Where an output is, its own tensor or the input it overwrites.
int rms_norm_place(const RmsNormSpec& spec, int output);

// What brim bench and brim plan ask for (rms_norm_bench_cases.cpp).
std::vector<Case> rms_norm_bench_cases(const BenchRequest& request, bool add, bool backward);

// What comes out, and how far it may be off (rms_norm_expected.cpp).
std::vector<Expected> expect_rms_norm(const RmsNormSpec& spec, const Values& inputs, const Oracle& oracle);
double rms_norm_limit_ulp(const RmsNormSpec& spec, int tensor);

// For cases too large to go through the reference as a whole, those of one outer axis: dweight is compared in the first,
// middle and last columns, since a column of it needs only that of x and dy, and all else in some rows, the first and
// last among them.
void sample(Case& c, const RmsNormSpec& spec, std::initializer_list<int64_t> rows_between);

}  // namespace brim::ops

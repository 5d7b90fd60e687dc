// What the CPU's bodies of RMSNorm and residual-add RMSNorm are told: the call cut into rows, or backward into
// blocks of rows, that threads share out among themselves.
#pragma once

#include "cpu/isa.h"
#include "ops/rms_norm.h"

namespace brim::cpu {

// dweight's sum over the blocks is shared out in groups of this many columns, a multiple of any vector's lanes.
inline constexpr int64_t kRmsNormColumns = 128;

enum class RowWriting {
  plain,   // through the caches
  stream,  // past them, each row in whole cache lines
  heads    // past them, but for what comes before a row's first whole line and after its last
};

struct RmsNormCall {
  ops::RmsNormProblem problem;
  const brim_rms_norm_args* args;
  // offset + weight, or ones, in the arithmetic type (float64 for float64, else float32), and the same in the order
  // of Order::paired. Either is null where it is not used.
  void *factors, *paired_factors;
  bool strided;  // some tensor's elements are not side by side
  RowWriting writing;
  int64_t rows_ahead;  // how far ahead of a row its memory is asked for; 0: not at all

  // Backward: block b of rows adds its part of dweight up in row b of a matrix in the workspace. The blocks are
  // made without regard to threads, so that their number does not change a bit.
  int64_t rows_per_block, blocks;
  bool rows_together;    // some rows at a time, as long as they stay in L2
  int64_t pitch;         // of that matrix, whose rows end in unused columns
  bool paired_partials;  // columns in the order of Order::paired
  void* partials;        // null where dweight is not wanted, or zeros
};

struct RmsNormPlan {
  RmsNormCall call;                     // without factors and partials
  int64_t units;                        // rows, or backward blocks; 0: there is nothing to do
  int64_t grain;                        // units that are worth a thread
  int64_t column_groups, column_grain;  // of dweight
  int64_t threads;                      // that will run, `width` at most
  int64_t workspace_bytes;              // does not depend on width
};

// How a validated call is cut up for `width` threads on a machine whose last-level caches hold `cache_bytes`.
RmsNormPlan make_rms_norm_plan(const brim_rms_norm_args& args, const ops::RmsNormProblem& problem,
                               int64_t width, int64_t cache_bytes);

struct RmsNormBodies {
  void (*factors)(const RmsNormCall& call);
  void (*forward)(const RmsNormCall& call, int64_t begin, int64_t end);   // rows
  void (*backward)(const RmsNormCall& call, int64_t begin, int64_t end);  // blocks of rows
  void (*dweight)(const RmsNormCall& call, int64_t begin, int64_t end);   // groups of columns, at last
};
const RmsNormBodies& rms_norm_bodies(Isa isa);

#define BRIM_ISA(id, name)                                                    \
  namespace id {                                                              \
  void rms_norm_factors(const RmsNormCall& call);                             \
  void rms_norm_rows(const RmsNormCall& call, int64_t begin, int64_t end);    \
  void rms_norm_blocks(const RmsNormCall& call, int64_t begin, int64_t end);  \
  void rms_norm_dweight(const RmsNormCall& call, int64_t begin, int64_t end); \
  }
#include "cpu/isas.inc"
#undef BRIM_ISA

}  // namespace brim::cpu

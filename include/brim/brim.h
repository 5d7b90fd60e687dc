// brim: the memory-bound kernels of language-model training. This is the whole C interface (C11).
//
// An op takes one args struct: set `struct_size` to sizeof(the struct), fill in what is wanted, leave the rest zero.
// Each op's header under ops/ gives formula, shapes, types, rounding, aliasing and errors. An op allocates nothing,
// keeps no state and never waits for the GPU; outputs and workspace are the caller's. Calls are thread-safe.
#ifndef BRIM_BRIM_H
#define BRIM_BRIM_H

#include <stddef.h>

#include "brim/ops/add_rms_norm.h"
#include "brim/ops/rms_norm.h"
#include "brim/ops/rope.h"
#include "brim/ops/rope_tables.h"
#include "brim/run.h"
#include "brim/status.h"
#include "brim/tensor.h"

#define BRIM_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

// Every entry of ops.inc by number, for the calls below that work on any op.
typedef int32_t brim_op;
enum {
#define BRIM_OP(family, mode, args) BRIM_OP_##family##_##mode,
#include "brim/ops.inc"
#undef BRIM_OP
  BRIM_OP_COUNT
};

// The entries themselves: brim_rope_forward(const brim_rope_args*), ...
#define BRIM_OP(family, mode, args) BRIM_API brim_status brim_##family##_##mode(const args*);
#include "brim/ops.inc"
#undef BRIM_OP

// Which form would run for `args` (the entry's own struct), as one line "<path> key=value ...", zero-terminated and cut
// to `size`. Validates like the entry and launches nothing.
BRIM_API brim_status brim_describe_plan(brim_op op, const void* args, char* text, size_t size);

// Bytes of workspace that the entry needs for `args`; 0 for ops that need none.
BRIM_API brim_status brim_workspace_size(brim_op op, const void* args, size_t* bytes);

// Whether this build has `backend` and this machine can run it (BRIM_OK), or the reason why not.
BRIM_API brim_status brim_backend_status(brim_backend backend);

// Version of the library that is loaded, e.g. "0.1.0".
BRIM_API const char* brim_version(void);

// CPU work is shared out as body(context, begin, end) over [0, count), in pieces of at least `grain`. Default: OpenMP.
// A host with a thread pool of its own (torch does this) sets it once, before the first op. Null restores the default.
typedef void (*brim_parallel_body)(void* context, int64_t begin, int64_t end);
typedef void (*brim_parallel_for)(int64_t count, int64_t grain, brim_parallel_body body, void* context);
BRIM_API void brim_set_parallel_for(brim_parallel_for parallel_for);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // BRIM_BRIM_H

// Building RoPE's tables: host code in one piece, since it runs once per model and length.
#pragma once

#include "brim/ops/rope_tables.h"

namespace brim::ops {

// Checks `args` (of full size) and fills cos and sin; every row is shared out to the threads of
// core/parallel.h.
Status rope_tables(const brim_rope_tables_args& args);

}  // namespace brim::ops

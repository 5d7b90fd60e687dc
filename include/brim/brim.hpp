// brim for C++20: the same structs and entries as brim.h under names of C++.
//
//     brim::RopeArgs args;                      // zeroed, struct_size set
//     args.q = brim::view(q, BRIM_FLOAT32, {1, 32, 128, 64});
//     ...
//     if (brim::Status s = brim::rope_forward(args); !brim::ok(s)) std::puts(s.message);
#pragma once

#include "brim/brim.h"

namespace brim {

using RopeArgs = Zeroed<brim_rope_args>;
using RopeTablesArgs = Zeroed<brim_rope_tables_args>;
using RmsNormArgs = Zeroed<brim_rms_norm_args>;  // of add_rms_norm too

#define BRIM_OP(family, mode, args) \
  inline Status family##_##mode(const args& a) { return ::brim_##family##_##mode(&a); }
#include "brim/ops.inc"
#undef BRIM_OP

inline Status rope_tables(const brim_rope_tables_args& a) { return ::brim_rope_tables(&a); }

}  // namespace brim

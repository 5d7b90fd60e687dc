// What the CPU's RoPE bodies are told: the call cut into units that threads share out among themselves.
#pragma once

#include "ops/rope.h"

namespace brim::cpu {

// Bytes of each of the two tables of angles that a body keeps, widened, for a block of tokens: both stay in the L1 cache.
inline constexpr int64_t kRopeTableBytes = 32768;

struct RopePart {  // q or k
  const void* in;
  void* out;
  brim_dtype dtype;
  ops::RopeStrides from, to;
  int64_t heads;
  bool in_place;
  bool stream;      // write past the caches: large, out of place, and every run of a head starts and ends on a cache line
  bool head_major;  // one head's tokens lie closer together than one token's heads
};

struct RopeCall {
  ops::RopeProblem problem;
  const void *cos, *sin, *positions;
  RopePart parts[2];  // q, k; heads = 0 without k

  // The tables of a unit: rows of `pitch` columns, of which a pass fills `columns` (all r/2, unless that is huge).
  int64_t columns, pitch;

  // A unit is one batch row's block of tokens with a block of the heads of q and k together, the heads' blocks fastest.
  int64_t tokens_per_unit, heads_per_unit;
  int64_t token_blocks, head_blocks;
};

#define BRIM_ISA(id, name)                                         \
  namespace id {                                                     \
  void rope_units(const RopeCall& call, int64_t begin, int64_t end); \
  }
#include "cpu/isas.inc"
#undef BRIM_ISA

}  // namespace brim::cpu

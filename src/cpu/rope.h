// What the CPU's RoPE bodies are told: the call cut into units that threads share out among themselves.
#pragma once

#include "cpu/isa.h"
#include "ops/rope.h"

namespace brim::cpu {

// Bytes of each of the two tables of angles that a body keeps, widened, for a block of tokens: both stay in
// the L1 cache.
inline constexpr int64_t kRopeTableBytes = 32768;

// Columns of the tables are padded to a multiple of this, the most that a body takes in one step.
inline constexpr int64_t kRopeColumnBlock = 32;

// Bytes of heads that a body stages at most (Writing::stage); a larger head is not staged.
inline constexpr int64_t kRopeStageBytes = 4096;

enum class Writing {
  plain,   // through the caches
  stream,  // past them, out of place, each run of a head in whole cache lines
  stage    // past them, out of place, in lines that are made of several heads first (cpu/stage.h)
};

struct RopePart {  // q or k
  const void* in;
  void* out;
  brim_dtype dtype;
  ops::RopeStrides from, to;
  int64_t heads;
  bool in_place;
  Writing writing;
  bool head_major;          // one head's tokens lie closer together than one token's heads
  int64_t heads_per_stage;  // of the nearer axis: of a head's tokens or a token's heads
};

struct RopeCall {
  ops::RopeProblem problem;
  const void *cos, *sin, *positions;
  RopePart parts[2];  // q and k, or both as one; heads = 0 where there is none

  // The tables of a unit: rows of `pitch` columns, of which a pass fills `columns` (all r/2, unless that is
  // huge).
  int64_t columns, pitch;
  int64_t fetch_ahead;  // fetch_ahead_bytes()

  // A unit is one batch row's block of tokens with a block of the heads of q and k together, the heads'
  // blocks fastest.
  int64_t tokens_per_unit, heads_per_unit;
  int64_t token_blocks, head_blocks;
};

struct RopePlan {
  RopeCall call;
  int64_t units;    // 0: there is nothing to do
  int64_t grain;    // units that are worth a thread
  int64_t threads;  // that will run, `width` at most
};

// How a validated call is cut up for `width` threads on a machine whose last-level caches hold `cache_bytes`.
RopePlan make_rope_plan(const brim_rope_args& args, const ops::RopeProblem& problem, int64_t width,
                        int64_t cache_bytes);

// Runs units begin .. end - 1.
using RopeBody = void (*)(const RopeCall& call, int64_t begin, int64_t end);
RopeBody rope_body(Isa isa);

#define BRIM_ISA(id, name)                                           \
  namespace id {                                                     \
  void rope_units(const RopeCall& call, int64_t begin, int64_t end); \
  }
#include "cpu/isas.inc"
#undef BRIM_ISA

}  // namespace brim::cpu

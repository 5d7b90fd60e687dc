// RoPE's room: what every backend needs to know of a call, and the checks and the canonical form that lead
// there.
#pragma once

#include "brim/ops/rope.h"
#include "core/status.h"
#include "core/tensor.h"

namespace brim::ops {

// The tensor whose device decides the backend.
inline const TensorView& lead_tensor(const brim_rope_args& args) { return args.q; }

Status validate_rope_forward(const brim_rope_args& args, brim_backend backend);
Status validate_rope_backward(const brim_rope_args& args, brim_backend backend);

// rope_backward(args) is rope_forward(transposed(args)).
brim_rope_args transposed(const brim_rope_args& args);

// Element strides of a (batch, sequence, head, dim) view; 0 where the axis has size 1.
struct RopeStrides {
  int64_t batch, seq, head, dim;

  bool operator==(const RopeStrides&) const = default;
};

// Element strides of a table seen as (axis, batch, row, column); 0 where it does not vary. Row is the token's
// place in its sequence, or its position when there are positions.
struct RopeTableStrides {
  int64_t axis, batch, row, column;

  bool operator==(const RopeTableStrides&) const = default;
};

// Where the elements of pair j stand in a head.
enum class PairOrder : int { half = 0, interleaved = 1 };  // j and j + r/2; 2j and 2j + 1

// The facts of a validated call, without pointers: comparable, printable, the input of every launch plan.
struct RopeProblem {
  brim_dtype dtype;           // of q and q_out
  brim_dtype k_dtype;         // of k and k_out; BRIM_DTYPE_NONE without k
  brim_dtype table_dtype;     // of cos and sin
  brim_dtype position_dtype;  // BRIM_DTYPE_NONE without positions
  int64_t batch, seq, q_heads, k_heads, head_dim, rotary_dim;
  int64_t table_rows;  // rows that may be read: the bound of a position
  PairOrder in_order, out_order;
  bool negate_sin;  // the transposed rotation
  bool in_place;    // q_out is q and (k_out is k or there is no k): elements r..d-1 need no copy
  bool has_sections, sections_interleaved;
  int32_t sections[3];
  RopeStrides q, k, q_out, k_out;
  RopeTableStrides cos, sin;
  int64_t position_batch_stride, position_seq_stride;
  // Largest power of two, at most 16, that divides every address of a head and every byte stride between
  // heads of q, k and the outputs; below their element size never. Says nothing about r/2.
  int alignment;
  int base_alignment;   // the same of the addresses alone
  int table_alignment;  // the same for the rows of cos and sin

  bool operator==(const RopeProblem&) const = default;
};

// `args` must have passed validation for `forward` (use transposed() for the backward entry).
RopeProblem make_rope_problem(const brim_rope_args& args);

// Which axis of mRoPE tables column j reads.
constexpr int rope_section_axis(const int32_t sections[3], bool interleaved, int64_t j) {
  if (interleaved) {
    const int a = static_cast<int>(j % 3);
    return a > 0 && j < 3 * static_cast<int64_t>(sections[a]) ? a : 0;
  }
  return j < sections[0] ? 0 : j < static_cast<int64_t>(sections[0]) + sections[1] ? 1 : 2;
}

// CPU backends only: every position within the table, or an error naming the first that is not.
Status check_rope_positions(const brim_rope_args& args, const RopeProblem& problem);

// Reads positions[b, s] of an int32 or int64 view.
inline int64_t rope_position(const void* positions, brim_dtype dtype, int64_t offset) {
  return dtype == BRIM_INT32 ? static_cast<const int32_t*>(positions)[offset]
                             : static_cast<const int64_t*>(positions)[offset];
}

}  // namespace brim::ops

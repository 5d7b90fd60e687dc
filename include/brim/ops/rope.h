// RoPE: rotary position embedding of query and key heads, q and k in one call.
//
// For each token and head, with r = rotary width, c = cos[row][j], s = sin[row][j], and pair j of 0 <= j < r/2:
//     y1 = x1*c - x2*s        computed as fma(-x2, s, x1*c)
//     y2 = x2*c + x1*s        computed as fma( x1, s, x2*c)
// in float32 on values widened from their storage type (float64 tensors: in float64), rounded once to nearest even.
// Every layout, alignment and backend with a fused multiply-add gives the same bits. Elements r..d-1 of a head are
// copied bit for bit. `inverse` transposes the rotation (s -> -s); rope_backward is rope_forward with `inverse` flipped,
// q and k being the incoming gradients and q_out and k_out the gradients of the forward's inputs.
//
// Which two elements form pair j:
//     BRIM_PAIRING_HALF          j and j + r/2                                (Llama, NeoX)
//     BRIM_PAIRING_INTERLEAVED   2j and 2j + 1                                (GPT-J, GLM, Cohere)
//     BRIM_PAIRING_TO_HALF       read from 2j and 2j + 1, written to j and j + r/2 (DeepSeek); the transposed rotation
//                                reads j and j + r/2 and writes 2j and 2j + 1; out of place only
//
// Shapes (b batch, s sequence, h and hk heads, d head dim, w table width):
//     q, q_out     (b,h,s,d) for BRIM_LAYOUT_BHSD, (b,s,h,d) for BSHD, (t,h,d) for THD (read below as b = 1, s = t)
//     k, k_out     the same with hk heads, any relation to h; absent (dtype BRIM_DTYPE_NONE) to rotate q alone
//     cos, sin     (s,w) or (1,s,w) or (b,s,w), exactly s rows; or a table (P,w) with `positions`;
//                  with `sections` (mRoPE): (3,b,s,w) or (3,1,s,w)
//     positions    (s), (1,s) or (b,s), for THD (t) or (1,t); int32 or int64; token row = positions[..]; 2-D tables only
//     w            half: r/2, or r with the first r/2 columns read; interleaved and to-half: r/2
// rotary_dim r: even, at most d. Zero infers it: half wants w = d (then r = d), the others take r = 2w.
// sections (n0,n1,n2), summing to r/2, all zero when not wanted: column j takes its angle from axis 0, 1 or 2 of the
// tables: in blocks of n0, n1, n2 columns, or with sections_interleaved (Qwen3-VL) from axis a = j%3 where a > 0 and
// j < 3*n_a, else from axis 0.
//
// Types: q and k float32, bfloat16 or float16, each with its own output of the same type; cos and sin of one type, that of
// q or k or float32, or 16-bit beside float32; bfloat16 never meets float16 in one call. float64 only when q, k, cos and
// sin all are, and not on CUDA.
// Strides: any non-negative strides on every axis, size-0 axes, stride-0 (expanded) inputs; an output must not overlap itself.
// Aliasing: q_out may be q (same view: in place), likewise k_out and k; no other overlap of an output with anything.
// Bad data: a position outside [0,P) is an error naming it on the CPU (nothing is written then); on a GPU the rotated
// elements of that token become NaN, nothing is read outside the table and *run.bad_data is set to 1 when given.
//
// Source: Su et al., RoFormer, arXiv:2104.09864; pairings and mRoPE as in Hugging Face transformers' model code.
#ifndef BRIM_OPS_ROPE_H
#define BRIM_OPS_ROPE_H

#include "brim/run.h"
#include "brim/status.h"
#include "brim/tensor.h"

typedef int32_t brim_rope_layout;
enum { BRIM_LAYOUT_BHSD = 0, BRIM_LAYOUT_BSHD = 1, BRIM_LAYOUT_THD = 2 };

typedef int32_t brim_rope_pairing;
enum { BRIM_PAIRING_HALF = 0, BRIM_PAIRING_INTERLEAVED = 1, BRIM_PAIRING_TO_HALF = 2 };

typedef struct brim_rope_args {
  uint64_t struct_size;  // sizeof(brim_rope_args)
  brim_tensor q, k;
  brim_tensor q_out, k_out;
  brim_tensor cos, sin;
  brim_tensor positions;  // absent: token i of a sequence reads row i
  int64_t rotary_dim;     // r, or 0 to infer it
  int32_t sections[3];
  int32_t sections_interleaved;  // 0 or 1
  brim_rope_layout layout;
  brim_rope_pairing pairing;
  int32_t inverse;  // 0 or 1
  brim_run run;
} brim_rope_args;

#endif  // BRIM_OPS_ROPE_H

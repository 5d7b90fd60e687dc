// The cos and sin tables of RoPE, on the CPU, for positions 0 <= p < max_position and columns 0 <= j < r/2:
//     cos[p][j] = a*cos(p*f_j), sin[p][j] = a*sin(p*f_j)
//
// Angles and their cosines are formed in float64 and rounded once, to nearest even, into the tables' type.
// f_j = base^(-2j/r), changed by the scaling rule; a = 1 unless the rule has an attention factor.
// Width of cos and sin: r (columns r/2..r-1 repeat columns 0..r/2-1) or r/2. Any strides; no overlap.
//
// Rules, with the parameter names of Hugging Face `rope_parameters`; zero means "not given", and a rule
// reads only the parameters named here. M = max_position_embeddings, the model's own length;
// O = original_max_position_embeddings, else M; L = seq_len, else max_position.
//     default   nothing
//     linear    f_j / factor
//     dynamic   base * (factor*max(L,M)/M - (factor-1))^(r/(r-2)): grows once L passes M (O without M)
//     yarn      blend of f_j and f_j/factor over a ramp of columns, from beta_fast (32) to beta_slow (1)
//               turns at length O, its ends rounded outwards unless truncate_off; factor = M/O unless given;
//               a = attention_factor, else m(mscale)/m(mscale_all_dim) when both are given, else m(1),
//               with m(x) = 0.1*x*ln(factor) + 1
//     longrope  f_j / short_factor[j], or f_j / long_factor[j] once L > O; a = attention_factor, else
//               sqrt(1 + ln(factor)/ln(O)), factor = M/O unless given, and 1 where factor <= 1
//     llama3    columns of less than low_freq_factor turns at length O divided by factor, those of more
//               than high_freq_factor kept, a linear blend between
// Sources: modeling_rope_utils.py of Hugging Face transformers (the formulas), YaRN arXiv:2309.00071,
// LongRoPE arXiv:2402.13753.
#ifndef BRIM_OPS_ROPE_TABLES_H
#define BRIM_OPS_ROPE_TABLES_H

#include "brim/run.h"
#include "brim/status.h"
#include "brim/tensor.h"

typedef int32_t brim_rope_scaling_rule;
enum {
  BRIM_ROPE_DEFAULT = 0,
  BRIM_ROPE_LINEAR = 1,
  BRIM_ROPE_DYNAMIC = 2,
  BRIM_ROPE_YARN = 3,
  BRIM_ROPE_LONGROPE = 4,
  BRIM_ROPE_LLAMA3 = 5
};

typedef struct brim_rope_tables_args {
  uint64_t struct_size;  // sizeof(brim_rope_tables_args)
  brim_tensor cos, sin;  // (max_position, r) or (max_position, r/2) on the CPU, both of one float type
  int64_t rotary_dim;    // r, even
  double base;           // rope_theta; 0 means 10000
  int64_t seq_len;       // the length `dynamic` and `longrope` decide by; 0 means max_position
  brim_rope_scaling_rule rule;
  int32_t truncate_off;  // yarn: 1 for transformers' truncate=False
  double factor;
  int64_t max_position_embeddings;
  int64_t original_max_position_embeddings;
  double attention_factor;
  double beta_fast, beta_slow, mscale, mscale_all_dim;  // yarn
  double low_freq_factor, high_freq_factor;             // llama3
  const double* short_factor;                           // longrope: r/2 numbers each
  const double* long_factor;
} brim_rope_tables_args;

#ifdef __cplusplus
extern "C" {
#endif
BRIM_API brim_status brim_rope_tables(const brim_rope_tables_args* args);
#ifdef __cplusplus
}
#endif

#endif  // BRIM_OPS_ROPE_TABLES_H

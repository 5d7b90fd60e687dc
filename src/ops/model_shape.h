// The sizes of a language model that ops take their shapes from, as read from a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <string>

#include "brim/ops/rope.h"

namespace brim::ops {

struct ModelShape {
  std::string name;
  int64_t hidden = 0;
  int64_t heads = 0;       // query heads
  int64_t kv_heads = 0;    // key heads that RoPE sees: 1 for multi-head latent attention
  int64_t head_dim = 0;    // elements of a head that RoPE sees
  int64_t rotary_dim = 0;  // of which this many turn
  brim_rope_pairing pairing = BRIM_PAIRING_HALF;
  double theta = 10000;
  int64_t vocab = 0;
  int64_t max_position = 0;  // 0: the config does not say
};

}  // namespace brim::ops

// RoPE's ring form: what rope.cpp (host) asks of rope_ring.cu (kernels).
#pragma once

#include <array>

#include "core/status.h"
#include "cuda/rope_ring_plan.h"

namespace brim::cuda {

struct RingVariant {
  brim_dtype dtype;
  int vector_bytes;
  PairOrder order;
};

inline constexpr auto kRingVariants = [] {
  std::array<RingVariant, 18> list{};
  size_t n = 0;
  for (brim_dtype dtype : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16})
    for (int bytes : {16, 8, 4})
      for (PairOrder order : {PairOrder::half, PairOrder::interleaved}) list[n++] = {dtype, bytes, order};
  return list;
}();

constexpr int ring_variant_index(const RopeRing& r) {
  for (size_t i = 0; i < kRingVariants.size(); ++i) {
    const RingVariant& v = kRingVariants[i];
    if (v.dtype == r.dtype && v.vector_bytes == r.vector_bytes && v.order == r.order)
      return static_cast<int>(i);
  }
  return -1;
}

Status launch_rope_ring(const char* op, const brim_rope_args& args, const ops::RopeProblem& problem,
                        const RopeRing& ring, int sm_count);

}  // namespace brim::cuda

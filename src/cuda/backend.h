// The CUDA backend. Plans are pure and built everywhere; kernels only where there is nvcc (BRIM_WITH_CUDA),
// and without it the slots answer that this build has no CUDA.
#pragma once

#include "core/slot.h"

namespace brim::cuda {

// Whether this build has kernels and this machine a GPU and a driver for them; else why not.
Status backend_status();

#define BRIM_SLOT(family, mode) extern const core::Slot family##_##mode;
#include "cuda/slots.inc"
#undef BRIM_SLOT
}  // namespace brim::cuda

#include "cuda/backend.h"

namespace brim::cuda {

// Built where there is no nvcc; with it, runtime.cpp answers.
Status backend_status() {
  return core::failure(BRIM_NOT_AVAILABLE, "cuda: this build of brim has no CUDA backend");
}

}  // namespace brim::cuda

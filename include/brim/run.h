// How a call is to be run: the last field of every args struct. All zero is what most callers want. C11 and C++.
#ifndef BRIM_RUN_H
#define BRIM_RUN_H

#include <stdint.h>

#if defined(_WIN32)
#define BRIM_API
#else
#define BRIM_API __attribute__((visibility("default")))
#endif

typedef int32_t brim_backend;
enum {
  BRIM_BACKEND_AUTO = 0,      // by the tensors' device: CPU -> cpu, CUDA -> cuda
  BRIM_BACKEND_CPU = 1,       // SIMD and threads
  BRIM_BACKEND_CUDA = 2,      // NVIDIA GPUs
  BRIM_BACKEND_REFERENCE = 3  // naive loops in double on the CPU: the oracle; slow
};

typedef struct brim_run {
  // cudaStream_t the work is queued on; null is the default stream; unused on the CPU.
  void* stream;
  // Device int32 or null: a GPU op stores 1 here when it meets bad data, and never clears it.
  int32_t* bad_data;
  // Name of the form to run ("avx2", "plain", ...: brim_describe_plan's first word); null: the best one. A form
  // that this machine or problem cannot take is refused.
  const char* path;
  // BRIM_BACKEND_AUTO unless one is wanted by name.
  brim_backend backend;
} brim_run;

#ifdef __cplusplus
namespace brim {
// The args struct `Args` with every option zero and its size filled in: `brim::Zeroed<brim_rope_args> args;`
template <class Args>
struct Zeroed : Args {
  Zeroed() : Args{} { this->struct_size = sizeof(Args); }
};
}  // namespace brim
#endif

#endif  // BRIM_RUN_H

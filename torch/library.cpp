// What the library does when PyTorch loads it, and what it tells of itself.
#include <torch/csrc/stable/library.h>

#include <string>

#include "convert.h"

namespace {

struct Work {
  brim_parallel_body body;
  void* context;
};

// brim's CPU work runs on PyTorch's own pool: a second one would oversubscribe the cores, and
// torch.set_num_threads holds for both.
void parallel_for(int64_t count, int64_t grain, brim_parallel_body body, void* context) {
  Work work{body, context};
  TORCH_ERROR_CODE_CHECK(torch_parallel_for(
      0, count, grain,
      [](int64_t begin, int64_t end, void* w) {
        static_cast<Work*>(w)->body(static_cast<Work*>(w)->context, begin, end);
      },
      &work));
}

[[maybe_unused]] const bool pool_is_set = (brim_set_parallel_for(parallel_for), true);

std::string version() { return brim_version(); }

// What describe_plan says of a small call on the CPU: its first word is the instruction set.
std::string cpu_path() {
  float zero = 0;
  brim::RopeArgs probe;
  probe.q = probe.q_out = brim::view(&zero, BRIM_FLOAT32, {1, 1, 1, 0});
  probe.cos = probe.sin = brim::view(&zero, BRIM_FLOAT32, {1, 0});
  char plan[256] = "";
  const brim::Status status = brim_describe_plan(BRIM_OP_rope_forward, &probe, plan, sizeof plan);
  const std::string text = brim::ok(status) ? plan : status.message;
  return brim::ok(status) ? text.substr(0, text.find(' ')) : text;
}

// "available", or the reason why not. It starts the CUDA driver, so importing brim must not ask.
std::string cuda_status() {
  const brim::Status status = brim_backend_status(BRIM_BACKEND_CUDA);
  return brim::ok(status) ? "available" : status.message;
}

STABLE_TORCH_LIBRARY_FRAGMENT(brim, m) {
  m.def("version() -> str");
  m.def("cpu_path() -> str");
  m.def("cuda_status() -> str");
}

STABLE_TORCH_LIBRARY_IMPL(brim, CompositeExplicitAutograd, m) {
  m.impl("version", TORCH_BOX(&version));
  m.impl("cpu_path", TORCH_BOX(&cpu_path));
  m.impl("cuda_status", TORCH_BOX(&cuda_status));
}

}  // namespace

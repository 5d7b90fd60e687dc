// What the library does when PyTorch loads it, and torch.ops.brim.backend_info.
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

// Lines of "name value": version, the CPU backend's instruction set, and "available" or the reason why not
// for CUDA.
std::string backend_info() {
  float zero = 0;
  brim::RopeArgs probe;
  probe.q = probe.q_out = brim::view(&zero, BRIM_FLOAT32, {1, 1, 1, 0});
  probe.cos = probe.sin = brim::view(&zero, BRIM_FLOAT32, {1, 0});
  char plan[64] = "";
  const brim::Status cpu = brim_describe_plan(BRIM_OP_rope_forward, &probe, plan, sizeof plan);
  const std::string path(plan), instruction_set = path.substr(0, path.find(' '));
  const brim::Status cuda = brim_backend_status(BRIM_BACKEND_CUDA);
  return std::string("version ") + brim_version() + "\ncpu " +
         (brim::ok(cpu) ? instruction_set : cpu.message) + "\ncuda " +
         (brim::ok(cuda) ? "available" : cuda.message);
}

STABLE_TORCH_LIBRARY_FRAGMENT(brim, m) { m.def("backend_info() -> str"); }
STABLE_TORCH_LIBRARY_IMPL(brim, CompositeExplicitAutograd, m) {
  m.impl("backend_info", TORCH_BOX(&backend_info));
}

}  // namespace

// The cuda backend's slots of RoPE: problem -> plan -> launch.
#include "cuda/rope.h"

#include <cstring>

#include "cuda/backend.h"
#if BRIM_WITH_CUDA
#include "cuda/runtime.h"
#endif

namespace brim::cuda {
namespace {

constexpr const char* kForward = "rope_forward";
constexpr const char* kBackward = "rope_backward";

Status check_path(const char* op, const brim_rope_args& args) {
  if (!args.run.path || std::strcmp(args.run.path, "plain") == 0) return core::success();
  return core::failure(BRIM_NOT_AVAILABLE, "%s: the cuda backend has no path '%s'; it has: plain", op,
                       args.run.path);
}

#if BRIM_WITH_CUDA
Status run(const char* op, const brim_rope_args& args) {
  BRIM_TRY(check_path(op, args));
  const core::DeviceProps* props;
  BRIM_TRY(device_props(op, args.q.device_index, &props));
  const ops::RopeProblem problem = ops::make_rope_problem(args);
  return launch_rope(op, args, problem, plan_rope(problem, *props));
}
#else
Status device_props(const char* op, int, const core::DeviceProps**) {
  return core::failure(BRIM_NOT_AVAILABLE, "%s: this build of brim has no CUDA backend", op);
}
Status run(const char* op, const brim_rope_args&) { return device_props(op, 0, nullptr); }
#endif

Status describe(const char* op, const brim_rope_args& args, const core::DeviceProps* device, char* text,
                size_t size) {
  BRIM_TRY(check_path(op, args));
  if (!device) BRIM_TRY(device_props(op, args.q.device_index, &device));
  print(plan_rope(ops::make_rope_problem(args), *device), text, size);
  return core::success();
}

Status run_forward(const brim_rope_args& a) { return run(kForward, a); }
Status run_backward(const brim_rope_args& a) { return run(kBackward, ops::transposed(a)); }
Status describe_forward(const brim_rope_args& a, const core::DeviceProps* device, char* text, size_t size) {
  return describe(kForward, a, device, text, size);
}
Status describe_backward(const brim_rope_args& a, const core::DeviceProps* device, char* text, size_t size) {
  return describe(kBackward, ops::transposed(a), device, text, size);
}

}  // namespace

constinit const core::Slot rope_forward = core::slot<brim_rope_args, run_forward, describe_forward>();
constinit const core::Slot rope_backward = core::slot<brim_rope_args, run_backward, describe_backward>();

}  // namespace brim::cuda

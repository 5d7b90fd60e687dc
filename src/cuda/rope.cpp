// The cuda backend's slots of RoPE: problem -> plan -> launch.
#include "cuda/rope.h"

#include <cstring>

#include "cuda/backend.h"
#include "cuda/rope_bulk.h"
#if BRIM_WITH_CUDA
#include "cuda/runtime.h"
#endif

namespace brim::cuda {
namespace {

constexpr const char* kForward = "rope_forward";
constexpr const char* kBackward = "rope_backward";

// Which form serves a call: the bulk one where it can, else the plain one, or that which args.run.path names.
struct Choice {
  bool bulk;
  RopeBulk bulk_plan;
  RopePlan plain_plan;
};

Status choose(const char* op, const brim_rope_args& args, const ops::RopeProblem& p,
              const core::DeviceProps& device, Choice* choice) {
  const char* path = args.run.path;
  const bool wants_bulk = path && std::strcmp(path, "bulk") == 0,
             wants_plain = path && std::strcmp(path, "plain") == 0;
  if (path && !wants_bulk && !wants_plain)
    return core::failure(BRIM_NOT_AVAILABLE, "%s: the cuda backend has no path '%s'; it has: plain, bulk", op,
                         path);
  choice->plain_plan = plan_rope(p, device);
  const RopePlan& plan = choice->plain_plan;
  const RopeLaunch& l = plan.launch[0];
  choice->bulk = !wants_plain && plan.launches == 1 &&
                 plan_rope_bulk(p, device, l.variant.vector_bytes, l.vector_tables, &choice->bulk_plan);
  if (wants_bulk && !choice->bulk)
    return core::failure(BRIM_NOT_AVAILABLE, "%s: the bulk form does not serve this call; path 'plain' does",
                         op);
  return core::success();
}

#if BRIM_WITH_CUDA
Status run(const char* op, const brim_rope_args& args) {
  const core::DeviceProps* props;
  BRIM_TRY(device_props(op, args.q.device_index, &props));
  const ops::RopeProblem problem = ops::make_rope_problem(args);
  Choice choice{};
  BRIM_TRY(choose(op, args, problem, *props, &choice));
  if (choice.bulk) return launch_rope_bulk(op, args, problem, choice.bulk_plan);
  return launch_rope(op, args, problem, choice.plain_plan);
}
#else
Status device_props(const char* op, int, const core::DeviceProps**) {
  return core::failure(BRIM_NOT_AVAILABLE, "%s: this build of brim has no CUDA backend", op);
}
Status run(const char* op, const brim_rope_args&) { return device_props(op, 0, nullptr); }
#endif

Status describe(const char* op, const brim_rope_args& args, const core::DeviceProps* device, char* text,
                size_t size) {
  if (!device) BRIM_TRY(device_props(op, args.q.device_index, &device));
  Choice choice{};
  BRIM_TRY(choose(op, args, ops::make_rope_problem(args), *device, &choice));
  choice.bulk ? print(choice.bulk_plan, text, size) : print(choice.plain_plan, text, size);
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

constexpr const char* kForms[] = {"plain", "bulk", nullptr};

template <Status (*Run)(const brim_rope_args&),
          Status (*Describe)(const brim_rope_args&, const core::DeviceProps*, char*, size_t)>
constexpr core::Slot slot() {
  core::Slot s = core::slot<brim_rope_args, Run, Describe>();
  s.forms = kForms;
  return s;
}

}  // namespace

constinit const core::Slot rope_forward = slot<run_forward, describe_forward>();
constinit const core::Slot rope_backward = slot<run_backward, describe_backward>();

}  // namespace brim::cuda

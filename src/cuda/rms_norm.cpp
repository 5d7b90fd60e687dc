// The cuda backend's slots of RMSNorm and residual-add RMSNorm: problem -> plan -> launch.
#include "cuda/rms_norm.h"

#include <cstring>

#include "core/slot.h"
#include "cuda/backend.h"
#if BRIM_WITH_CUDA
#include "cuda/runtime.h"
#endif

namespace brim::cuda {
namespace {

template <bool kAdd, bool kBackward>
constexpr const char* kOp = kAdd ? (kBackward ? "add_rms_norm_backward" : "add_rms_norm_forward")
                                 : (kBackward ? "rms_norm_backward" : "rms_norm_forward");

Status choose(const char* op, const brim_rms_norm_args& args, const ops::RmsNormProblem& p,
              const core::DeviceProps& device, NormPlan* plan) {
  const char* const path = args.run.path;
  if (!path) {
    *plan = plan_rms_norm(p, device, nullptr);
    return core::success();
  }
  for (NormForm form : {NormForm::bulk, NormForm::rows, NormForm::loop}) {
    if (std::strcmp(path, norm_form_name(form)) != 0) continue;
    *plan = plan_rms_norm(p, device, &form);
    if (plan->variant.form == form) return core::success();
    return core::failure(
        BRIM_NOT_AVAILABLE,
        "%s: path '%s' does not serve rows of %lld elements with these strides on this GPU; path 'loop' does",
        op, path, static_cast<long long>(p.hidden));
  }
  return core::failure(BRIM_NOT_AVAILABLE, "%s: the cuda backend has no path '%s'; it has: bulk, rows, loop",
                       op, path);
}

#if !BRIM_WITH_CUDA
Status device_props(const char* op, int, const core::DeviceProps**) {
  return core::failure(BRIM_NOT_AVAILABLE, "%s: this build of brim has no CUDA backend", op);
}
#endif

template <bool kAdd, bool kBackward>
Status plan_of(const brim_rms_norm_args& args, const core::DeviceProps* device, ops::RmsNormProblem* p,
               NormPlan* plan) {
  const char* op = kOp<kAdd, kBackward>;
  if (!device) BRIM_TRY(device_props(op, ops::lead_tensor(args).device_index, &device));
  *p = ops::make_rms_norm_problem(args, kAdd, kBackward);
  return choose(op, args, *p, *device, plan);
}

template <bool kAdd, bool kBackward>
Status run(const brim_rms_norm_args& args) {
  ops::RmsNormProblem p;
  NormPlan plan;
  BRIM_TRY((plan_of<kAdd, kBackward>(args, nullptr, &p, &plan)));
#if BRIM_WITH_CUDA
  const char* op = kOp<kAdd, kBackward>;
  const auto needed = static_cast<uint64_t>(norm_workspace_bytes(plan, p));
  if (needed > 0 && (!args.workspace || args.workspace_bytes < needed))
    return core::failure(BRIM_INVALID_ARGUMENT, "%s: workspace has %llu bytes, needed are %llu", op,
                         static_cast<unsigned long long>(args.workspace ? args.workspace_bytes : 0),
                         static_cast<unsigned long long>(needed));
  if (needed > 0 && reinterpret_cast<uintptr_t>(args.workspace) % 16 != 0)
    return core::failure(BRIM_INVALID_ARGUMENT, "%s: workspace is not aligned to 16 bytes", op);
  return launch_rms_norm(op, args, p, plan);
#else
  return core::success();
#endif
}

template <bool kAdd, bool kBackward>
Status describe(const brim_rms_norm_args& args, const core::DeviceProps* device, char* text, size_t size) {
  ops::RmsNormProblem p;
  NormPlan plan;
  BRIM_TRY((plan_of<kAdd, kBackward>(args, device, &p, &plan)));
  print(plan, text, size);
  return core::success();
}

template <bool kAdd>
Status workspace(const void* args, size_t* bytes) {
  ops::RmsNormProblem p;
  NormPlan plan;
  BRIM_TRY((plan_of<kAdd, true>(*static_cast<const brim_rms_norm_args*>(args), nullptr, &p, &plan)));
  *bytes = static_cast<size_t>(norm_workspace_bytes(plan, p));
  return core::success();
}

constexpr const char* kForms[] = {"bulk", "rows", "loop", nullptr};

template <bool kAdd, bool kBackward>
constexpr core::Slot slot() {
  core::Slot s = core::slot<brim_rms_norm_args, run<kAdd, kBackward>, describe<kAdd, kBackward>>();
  if (kBackward) s.workspace = workspace<kAdd>;
  s.forms = kForms;
  return s;
}

}  // namespace

constinit const core::Slot rms_norm_forward = slot<false, false>();
constinit const core::Slot rms_norm_backward = slot<false, true>();
constinit const core::Slot add_rms_norm_forward = slot<true, false>();
constinit const core::Slot add_rms_norm_backward = slot<true, true>();

}  // namespace brim::cuda

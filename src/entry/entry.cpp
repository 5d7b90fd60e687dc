// The only joint: struct size -> backend -> validate -> slot. Grown from the list; no op is named here.
#include "entry/entry.h"

#include <array>
#include <cstring>
#include <exception>

#include "brim/brim.h"
#include "core/parallel.h"
#include "core/slot.h"
#include "cpu/backend.h"
#include "cuda/backend.h"
#include "ops/all.h"
#include "reference/backend.h"

namespace brim::entry {
namespace {

using core::failure;
using core::Slot;
using core::success;

constexpr const char* kNames[] = {
#define BRIM_OP(family, mode, args) #family "_" #mode,
#include "brim/ops.inc"
#undef BRIM_OP
};
constexpr const char* kFamilies[] = {
#define BRIM_OP(family, mode, args) #family,
#include "brim/ops.inc"
#undef BRIM_OP
};
constexpr const char* kModes[] = {
#define BRIM_OP(family, mode, args) #mode,
#include "brim/ops.inc"
#undef BRIM_OP
};

using Table = std::array<const Slot*, BRIM_OP_COUNT>;

constexpr Table kCpu = [] {
  Table t{};
#define BRIM_SLOT(family, mode) t[BRIM_OP_##family##_##mode] = &cpu::family##_##mode;
#include "cpu/slots.inc"
#undef BRIM_SLOT
  return t;
}();
constexpr Table kCuda = [] {
  Table t{};
#define BRIM_SLOT(family, mode) t[BRIM_OP_##family##_##mode] = &cuda::family##_##mode;
#include "cuda/slots.inc"
#undef BRIM_SLOT
  return t;
}();
constexpr Table kReference = [] {
  Table t{};
#define BRIM_SLOT(family, mode) t[BRIM_OP_##family##_##mode] = &reference::family##_##mode;
#include "reference/slots.inc"
#undef BRIM_SLOT
  return t;
}();

const Slot* find_slot(brim_backend backend, brim_op op) {
  switch (backend) {
    case BRIM_BACKEND_CPU: return kCpu[op];
    case BRIM_BACKEND_CUDA: return kCuda[op];
    default: return kReference[op];
  }
}

// Calls use(args) on the full-size args behind `raw`: an older caller's lack the last fields, which are zero then.
template <class Args, class Use>
Status with_full_size(const char* name, const void* raw, Use&& use) {
  if (!raw) return failure(BRIM_INVALID_ARGUMENT, "%s: args is null", name);
  uint64_t size;
  std::memcpy(&size, raw, sizeof size);
  if (size < sizeof size || size > sizeof(Args))
    return failure(
        BRIM_INVALID_ARGUMENT,
        "%s: struct_size is %llu, this library knows up to %zu bytes: set it to sizeof the args struct%s",
        name, static_cast<unsigned long long>(size), sizeof(Args),
        size > sizeof(Args) ? ", or update brim (the caller is newer)" : "");
  if (size == sizeof(Args)) return use(*static_cast<const Args*>(raw));
  Args full;
  std::memset(&full, 0, sizeof full);
  std::memcpy(&full, raw, size);
  full.struct_size = sizeof full;
  return use(full);
}

// Calls use(slot, args) on the full-size, validated args of `op`.
template <class Args, Status (*Validate)(const Args&, brim_backend), class Use>
Status with_args(brim_op op, const void* raw, Use&& use) {
  return with_full_size<Args>(kNames[op], raw, [&](const Args& args) -> Status {
    brim_backend backend = args.run.backend;
    if (backend == BRIM_BACKEND_AUTO)
      backend = ops::lead_tensor(args).device == BRIM_CUDA ? BRIM_BACKEND_CUDA : BRIM_BACKEND_CPU;
    if (backend < BRIM_BACKEND_CPU || backend > BRIM_BACKEND_REFERENCE)
      return failure(BRIM_INVALID_ARGUMENT, "%s: backend is %d, expected 0 (auto) to %d", kNames[op], backend,
                     BRIM_BACKEND_REFERENCE);
    BRIM_TRY(Validate(args, backend));
    const Slot* slot = find_slot(backend, op);
    if (!slot)
      return failure(BRIM_NOT_AVAILABLE, "%s: not implemented on %s", kNames[op], backend_name(backend));
    return use(*slot, static_cast<const void*>(&args));
  });
}

// Exceptions (host memory is all that can run out) stop here.
template <class Body>
Status no_throw(const char* name, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& e) {
    return failure(BRIM_INTERNAL_ERROR, "%s: %s", name, e.what());
  } catch (...) { return failure(BRIM_INTERNAL_ERROR, "%s: unknown exception", name); }
}

// with_args for an op known by number.
template <class Use>
Status with_op(brim_op op, const void* args, Use&& use) noexcept {
  switch (op) {
#define BRIM_OP(family, mode, Args) \
  case BRIM_OP_##family##_##mode:   \
    return no_throw(kNames[op],     \
                    [&] { return with_args<Args, ops::validate_##family##_##mode>(op, args, use); });
#include "brim/ops.inc"
#undef BRIM_OP
    default:
      return failure(BRIM_INVALID_ARGUMENT, "brim: there is no op %d, expected 0 to %d", op,
                     BRIM_OP_COUNT - 1);
  }
}

Status describe(brim_op op, const void* args, const core::DeviceProps* device, char* text, size_t size) {
  if (!text || size == 0)
    return failure(BRIM_INVALID_ARGUMENT, "brim_describe_plan: text is null or size is 0");
  text[0] = '\0';
  return with_op(op, args,
                 [&](const Slot& slot, const void* a) { return slot.describe(a, device, text, size); });
}

}  // namespace

Status describe_plan_on(brim_op op, const void* args, const core::DeviceProps& device, char* text,
                        size_t size) {
  return describe(op, args, &device, text, size);
}

Status prepare(brim_op op, const void* args, Prepared* call) {
  *call = {op, nullptr, 0};
  return with_op(op, args, [&](const Slot& slot, const void* a) {
    call->slot = &slot;
    return slot.workspace ? slot.workspace(a, &call->workspace_bytes) : success();
  });
}

Status run(const Prepared& call, const void* args) {
  return no_throw(kNames[call.op], [&] { return call.slot->run(args); });
}

const char* op_name(brim_op op) { return kNames[op]; }
const char* op_family(brim_op op) { return kFamilies[op]; }
const char* op_mode(brim_op op) { return kModes[op]; }

const char* const* op_forms(brim_backend backend, brim_op op) {
  const Slot* const slot = find_slot(backend, op);
  return slot ? slot->forms : nullptr;
}

const char* backend_name(brim_backend backend) {
  switch (backend) {
    case BRIM_BACKEND_CPU: return "cpu";
    case BRIM_BACKEND_CUDA: return "cuda";
    case BRIM_BACKEND_REFERENCE: return "reference";
    default: return "auto";
  }
}

}  // namespace brim::entry

using brim::core::failure;
using brim::core::success;

extern "C" {

#define BRIM_OP(family, mode, Args)                                                                 \
  brim_status brim_##family##_##mode(const Args* args) {                                            \
    return brim::entry::with_op(BRIM_OP_##family##_##mode, args,                                    \
                                [](const brim::core::Slot& s, const void* a) { return s.run(a); }); \
  }
#include "brim/ops.inc"
#undef BRIM_OP

brim_status brim_describe_plan(brim_op op, const void* args, char* text, size_t size) {
  return brim::entry::describe(op, args, nullptr, text, size);
}

brim_status brim_workspace_size(brim_op op, const void* args, size_t* bytes) {
  if (!bytes) return failure(BRIM_INVALID_ARGUMENT, "brim_workspace_size: bytes is null");
  brim::entry::Prepared call;
  const brim_status status = brim::entry::prepare(op, args, &call);
  *bytes = call.workspace_bytes;
  return status;
}

brim_status brim_backend_status(brim_backend backend) {
  switch (backend) {
    case BRIM_BACKEND_AUTO:
    case BRIM_BACKEND_CPU:
    case BRIM_BACKEND_REFERENCE: return success();
    case BRIM_BACKEND_CUDA: return brim::cuda::backend_status();
    default: return failure(BRIM_INVALID_ARGUMENT, "brim: there is no backend %d", backend);
  }
}

brim_status brim_rope_tables(const brim_rope_tables_args* args) {
  return brim::entry::no_throw("rope_tables", [&] {
    return brim::entry::with_full_size<brim_rope_tables_args>("rope_tables", args, brim::ops::rope_tables);
  });
}

const char* brim_version(void) { return BRIM_VERSION; }

void brim_set_parallel_for(brim_parallel_for parallel_for) { brim::core::set_parallel_for(parallel_for); }

}  // extern "C"

// Inside the library: describing a plan for a device that is not here (`brim plan`), and calls whose workspace is made
// on the way.
#pragma once

#include <cstddef>

#include "brim/brim.h"
#include "core/device_props.h"
#include "core/slot.h"

namespace brim::entry {

// As brim_describe_plan, for the cuda backend on `device`, with or without CUDA in this build.
Status describe_plan_on(brim_op op, const void* args, const core::DeviceProps& device, char* text,
                        size_t size);

// A call in two steps with one validation: its workspace is found in between.
struct Prepared {
  brim_op op;
  const core::Slot* slot;
  size_t workspace_bytes;
};
// `args` have the size that this library knows. What run() is given differs from them in the workspace only.
Status prepare(brim_op op, const void* args, Prepared* call);
Status run(const Prepared& call, const void* args);

const char* op_name(brim_op op);                 // "rope_forward"
const char* op_family(brim_op op);               // "rope"
const char* op_mode(brim_op op);                 // "forward"
const char* backend_name(brim_backend backend);  // "cpu"

// Slot::forms of an entry; null where there are none.
const char* const* op_forms(brim_backend backend, brim_op op);

}  // namespace brim::entry

// Inside the library: describing a plan for a device that is not here (`brim plan`).
#pragma once

#include <cstddef>

#include "brim/brim.h"
#include "core/device_props.h"

namespace brim::entry {

// As brim_describe_plan, for the cuda backend on `device`, with or without CUDA in this build.
Status describe_plan_on(brim_op op, const void* args, const core::DeviceProps& device, char* text,
                        size_t size);

const char* op_name(brim_op op);                 // "rope_forward"
const char* op_family(brim_op op);               // "rope"
const char* op_mode(brim_op op);                 // "forward"
const char* backend_name(brim_backend backend);  // "cpu"

// Slot::forms of an entry; null where there are none.
const char* const* op_forms(brim_backend backend, brim_op op);

}  // namespace brim::entry

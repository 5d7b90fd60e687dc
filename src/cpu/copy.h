// Plain copies with every thread: what a memory-bound op is measured against.
#pragma once

#include <cstddef>
#include <vector>

#include "core/copy_pattern.h"
#include "core/status.h"

namespace brim::cpu {

// The names of the forms that a pattern has: through the caches, or stored past them.
std::vector<const char*> copy_forms(core::CopyPattern pattern);
// Form `form` of copy_forms(pattern). The memory is aligned to 64 bytes (else BRIM_INVALID_ARGUMENT).
Status run_copy(core::CopyPattern pattern, size_t form, const core::CopyMemory& memory);

// How much is read, as pattern `read`, to replace what the caches hold. Reading leaves no dirty lines whose
// writing back would fall into what is timed next.
size_t flush_bytes();

}  // namespace brim::cpu

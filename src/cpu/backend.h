// The CPU backend: one body per op, compiled once per instruction set and picked at run time; threads from
// core/parallel.h.
#pragma once

#include "core/slot.h"

namespace brim::cpu {
#define BRIM_SLOT(family, mode) extern const core::Slot family##_##mode;
#include "cpu/slots.inc"
#undef BRIM_SLOT
}  // namespace brim::cpu

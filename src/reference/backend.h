// The reference backend: naive strided loops in double, the oracle of all others.
#pragma once

#include "core/slot.h"

namespace brim::reference {
#define BRIM_SLOT(family, mode) extern const core::Slot family##_##mode;
#include "reference/slots.inc"
#undef BRIM_SLOT
}  // namespace brim::reference

// The C entries by number.
#pragma once

#include "brim/brim.h"

namespace brim::harness {

Status call(brim_op op, const void* args);

}  // namespace brim::harness

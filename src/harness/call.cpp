#include "harness/call.h"

namespace brim::harness {

Status call(brim_op op, const void* args) {
  using Entry = Status (*)(const void*);
  constexpr Entry kEntries[] = {
#define BRIM_OP(family, mode, Args) \
  [](const void* a) { return brim_##family##_##mode(static_cast<const Args*>(a)); },
#include "brim/ops.inc"
#undef BRIM_OP
  };
  return kEntries[op](args);
}

}  // namespace brim::harness

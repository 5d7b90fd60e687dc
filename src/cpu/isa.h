// Which instruction sets this build has bodies for and this CPU can run. An op compiles its body
// (<op>_isa.cpp) once for each of isas.inc and keeps a table of functions in that order; paths are chosen by
// the names here.
#pragma once

#include "core/status.h"

namespace brim::cpu {

enum class Isa : int {
#define BRIM_ISA(id, name) id,
#include "cpu/isas.inc"
#undef BRIM_ISA
};

inline constexpr const char* kIsaNames[] = {
#define BRIM_ISA(id, name) name,
#include "cpu/isas.inc"
#undef BRIM_ISA
};
inline constexpr int kIsaCount = sizeof kIsaNames / sizeof kIsaNames[0];

constexpr const char* isa_name(Isa isa) { return kIsaNames[static_cast<int>(isa)]; }

// Whether this CPU and operating system run `isa`'s instructions.
bool isa_present(Isa isa);

// The instruction set called `path`, or the widest present one when path is null. BRIM_NOT_AVAILABLE, naming
// those present, when it is unknown or absent.
Status choose_isa(const char* op, const char* path, Isa* isa);

}  // namespace brim::cpu

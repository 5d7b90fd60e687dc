// The bodies of the plain copies, on whole 64-byte lines (copy.h has what is called).
#pragma once

#include <cstdint>

namespace brim::cpu {

#define BRIM_ISA(id, name)                                                                               \
  namespace id {                                                                                         \
  void copy_lines(uint64_t* to, const uint64_t* from, int64_t lines);                                    \
  void flip_lines(uint64_t* data, int64_t lines, bool stream);                                           \
  void xor_lines(uint64_t* to, const uint64_t* from, const uint64_t* other, int64_t lines, bool stream); \
  }
#include "cpu/isas.inc"
#undef BRIM_ISA

}  // namespace brim::cpu

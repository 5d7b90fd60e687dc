// Plain copies with every thread: what a memory-bound op is measured against.
#pragma once

#include <cstddef>
#include <cstdint>

namespace brim::cpu {

// memcpy in one piece a thread.
void copy(void* to, const void* from, size_t bytes);
// With the widest vectors, stored past the caches. `to` and `from` are aligned to 64 bytes.
void stream_copy(void* to, const void* from, size_t bytes);
// Reads and writes back the same memory, aligned to 64 bytes; stored through the caches, or past them.
void rewrite(void* data, size_t bytes);
void stream_rewrite(void* data, size_t bytes);

// The bodies, on whole 64-byte lines. `zero` is 0: the compiler does not know, and so writes what it has
// read.
#define BRIM_ISA(id, name)                                                       \
  namespace id {                                                                 \
  void stream_copy_lines(uint64_t* to, const uint64_t* from, int64_t lines);     \
  void rewrite_lines(uint64_t* data, int64_t lines, uint64_t zero, bool stream); \
  }
#include "cpu/isas.inc"
#undef BRIM_ISA

}  // namespace brim::cpu

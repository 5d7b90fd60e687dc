// Plain copies, which memory-bound ops are measured against: what all backends' forms of them do.
#pragma once

#include <cstddef>
#include <cstring>

namespace brim::core {

enum class CopyPattern {
  copy,                 // to = from
  in_place,             // to = ~to: as cheap as a change can be, and none that a compiler can drop
  two_reads_one_write,  // to = from ^ other
  read,                 // from is read; `to` has room for 16 bytes, which may be written or not
};

inline constexpr const char* kCopyPatternNames[] = {"copy", "in_place", "two_reads_one_write", "read"};

inline bool parse_copy_pattern(const char* name, CopyPattern* pattern) {
  for (int i = 0; i < 4; ++i)
    if (std::strcmp(name, kCopyPatternNames[i]) == 0) return *pattern = static_cast<CopyPattern>(i), true;
  return false;
}

struct CopyMemory {
  void* to = nullptr;
  const void* from = nullptr;   // not in place
  const void* other = nullptr;  // two_reads_one_write only
  size_t bytes = 0;             // of each
};

}  // namespace brim::core

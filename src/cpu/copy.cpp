#include "cpu/copy.h"

#include <cstdint>
#include <cstring>

#include "core/parallel.h"
#include "cpu/cache.h"
#include "cpu/copy_lines.h"
#include "cpu/isa.h"

namespace brim::cpu {
namespace {

using core::CopyMemory;
using core::CopyPattern;

struct Bodies {
  void (*copy_lines)(uint64_t*, const uint64_t*, int64_t);
  void (*flip_lines)(uint64_t*, int64_t, bool);
  void (*xor_lines)(uint64_t*, const uint64_t*, const uint64_t*, int64_t, bool);
};
constexpr Bodies kBodies[] = {
#define BRIM_ISA(id, name) {id::copy_lines, id::flip_lines, id::xor_lines},
#include "cpu/isas.inc"
#undef BRIM_ISA
};

constexpr size_t kLine = 64;
constexpr int64_t kWords = kLine / sizeof(uint64_t);
constexpr int64_t kGrain = (64 << 10) / kLine;  // lines, as for ops

// memcpy in one piece a thread.
void copy_pieces(const CopyMemory& m) {
  core::parallel_for(static_cast<int64_t>(m.bytes), int64_t{kGrain} * kLine, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(m.to) + begin, static_cast<const char*>(m.from) + begin,
                static_cast<size_t>(end - begin));
  });
}

// A word of each line; the sums go where no compiler can drop them.
struct Sink {
  static inline volatile thread_local uint64_t sum = 0;
};
void read_lines(const CopyMemory& m) {
  const uint64_t* words = static_cast<const uint64_t*>(m.from);
  core::parallel_for(static_cast<int64_t>(m.bytes / kLine), kGrain, [&](int64_t begin, int64_t end) {
    uint64_t sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += words[i * kWords];
    Sink::sum = sum;
  });
}

void run_lines(CopyPattern pattern, const Bodies& bodies, bool stream, const CopyMemory& m) {
  uint64_t* to = static_cast<uint64_t*>(m.to);
  const uint64_t *from = static_cast<const uint64_t*>(m.from), *other = static_cast<const uint64_t*>(m.other);
  core::parallel_for(static_cast<int64_t>(m.bytes / kLine), kGrain, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * kWords, lines = end - begin;
    if (pattern == CopyPattern::copy)
      bodies.copy_lines(to + at, from + at, lines);
    else if (pattern == CopyPattern::in_place)
      bodies.flip_lines(to + at, lines, stream);
    else
      bodies.xor_lines(to + at, from + at, other + at, lines, stream);
  });
}

// What comes after the last whole line.
void run_tail(CopyPattern pattern, const CopyMemory& m) {
  char* to = static_cast<char*>(m.to);
  const char *from = static_cast<const char*>(m.from), *other = static_cast<const char*>(m.other);
  for (size_t i = m.bytes / kLine * kLine; i < m.bytes; ++i)
    to[i] = static_cast<char>(pattern == CopyPattern::copy       ? from[i]
                              : pattern == CopyPattern::in_place ? ~to[i]
                                                                 : from[i] ^ other[i]);
}

}  // namespace

std::vector<const char*> copy_forms(CopyPattern pattern) {
  switch (pattern) {
    case CopyPattern::copy: return {"memcpy", "stream"};
    case CopyPattern::read: return {"read"};
    default: return {"load-store", "load-stream"};
  }
}

Status run_copy(CopyPattern pattern, size_t form, const CopyMemory& memory) {
  if ((reinterpret_cast<uintptr_t>(memory.to) | reinterpret_cast<uintptr_t>(memory.from) |
       reinterpret_cast<uintptr_t>(memory.other)) %
      kLine)
    return core::failure(BRIM_INVALID_ARGUMENT, "copy: the memory is not aligned to %d bytes",
                         static_cast<int>(kLine));
  if (pattern == CopyPattern::read) {
    read_lines(memory);
  } else if (pattern == CopyPattern::copy && form == 0) {
    copy_pieces(memory);
  } else {
    Isa isa;
    BRIM_TRY(choose_isa("copy", nullptr, &isa));
    run_lines(pattern, kBodies[static_cast<int>(isa)], form == 1, memory);
    run_tail(pattern, memory);
  }
  return core::success();
}

size_t flush_bytes() { return 2 * static_cast<size_t>(last_level_cache_bytes()); }

}  // namespace brim::cpu

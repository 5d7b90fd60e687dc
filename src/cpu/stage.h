// Writing past the caches what does not come in whole cache lines: bodies write into a stage in L1, from
// which whole lines are streamed. A partial line written past the caches costs many times a whole one, and a
// line written through them is read first, which is half as much traffic again. For <op>_isa.cpp only.
#pragma once

#include "cpu/simd.h"

namespace brim::cpu {
namespace {

inline constexpr int64_t kLine = 64;

HWY_INLINE int64_t address(const void* p) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p)); }
HWY_INLINE int64_t place_in_line(int64_t byte) { return byte & (kLine - 1); }
HWY_INLINE int64_t line_begin(int64_t byte) { return byte & -kLine; }

// A piece of a run of memory, made at `from`, the same place in a line as `to`. Pieces that others follow are
// longer than a line.
struct Staged {
  const uint8_t* from;
  uint8_t* to;
  int64_t bytes;
  bool first;  // of its run; else the line that it begins in holds the end of the piece before it
  bool last;
};

// Streams the whole lines. The end of the last piece is stored as it is; that of another goes to the line that
// `next` begins in, where the piece after it will be made.
HWY_INLINE void stream_staged(const Staged& s, uint8_t* next) {
  const hn::ScalableTag<uint8_t> d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<uint8_t>()));
  int64_t at = -place_in_line(address(s.to));
  if (HWY_UNLIKELY(s.first && at < 0)) {
    const int64_t n = at + kLine < s.bytes ? at + kLine : s.bytes;
    memcpy(s.to, s.from, static_cast<size_t>(n));
    at += kLine;
  }
  for (; at + kLine <= s.bytes; at += kLine)
    for (int64_t i = 0; i < kLine; i += kLanes) hn::Stream(hn::Load(d, s.from + at + i), d, s.to + at + i);
  if (at >= s.bytes) return;
  if (s.last) {
    memcpy(s.to + at, s.from + at, static_cast<size_t>(s.bytes - at));
    return;
  }
  uint8_t* line = next - place_in_line(address(next));
  for (int64_t i = 0; i < kLine; i += kLanes) hn::Store(hn::Load(d, s.from + at + i), d, line + i);
}

}  // namespace
}  // namespace brim::cpu

// The bodies of copy_lines.h, compiled once per instruction set. simd.h says what this file must not use.
#include "cpu/copy_lines.h"

#include "cpu/simd.h"

namespace brim::cpu {
namespace {

constexpr int64_t kWords = 8;  // of a line

// to[i] = make(i) for vectors of words.
template <Store S, class Make>
HWY_INLINE void write_as(uint64_t* to, int64_t words, Make make) {
  const hn::ScalableTag<uint64_t> d;
  for (int64_t i = 0; i < words; i += static_cast<int64_t>(hn::Lanes(d))) put<S>(d, make(i), to + i);
  hwy::FlushStream();
}

template <class Make>
HWY_INLINE void write(uint64_t* to, int64_t lines, bool stream, Make make) {
  stream ? write_as<Store::stream>(to, lines * kWords, make)
         : write_as<Store::plain>(to, lines * kWords, make);
}

}  // namespace

namespace BRIM_THIS_ISA {

void copy_lines(uint64_t* to, const uint64_t* from, int64_t lines) {
  const hn::ScalableTag<uint64_t> d;
  write_as<Store::stream>(to, lines * kWords,
                          [=](int64_t i) BRIM_INLINE_LAMBDA { return hn::Load(d, from + i); });
}

void flip_lines(uint64_t* data, int64_t lines, bool stream) {
  const hn::ScalableTag<uint64_t> d;
  write(data, lines, stream, [=](int64_t i) BRIM_INLINE_LAMBDA { return hn::Not(hn::Load(d, data + i)); });
}

void xor_lines(uint64_t* to, const uint64_t* from, const uint64_t* other, int64_t lines, bool stream) {
  const hn::ScalableTag<uint64_t> d;
  write(to, lines, stream,
        [=](int64_t i) BRIM_INLINE_LAMBDA { return hn::Xor(hn::Load(d, from + i), hn::Load(d, other + i)); });
}

}  // namespace BRIM_THIS_ISA
}  // namespace brim::cpu

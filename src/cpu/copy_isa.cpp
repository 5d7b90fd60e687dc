// The bodies of copy.h, compiled once per instruction set. simd.h says what this file must not use.
#include "cpu/copy.h"

#include "cpu/simd.h"

namespace brim::cpu {
namespace {

constexpr int64_t kWords = 8;  // of a line

template <Store S>
void rewrite_as(uint64_t* data, int64_t words, uint64_t zero) {
  const hn::ScalableTag<uint64_t> d;
  const auto z = hn::Set(d, zero);
  for (int64_t i = 0; i < words; i += static_cast<int64_t>(hn::Lanes(d)))
    put<S>(d, hn::Or(hn::Load(d, data + i), z), data + i);
}

}  // namespace

namespace BRIM_THIS_ISA {

void stream_copy_lines(uint64_t* to, const uint64_t* from, int64_t lines) {
  const hn::ScalableTag<uint64_t> d;
  for (int64_t i = 0; i < lines * kWords; i += static_cast<int64_t>(hn::Lanes(d)))
    hn::Stream(hn::Load(d, from + i), d, to + i);
  hwy::FlushStream();
}

void rewrite_lines(uint64_t* data, int64_t lines, uint64_t zero, bool stream) {
  stream ? rewrite_as<Store::stream>(data, lines * kWords, zero)
         : rewrite_as<Store::plain>(data, lines * kWords, zero);
  hwy::FlushStream();
}

}  // namespace BRIM_THIS_ISA
}  // namespace brim::cpu

#include "cpu/copy.h"

#include <cstring>

#include "core/parallel.h"
#include "cpu/isa.h"

namespace brim::cpu {
namespace {

struct Bodies {
  void (*stream_copy_lines)(uint64_t*, const uint64_t*, int64_t);
  void (*rewrite_lines)(uint64_t*, int64_t, uint64_t, bool);
};
constexpr Bodies kBodies[] = {
#define BRIM_ISA(id, name) {id::stream_copy_lines, id::rewrite_lines},
#include "cpu/isas.inc"
#undef BRIM_ISA
};

constexpr size_t kLine = 64;
constexpr int64_t kGrain = (64 << 10) / kLine;  // lines, as for ops

volatile uint64_t zero = 0;

// body(bodies of the widest instruction set, begin, end) on the whole lines of `bytes`; tail(offset) on the
// rest.
template <class Body>
void for_lines(size_t bytes, Body&& body) {
  Isa isa;
  if (!ok(choose_isa("copy", nullptr, &isa))) return;
  core::parallel_for(static_cast<int64_t>(bytes / kLine), kGrain,
                     [&](int64_t begin, int64_t end) { body(kBodies[static_cast<int>(isa)], begin, end); });
}

void rewrite_all(void* data, size_t bytes, bool stream) {
  uint64_t* words = static_cast<uint64_t*>(data);
  for_lines(bytes, [&](const Bodies& b, int64_t begin, int64_t end) {
    b.rewrite_lines(words + begin * 8, end - begin, zero, stream);
  });
}

}  // namespace

void copy(void* to, const void* from, size_t bytes) {
  core::parallel_for(static_cast<int64_t>(bytes), int64_t{kGrain} * kLine, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, end - begin);
  });
}

void stream_copy(void* to, const void* from, size_t bytes) {
  for_lines(bytes, [&](const Bodies& b, int64_t begin, int64_t end) {
    b.stream_copy_lines(static_cast<uint64_t*>(to) + begin * 8,
                        static_cast<const uint64_t*>(from) + begin * 8, end - begin);
  });
  const size_t whole = bytes / kLine * kLine;
  std::memcpy(static_cast<char*>(to) + whole, static_cast<const char*>(from) + whole, bytes - whole);
}

void rewrite(void* data, size_t bytes) { rewrite_all(data, bytes, false); }
void stream_rewrite(void* data, size_t bytes) { rewrite_all(data, bytes, true); }

}  // namespace brim::cpu

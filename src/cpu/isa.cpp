#include "cpu/isa.h"

#include <cpuid.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace brim::cpu {
namespace {

constexpr unsigned bits(std::initializer_list<int> positions) {
  unsigned mask = 0;
  for (int p : positions) mask |= 1u << p;
  return mask;
}

bool has(unsigned word, unsigned wanted) { return (word & wanted) == wanted; }

// The x86-64 psABI levels that the bodies are compiled for: 2, 3 (avx2) and 4 (avx512). The operating system
// must save the wider registers too, which XCR0 tells.
int psabi_level() {
  unsigned a, b, c, d, one_c, seven_b = 0, extended_c = 0;
  if (!__get_cpuid(1, &a, &b, &one_c, &d)) return 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) seven_b = b;
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) extended_c = c;

  const unsigned v2 = bits({0, 9, 13, 19, 20, 23});              // sse3 ssse3 cx16 sse4.1 sse4.2 popcnt
  if (!has(one_c, v2) || !has(extended_c, bits({0}))) return 1;  // lahf
  const unsigned v3 = bits({12, 22, 27, 28, 29});                // fma movbe osxsave avx f16c
  if (!has(one_c, v3) || !has(seven_b, bits({3, 5, 8})) || !has(extended_c, bits({5})))
    return 2;  // bmi1 avx2 bmi2 lzcnt
  unsigned xcr0, high;
  __asm__("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
  if (!has(xcr0, bits({1, 2}))) return 2;                          // xmm, ymm
  const unsigned v4 = bits({16, 17, 28, 30, 31});                  // avx512 f dq cd bw vl
  if (!has(seven_b, v4) || !has(xcr0, bits({5, 6, 7}))) return 3;  // opmask, zmm
  return 4;
}

}  // namespace

bool isa_present(Isa isa) {
  static const int level = psabi_level();
  return level >= 2 + static_cast<int>(isa);
}

Status choose_isa(const char* op, const char* path, Isa* isa) {
  bool found = false;
  for (int i = 0; i < kIsaCount; ++i) {
    if (!isa_present(static_cast<Isa>(i)) || (path && std::strcmp(path, kIsaNames[i]) != 0)) continue;
    *isa = static_cast<Isa>(i);
    found = true;
  }
  if (found) return core::success();
  char names[96] = "none";
  int at = 0;
  for (int i = 0; i < kIsaCount; ++i)
    if (isa_present(static_cast<Isa>(i)))
      at += std::snprintf(names + at, sizeof names - at, at ? ", %s" : "%s", kIsaNames[i]);
  return core::failure(BRIM_NOT_AVAILABLE,
                       "%s: the cpu backend has no path '%s' on this machine; present: %s", op,
                       path ? path : "", names);
}

}  // namespace brim::cpu

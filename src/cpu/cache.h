// How much the last-level cache holds: beyond it, outputs are written past the caches.
#pragma once

#include <cstdint>

namespace brim::cpu {

// Bytes of all last-level caches that the CPUs of this process share; 32 MiB where the machine does not tell.
int64_t last_level_cache_bytes();

}  // namespace brim::cpu

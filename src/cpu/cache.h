// What bodies must know of this machine's caches.
#pragma once

#include <cstdint>

namespace brim::cpu {

// How much the last-level caches hold that the CPUs of this process share, at most 4 MiB a CPU; 32 MiB where
// the machine does not tell. Outputs beyond it are written past the caches.
int64_t last_level_cache_bytes();

// How far ahead of a stream's reading its memory is asked for.
int64_t fetch_ahead_bytes();

}  // namespace brim::cpu

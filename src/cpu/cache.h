// What bodies must know of this machine's caches.
#pragma once

#include <cstdint>

namespace brim::cpu {

// How much the last-level caches hold that the CPUs of this process share; 32 MiB where the machine does not
// tell.
int64_t last_level_cache_bytes();

// How much of it an op can count on: at most 4 MiB a CPU, because a virtual machine is told of the whole cache
// and shares it with others. Outputs beyond it are written past the caches.
int64_t cache_share_bytes();

// How far ahead of a stream's reading its memory is asked for.
int64_t fetch_ahead_bytes();

}  // namespace brim::cpu

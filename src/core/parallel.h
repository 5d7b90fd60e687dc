// Sharing CPU work out: OpenMP, or the pool that the host program has set with brim_set_parallel_for.
#pragma once

#include <cstdint>
#include <type_traits>

namespace brim::core {

using ParallelBody = void (*)(void* context, int64_t begin, int64_t end);
using ParallelFor = void (*)(int64_t count, int64_t grain, ParallelBody body, void* context);

void set_parallel_for(ParallelFor parallel_for);  // null: OpenMP again
void parallel_for(int64_t count, int64_t grain, ParallelBody body, void* context);

// Threads that a call of parallel_for can use here and now: OpenMP's, or with a pool of the host's, as many
// as there are CPUs. For cutting work up and for describing plans.
int64_t parallel_width();

// body(begin, end) over [0, count) in pieces of at least `grain`. The body must not throw.
template <class Body>
void parallel_for(int64_t count, int64_t grain, Body&& body) {
  using B = std::remove_reference_t<Body>;
  parallel_for(
      count, grain,
      [](void* context, int64_t begin, int64_t end) { (*static_cast<B*>(context))(begin, end); },
      const_cast<std::remove_const_t<B>*>(&body));
}

}  // namespace brim::core

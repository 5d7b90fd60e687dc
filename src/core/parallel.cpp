#include "core/parallel.h"

#include <atomic>
#include <thread>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace brim::core {
namespace {

int64_t openmp_width() {
#ifdef _OPENMP
  return omp_in_parallel() ? 1 : omp_get_max_threads();
#else
  return 1;
#endif
}

void openmp_for(int64_t count, int64_t grain, ParallelBody body, void* context) {
#ifdef _OPENMP
  const int64_t pieces = grain > 0 ? (count + grain - 1) / grain : count;
  const int64_t available = openmp_width();
  const int threads = static_cast<int>(pieces < available ? pieces : available);
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    {
      const int64_t n = omp_get_num_threads(), i = omp_get_thread_num();
      const int64_t base = count / n, extra = count % n;
      const int64_t begin = i * base + (i < extra ? i : extra);
      const int64_t end = begin + base + (i < extra);
      if (begin < end) body(context, begin, end);
    }
    return;
  }
#endif
  if (count > 0) body(context, 0, count);
}

std::atomic<ParallelFor> chosen{openmp_for};

}  // namespace

void set_parallel_for(ParallelFor parallel_for) { chosen.store(parallel_for ? parallel_for : openmp_for); }

void parallel_for(int64_t count, int64_t grain, ParallelBody body, void* context) {
  if (count > 0) chosen.load(std::memory_order_relaxed)(count, grain, body, context);
}

int64_t parallel_width() {
  if (chosen.load(std::memory_order_relaxed) == openmp_for) return openmp_width();
  static const unsigned cpus = std::thread::hardware_concurrency();  // reads a file: once
  return cpus > 0 ? cpus : 1;
}

}  // namespace brim::core

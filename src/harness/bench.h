// Timing: an op and the plain copies of the same bytes take turns in one run, so that a ratio between them
// means something.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/check.h"
#include "harness/statistics.h"

namespace brim::harness {

// One timed thing; times in microseconds.
struct BenchRow {
  brim_op op;
  std::string case_name = {};
  std::string provider = {};  // "brim" or "copy"
  std::string path = {};      // of brim, or which form of copy
  std::string device;
  brim_dtype dtype;
  ops::Fields shape;
  std::string layout = {};
  bool in_place = false;
  const char* clock = "host";
  Spread time{};
  size_t samples = 0;
  int64_t bytes = 0;       // read and written
  double wall_time = 0;    // median of the best copy
  int64_t peak_bytes = 0;  // beyond the inputs

  double max_ulp = 0, limit_ulp = 0;  // of the check before

  double gigabytes_per_second() const { return static_cast<double>(bytes) / time.median / 1e3; }
  double wall_fraction() const { return wall_time / time.median; }
};

struct BenchOptions {
  brim_backend backend = BRIM_BACKEND_CPU;
  const char* path = nullptr;  // null: the best one
  int rounds = 0;  // 0: 25, on a GPU 75 of calls that move less than 256 MiB (docs/performance.md)
  uint64_t seed = 1;
};

// The row of brim, then that of the best copy. std::runtime_error when the case is wrong, with what check
// says of it, or cannot be run.
std::vector<BenchRow> bench_case(const ops::Case& c, brim_op op, const Devices& devices,
                                 const BenchOptions& options,
                                 const std::function<void(int round, int rounds)>& progress);

}  // namespace brim::harness

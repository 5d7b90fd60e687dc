// Checking: each case on each backend and path, against the reference backend in float64.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "entry/paths.h"
#include "harness/case_memory.h"
#include "harness/device.h"
#include "ops/cases.h"

namespace brim::harness {

// The devices of this machine that checks and benchmarks run on.
struct Devices {
  std::unique_ptr<Device> cpu, cuda;
  std::string no_cuda;  // why `cuda` is null

  Device* of(brim_backend backend) const { return backend == BRIM_BACKEND_CUDA ? cuda.get() : cpu.get(); }
};
Devices make_devices();

enum class Outcome { ok, failed, skipped };

struct CheckResult {
  brim_op op;
  brim_backend backend;
  std::string path, case_name;
  brim_dtype dtype;
  ops::Fields shape;
  // Of the output that comes closest to its limit.
  double max_ulp = 0, limit_ulp = 0;
  Outcome outcome = Outcome::ok;
  std::string message = {};  // why it failed or was skipped
};

// One case, made once and run on any number of paths. The case must outlive it.
class Checker {
 public:
  Checker(const ops::Case& c, brim_op op, uint64_t seed);
  ~Checker();

  // The case's storages before a run.
  const Image& image();
  CheckResult run(const Devices& devices, brim_backend backend, const entry::Path& path);

 private:
  struct Part;  // a sample of the case with what it must give

  void prepare();
  void compare(Image& after, bool fused, CheckResult& result);
  void check_refused(const Status& status, const Image& after, CheckResult& result) const;

  const ops::Case& case_;
  const brim_op op_;
  const uint64_t seed_;
  CaseMemory memory_;
  Image before_;
  std::vector<Part> parts_;
};

struct CheckRequest {
  std::vector<brim_op> ops;
  std::vector<brim_backend> backends;
  std::vector<brim_dtype> dtypes = {};     // only cases of these types; empty: all
  bool large = false;                      // the cases beyond 2^31 elements, and only those
  const ops::ModelShape* model = nullptr;  // instead, the cases that are benched for this model
  uint64_t seed = 1;
};

// The cases that `request` selects of one op.
std::vector<ops::Case> select_cases(const CheckRequest& request, brim_op op);

// Runs the cases of `request` on every path of its backends; `report` hears of each result, `progress` of
// each case begun.
void check_all(const CheckRequest& request, const Devices& devices,
               const std::function<void(const CheckResult&)>& report,
               const std::function<void(size_t done, size_t total)>& progress);

}  // namespace brim::harness

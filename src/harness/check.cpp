#include "harness/check.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include "core/tensor.h"
#include "harness/call.h"
#include "harness/elements.h"
#include "harness/oracle.h"
#include "harness/ulp.h"

namespace brim::harness {
namespace {

// Distinct numbers for distinct cases, the same in every run (FNV-1a).
uint64_t mix(uint64_t seed, const std::string& name) {
  uint64_t hash = 14695981039346656037ull ^ seed;
  for (unsigned char c : name) hash = (hash ^ c) * 1099511628211ull;
  return hash;
}

std::string index_text(const TensorView& t, int64_t flat) {
  std::string text;
  for (int axis = t.rank; axis-- > 0; flat /= t.shape[axis])
    text = std::to_string(flat % t.shape[axis]) + (text.empty() ? "" : ",") + text;
  return "[" + text + "]";
}

double gib(size_t bytes) { return static_cast<double>(bytes) / (1ull << 30); }

// Why this machine cannot hold the case, or empty.
std::string memory_shortage(const Device& device, const Device& host, size_t bytes) {
  const bool same = device.type() == BRIM_CPU;
  const size_t host_needs =
      2 * bytes + (same ? bytes : 0);  // the images before and after, and the CPU's own copy
  if (!same && device.free_bytes() < bytes)
    return fmt::format("needs {:.1f} GiB on the device, {:.1f} are free", gib(bytes),
                       gib(device.free_bytes()));
  if (host.free_bytes() < host_needs)
    return fmt::format("needs {:.1f} GiB of host memory, {:.1f} are free", gib(host_needs),
                       gib(host.free_bytes()));
  return "";
}

bool has_float64(const ops::Case& c) {
  for (const ops::CaseTensor& t : c.tensors)
    if (t.dtype == BRIM_FLOAT64) return true;
  return false;
}

void fail(CheckResult& result, std::string message) {
  if (result.outcome == Outcome::failed) return;  // the first reason is the one to show
  result.outcome = Outcome::failed;
  result.message = std::move(message);
}

// The caller's flag for bad data, where the backend takes one.
class BadDataFlag {
 public:
  BadDataFlag(Device& device, brim_backend backend)
      : storage_(device, backend == BRIM_BACKEND_CUDA ? kOne : kNone) {
    Image zero;
    for (void* p : storage_.pointers()) zero.emplace_back(p ? sizeof(int32_t) : 0).fill(std::byte{0});
    storage_.upload(zero);
  }
  int32_t* pointer() const {
    return storage_.pointers().empty() ? nullptr : static_cast<int32_t*>(storage_.pointers()[0]);
  }
  bool raised() { return pointer() && storage_.download()[0].data()[0] != std::byte{0}; }

 private:
  inline static const std::vector<size_t> kNone, kOne{sizeof(int32_t)};
  DeviceStorages storage_;
};

}  // namespace

struct Checker::Part {
  ops::Sample sample;
  std::vector<ops::Expected> expected;
};

Checker::Checker(const ops::Case& c, brim_op op, uint64_t seed)
    : case_(c), op_(op), seed_(mix(seed, c.name)), memory_(c) {}
Checker::~Checker() = default;

void Checker::prepare() {
  if (!parts_.empty()) return;
  before_ = memory_.make_image(seed_);
  const std::vector<ops::Sample> whole(1);
  for (const ops::Sample& sample : case_.samples.empty() ? whole : case_.samples) {
    const std::vector<TensorView> views = narrow(memory_.views(before_), sample);
    ops::Values inputs(views.size());
    for (size_t i = 0; i < views.size(); ++i)
      if (views[i].dtype && case_.tensors[i].role != ops::Role::output) inputs[i] = read_elements(views[i]);
    const auto oracle = [&](const ops::Values& changed) { return run_oracle(case_, op_, views, changed); };
    parts_.push_back({sample, case_.expect(inputs, oracle)});
  }
}

const Image& Checker::image() {
  prepare();
  return before_;
}

void Checker::compare(Image& after, bool fused, CheckResult& result) {
  const std::vector<TensorView> whole = memory_.views(after);
  for (size_t t = 0; t < whole.size(); ++t)
    if (whole[t].dtype && case_.tensors[t].role == ops::Role::output)
      if (const int64_t n = count_poisoned(whole[t], kOutputPoison))
        fail(result, fmt::format("{} of the {} elements of {} were not written", n,
                                 core::element_count(whole[t]), case_.tensors[t].name));
  double worst = -1;  // of max_ulp / limit_ulp
  for (const Part& part : parts_) {
    const std::vector<TensorView> views = narrow(whole, part.sample);
    for (size_t t = 0; t < views.size(); ++t) {
      const ops::Expected& e = part.expected[t];
      if (case_.tensors[t].role == ops::Role::input || !views[t].dtype || e.value.empty()) continue;
      const std::string& name = case_.tensors[t].name;
      const std::vector<double> got = read_elements(views[t]);
      const double limit = case_.limit_ulp(t, fused);
      double max_ulp = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        const double error = ulp_error(views[t].dtype, got[i], e.value[i], e.magnitude[i]);
        max_ulp = std::max(max_ulp, error);
        if (!(error <= limit))
          fail(result,
               fmt::format("{}{} is {}, expected {}: {:.3g} ulp, the limit is {:.6g}", name,
                           index_text(views[t], static_cast<int64_t>(i)), got[i], e.value[i], error, limit));
        if (!fused || e.fused.empty()) continue;
        const bool same = got[i] == e.fused[i] || (std::isnan(got[i]) && std::isnan(e.fused[i]));
        if (!same)
          fail(result,
               fmt::format("{}{} is {}, a fused multiply-add in float32 gives {}: these bits are promised",
                           name, index_text(views[t], static_cast<int64_t>(i)), got[i], e.fused[i]));
      }
      if (max_ulp / limit > worst) {
        worst = max_ulp / limit;
        result.max_ulp = max_ulp;
        result.limit_ulp = limit;
      }
    }
  }
}

void Checker::check_refused(const Status& status, const Image& after, CheckResult& result) const {
  if (status.code != BRIM_OUT_OF_RANGE)
    fail(result, fmt::format("bad data was answered with code {} ({})", status.code, status.message));
  if (!CaseMemory::equal(after, before_)) fail(result, "something was written although the call was refused");
}

CheckResult Checker::run(const Devices& devices, brim_backend backend, const entry::Path& path) {
  CheckResult result{op_, backend, path.name, case_.name, case_.dtype, case_.shape};
  const auto skip = [&](std::string why) {
    result.outcome = Outcome::skipped;
    result.message = std::move(why);
    return result;
  };
  if (!devices.of(backend)) return skip(devices.no_cuda);
  Device& device = *devices.of(backend);
  try {
    if (backend == BRIM_BACKEND_CUDA && has_float64(case_)) return skip("float64 is for the CPU");
    if (std::string why = memory_shortage(device, *devices.cpu, memory_.bytes()); !why.empty())
      return skip(std::move(why));
    prepare();
    DeviceStorages storages(device, memory_.storage_bytes());
    storages.upload(before_);
    BadDataFlag flag(device, backend);
    const brim_run run{device.stream(), flag.pointer(), path.name, backend};
    const auto args = case_.bind(memory_.views(storages.pointers(), device.type(), device.index()), run);
    Workspace workspace(device, case_, op_, args.get(), Workspace::kLeastAlignment);
    const Status status = call(op_, args.get());
    device.synchronize();
    Image after = storages.download();
    if (status.code == BRIM_NOT_AVAILABLE) return skip(status.message);
    if (case_.bad_data && backend != BRIM_BACKEND_CUDA) {
      check_refused(status, after, result);
      return result;
    }
    if (!ok(status)) {
      fail(result, fmt::format("the call was refused: {}", status.message));
      return result;
    }
    compare(after, path.fused, result);
    if (std::string stray = memory_.stray_writes(before_, after); !stray.empty())
      fail(result, std::move(stray));
    if (std::string stray = workspace.stray_writes(); !stray.empty()) fail(result, std::move(stray));
    if (flag.pointer() && flag.raised() != case_.bad_data)
      fail(result, case_.bad_data ? "the flag for bad data was not set"
                                  : "the flag for bad data was set without cause");
  } catch (const std::exception& e) { fail(result, e.what()); }
  return result;
}

Devices make_devices() {
  Devices devices;
  devices.cpu = make_cpu_device();
  devices.cuda = make_cuda_device(0, &devices.no_cuda);
  return devices;
}

std::vector<ops::Case> select_cases(const CheckRequest& request, brim_op op) {
  const ops::CaseList& list = ops::case_list(op);
  if (request.model) {
    std::vector<ops::Case> cases;
    ops::BenchRequest bench;
    bench.model = request.model;
    const std::vector<brim_dtype> usual{BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16};
    for (brim_dtype dtype : request.dtypes.empty() ? usual : request.dtypes) {
      bench.dtype = dtype;
      for (ops::Case& c : list.bench(bench)) cases.push_back(std::move(c));
    }
    return cases;
  }
  std::vector<ops::Case> cases = request.large ? list.large() : list.check();
  const auto unwanted = [&](const ops::Case& c) {
    return std::find(request.dtypes.begin(), request.dtypes.end(), c.dtype) == request.dtypes.end();
  };
  if (!request.dtypes.empty()) std::erase_if(cases, unwanted);
  return cases;
}

void check_all(const CheckRequest& request, const Devices& devices,
               const std::function<void(const CheckResult&)>& report,
               const std::function<void(size_t, size_t)>& progress) {
  std::vector<std::vector<ops::Case>> cases;
  size_t total = 0, done = 0;
  for (brim_op op : request.ops) total += cases.emplace_back(select_cases(request, op)).size();
  for (size_t i = 0; i < request.ops.size(); ++i)
    for (const ops::Case& c : cases[i]) {
      progress(done++, total);
      Checker checker(c, request.ops[i], request.seed);
      for (brim_backend backend : request.backends)
        for (const entry::Path& path : entry::paths(backend, request.ops[i]))
          report(checker.run(devices, backend, path));
    }
  progress(total, total);
}

}  // namespace brim::harness

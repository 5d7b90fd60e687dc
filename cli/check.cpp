// brim check: every case of every op on every backend and path, against the reference in float64.
#include <map>

#include <fmt/format.h>

#include "command.h"
#include "core/tensor.h"
#include "entry/entry.h"
#include "harness/check.h"
#include "harness/models.h"
#include "harness/rows.h"
#include "options.h"
#include "terminal.h"

namespace brim::cli {
namespace {

using harness::CheckResult;
using harness::Outcome;

struct Options {
  OpChoice ops;
  brim_backend backend = BRIM_BACKEND_AUTO;
  harness::CheckRequest request;
  bool list = false;
  std::string model_name, json, csv;
};

void list_cases(const harness::CheckRequest& request) {
  for (brim_op op : request.ops)
    for (const ops::Case& c : harness::select_cases(request, op))
      fmt::print("{} {}\n", entry::op_name(op), c.name);
}

// One line for each op, backend and path; what failed, and why cases were skipped, one line each.
class Summary {
 public:
  void add(const CheckResult& r) {
    Line& line = lines_[{r.op, r.backend, r.path}];
    if (r.outcome == Outcome::skipped) {
      ++line.skipped;
      ++skips_[fmt::format("{} on {}: {}", entry::op_name(r.op), entry::backend_name(r.backend), r.message)];
      return;
    }
    ++line.checked;
    if (r.limit_ulp > 0 && !(r.max_ulp / r.limit_ulp <= line.worst / line.limit)) {
      line.worst = r.max_ulp;
      line.limit = r.limit_ulp;
    }
    if (r.outcome == Outcome::failed) {
      ++line.failed;
      failures_.push_back(fmt::format("{} {}/{} {}\n    {}", entry::op_name(r.op),
                                      entry::backend_name(r.backend), r.path, r.case_name, r.message));
    }
  }

  void print() const {
    constexpr size_t kShown = 20;
    Table table({"op", "backend", "path", "cases", "skipped", "failed", "worst ulp", "of", ""});
    for (const auto& [key, line] : lines_) {
      const auto& [op, backend, path] = key;
      table.add({entry::op_name(op), entry::backend_name(backend), path, fmt::format("{}", line.checked),
                 fmt::format("{}", line.skipped), fmt::format("{}", line.failed),
                 fmt::format("{:.4f}", line.worst), fmt::format("{:.4f}", line.limit),
                 line.failed    ? red("FAILED")
                 : line.checked ? green("ok")
                                : "-"});
    }
    table.print();
    for (size_t i = 0; i < failures_.size() && i < kShown; ++i)
      fmt::print("{} {}\n", red("FAILED"), failures_[i]);
    if (failures_.size() > kShown) fmt::print("... and {} more failures\n", failures_.size() - kShown);
    for (const auto& [reason, count] : skips_) fmt::print("skipped {}: {}\n", count, reason);
  }

  bool failed() const { return !failures_.empty(); }
  size_t checked() const {
    size_t sum = 0;
    for (const auto& [key, line] : lines_) sum += line.checked;
    return sum;
  }

 private:
  struct Line {
    size_t checked = 0, skipped = 0, failed = 0;
    double worst = 0, limit = 1;
  };
  std::map<std::tuple<brim_op, brim_backend, std::string>, Line> lines_;
  std::vector<std::string> failures_;
  std::map<std::string, size_t> skips_;
};

int run(Options& options) {
  harness::CheckRequest& request = options.request;
  request.ops = options.ops.chosen();
  ops::ModelShape model;
  if (!options.model_name.empty()) {
    model = harness::load_model(options.model_name);
    request.model = &model;
  }
  if (options.list) {
    list_cases(request);
    return 0;
  }
  const harness::Devices devices = harness::make_devices();
  if (options.backend != BRIM_BACKEND_AUTO) {
    if (const Status status = brim_backend_status(options.backend); !ok(status))
      throw std::runtime_error(status.message);
    request.backends = {options.backend};
  } else {
    request.backends = {BRIM_BACKEND_REFERENCE, BRIM_BACKEND_CPU, BRIM_BACKEND_CUDA};
    if (!devices.cuda) fmt::print("left out: {}\n", devices.no_cuda);
  }
  std::vector<CheckResult> results;
  Summary summary;
  Progress progress;
  harness::check_all(
      request, devices,
      [&](const CheckResult& result) {
        results.push_back(result);
        summary.add(result);
      },
      [&](size_t done, size_t total) { progress.show(fmt::format("checking case {} of {}", done, total)); });
  progress.clear();
  if (!options.json.empty()) harness::write_file(options.json, harness::check_json(results));
  if (!options.csv.empty()) harness::write_file(options.csv, harness::check_csv(results));
  if (options.json != "-" && options.csv != "-") summary.print();
  if (summary.checked() == 0 && !request.large) throw std::runtime_error("nothing was checked");
  return summary.failed();
}

}  // namespace

void add_check(CLI::App& app, Process& process) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("check", "compare every op with the reference in float64, in ulps");
  options->ops.add_to(*command);
  add_backend(*command, options->backend, {BRIM_BACKEND_CPU, BRIM_BACKEND_CUDA, BRIM_BACKEND_REFERENCE});
  add_dtypes(*command, options->request.dtypes);
  CLI::Option* const model = add_model(*command, options->model_name);
  command->add_flag("--large", options->request.large, "the cases beyond 2^31 elements instead (tens of GiB)")
      ->excludes(model);
  command->add_option("--seed", options->request.seed, "of the random data")->capture_default_str();
  command->add_flag("--list", options->list, "name the cases and run nothing");
  command->add_option("--json", options->json,
                      "write one object a case to this file (- for the standard output)");
  command->add_option("--csv", options->csv, "write one line a case to this file");
  command->callback([options, &process] { process.exit_code = run(*options); });
}

}  // namespace brim::cli

// brim bench: how long an op takes, beside a plain copy of the same bytes in the same run.
#include <fmt/format.h>

#include "command.h"
#include "core/tensor.h"
#include "entry/entry.h"
#include "harness/bench.h"
#include "harness/rows.h"
#include "options.h"
#include "terminal.h"

namespace brim::cli {
namespace {

using harness::BenchRow;

struct Options {
  OpChoice ops;
  ShapeChoice shapes;
  brim_backend backend = BRIM_BACKEND_AUTO;
  std::vector<brim_dtype> dtypes{BRIM_BFLOAT16};
  std::string path, json, csv;
  bool quick = false;
};

// How the op looks beside its wall, as a table of one line a case.
void print_rows(const std::vector<BenchRow>& rows) {
  Table table({"op", "shape", "dtype", "layout", "form", "path", "median us", "p20-p80", "GB/s", "of a copy",
               "copy", "max ulp"});
  for (size_t i = 0; i + 1 < rows.size(); i += 2) {
    const BenchRow &row = rows[i], &copy = rows[i + 1];
    const double fraction = row.wall_fraction();
    table.add({entry::op_name(row.op), shape_text(row.shape), core::dtype_name(row.dtype), row.layout,
               row.in_place ? "in place" : "out of place", row.path, fmt::format("{:.1f}", row.time.median),
               fmt::format("{:.1f}-{:.1f}", row.time.p20, row.time.p80),
               fmt::format("{:.1f}", row.gigabytes_per_second()), fmt::format("{:.2f}", fraction),
               fmt::format("{}, {:.1f} GB/s", copy.path, copy.gigabytes_per_second()),
               fmt::format("{:.2f} of {:.2f}", row.max_ulp, row.limit_ulp)});
  }
  table.print();
}

int run(Options& options, const Process& process) {
  const harness::Devices devices = harness::make_devices();
  harness::BenchOptions bench;
  bench.backend = options.backend != BRIM_BACKEND_AUTO ? options.backend
                  : devices.cuda                       ? BRIM_BACKEND_CUDA
                                                       : BRIM_BACKEND_CPU;
  if (!options.path.empty()) bench.path = options.path.c_str();
  if (options.quick) bench.rounds = 7;
  const harness::Device* device = devices.of(bench.backend);
  if (!device) throw std::runtime_error(devices.no_cuda);

  const auto cases =
      options.shapes.cases(options.ops.chosen(), options.dtypes, bench.backend == BRIM_BACKEND_CUDA);
  std::vector<BenchRow> rows;
  std::vector<std::string> failures;
  Progress progress;
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [op, c] = cases[i];
    const auto show = [&, op = op, &c = c](const std::string& what) {
      progress.show(
          fmt::format("{}/{} {} {}: {}", i + 1, cases.size(), entry::op_name(op), shape_text(c.shape), what));
    };
    try {
      show("checking");
      const auto measured = harness::bench_case(c, op, devices, bench, [&](int round, int rounds) {
        show(fmt::format("round {} of {}", round + 1, rounds));
      });
      rows.insert(rows.end(), measured.begin(), measured.end());
    } catch (const std::exception& e) {
      failures.push_back(fmt::format("{} {}: {}", entry::op_name(op), c.name, e.what()));
    }
  }
  progress.clear();

  const harness::Context context = harness::make_context(*device, process.argc, process.argv);
  if (!options.json.empty()) harness::write_file(options.json, harness::bench_json(context, rows));
  if (!options.csv.empty()) harness::write_file(options.csv, harness::bench_csv(rows));
  if (options.json != "-" && options.csv != "-") {
    fmt::print("{}\n", device->name());
    print_rows(rows);
    fmt::print(
        "{} of {} cases checked against the reference in float64, then timed beside the best plain copy of "
        "the "
        "same bytes.\n",
        cases.size() - failures.size(), cases.size());
  }
  for (const std::string& failure : failures) fmt::print(stderr, "{}\n", failure);
  return !failures.empty();
}

}  // namespace

void add_bench(CLI::App& app, Process& process) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "bench", "time ops beside a plain copy of the same bytes; wrong results are not timed");
  options->ops.add_to(*command);
  options->shapes.add_to(*command);
  add_backend(*command, options->backend, {BRIM_BACKEND_CPU, BRIM_BACKEND_CUDA, BRIM_BACKEND_REFERENCE});
  add_dtypes(*command, options->dtypes);
  command->add_option("--path", options->path, "this form instead of the best one (brim check lists them)");
  command->add_flag("--quick", options->quick, "7 rounds instead of 25 (75 of short calls on a GPU)");
  command->add_option("--json", options->json,
                      "write Google Benchmark's JSON to this file (- for the standard output)");
  command->add_option("--csv", options->csv, "write one line a row to this file");
  command->callback([options, &process] { process.exit_code = run(*options, process); });
}

}  // namespace brim::cli

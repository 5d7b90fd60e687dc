#include "harness/rows.h"

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/tensor.h"
#include "entry/entry.h"

namespace brim::harness {
namespace {

using nlohmann::ordered_json;

ordered_json shape_json(const ops::Fields& shape) {
  ordered_json object = ordered_json::object();
  for (const auto& [name, size] : shape) object[name] = size;
  return object;
}

ordered_json row_json(const BenchRow& row) {
  const std::string name = row_name(row);
  return {
      {"name", name},
      {"run_name", name},
      {"run_type", "iteration"},
      {"repetitions", 1},
      {"repetition_index", 0},
      {"threads", 1},
      {"iterations", row.samples},
      {"real_time", row.time.median},
      {"cpu_time", row.time.median},
      {"time_unit", "us"},
      {"op", entry::op_family(row.op)},
      {"mode", entry::op_mode(row.op)},
      {"provider", row.provider},
      {"path", row.path},
      {"device", row.device},
      {"dtype", core::dtype_name(row.dtype)},
      {"shape", shape_json(row.shape)},
      {"layout", row.layout},
      {"in_place", row.in_place},
      {"clock", row.clock},
      {"p20", row.time.p20},
      {"p80", row.time.p80},
      {"bytes", row.bytes},
      {"wall_time", row.wall_time},
      {"wall_fraction", row.wall_fraction()},
      {"peak_bytes", row.peak_bytes},
  };
}

// Quotes what a comma or a quote would break.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_line(std::initializer_list<std::string> fields) {
  std::string line;
  for (const std::string& field : fields) {
    if (&field != fields.begin()) line += ',';
    line += csv_field(field);
  }
  line += '\n';
  return line;
}

std::string shape_text(const ops::Fields& shape, const char* separator) {
  std::string text;
  for (const auto& [name, size] : shape)
    text += fmt::format("{}{}:{}", text.empty() ? "" : separator, name, size);
  return text;
}

}  // namespace

Context make_context(const Device& device, int argc, const char* const* argv) {
  Context context;
  context.device = device.name();
  context.versions = {{"brim", brim_version()}, {"compiler", __VERSION__}};
  for (const auto& fact : device.versions()) context.versions.push_back(fact);
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  context.date = date;
  for (int i = 0; i < argc; ++i) context.command += std::string(i ? " " : "") + argv[i];
  return context;
}

std::string check_json(const std::vector<CheckResult>& results) {
  ordered_json list = ordered_json::array();
  for (const CheckResult& r : results) {
    if (r.outcome == Outcome::skipped) continue;
    ordered_json row{
        {"op", entry::op_family(r.op)},
        {"mode", entry::op_mode(r.op)},
        {"case", r.case_name},
        {"backend", entry::backend_name(r.backend)},
        {"path", r.path},
        {"dtype", core::dtype_name(r.dtype)},
        {"shape", shape_json(r.shape)},
        {"max_ulp", r.max_ulp},
        {"limit_ulp", r.limit_ulp},
        {"ok", r.outcome == Outcome::ok},
    };
    if (!r.message.empty()) row["message"] = r.message;
    list.push_back(std::move(row));
  }
  return list.dump(1) + "\n";
}

std::string check_csv(const std::vector<CheckResult>& results) {
  std::string text = csv_line(
      {"op", "mode", "case", "backend", "path", "dtype", "shape", "max_ulp", "limit_ulp", "ok", "message"});
  for (const CheckResult& r : results)
    if (r.outcome != Outcome::skipped)
      text +=
          csv_line({entry::op_family(r.op), entry::op_mode(r.op), r.case_name, entry::backend_name(r.backend),
                    r.path, core::dtype_name(r.dtype), shape_text(r.shape, " "), fmt::format("{}", r.max_ulp),
                    fmt::format("{}", r.limit_ulp), r.outcome == Outcome::ok ? "true" : "false", r.message});
  return text;
}

std::string bench_json(const Context& context, const std::vector<BenchRow>& rows) {
  ordered_json versions = ordered_json::object();
  for (const auto& [name, version] : context.versions) versions[name] = version;
  ordered_json list = ordered_json::array();
  for (const BenchRow& row : rows) list.push_back(row_json(row));
  ordered_json file;
  file["context"]["device"] = context.device;
  file["context"]["versions"] = std::move(versions);
  file["context"]["date"] = context.date;
  file["context"]["command"] = context.command;
  file["benchmarks"] = std::move(list);
  return file.dump(1) + "\n";
}

std::string bench_csv(const std::vector<BenchRow>& rows) {
  std::string text =
      csv_line({"op", "mode", "provider", "path", "device", "dtype", "shape", "layout", "in_place", "clock",
                "median_us", "p20_us", "p80_us", "bytes", "gbps", "wall_us", "wall_fraction", "peak_bytes"});
  for (const BenchRow& r : rows)
    text += csv_line({entry::op_family(r.op), entry::op_mode(r.op), r.provider, r.path, r.device,
                      core::dtype_name(r.dtype), shape_text(r.shape, " "), r.layout,
                      r.in_place ? "true" : "false", r.clock, fmt::format("{:.3f}", r.time.median),
                      fmt::format("{:.3f}", r.time.p20), fmt::format("{:.3f}", r.time.p80),
                      std::to_string(r.bytes), fmt::format("{:.1f}", r.gigabytes_per_second()),
                      fmt::format("{:.3f}", r.wall_time), fmt::format("{:.4f}", r.wall_fraction()),
                      std::to_string(r.peak_bytes)});
  return text;
}

std::string row_name(const BenchRow& row) {
  return fmt::format("{}/{}/{}/{}/{}/{}/{}{}", entry::op_family(row.op), entry::op_mode(row.op), row.provider,
                     row.path, core::dtype_name(row.dtype), shape_text(row.shape, "/"), row.layout,
                     row.in_place ? "/in_place" : "");
}

void write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::cout << text << std::flush;
    return;
  }
  std::ofstream file(path, std::ios::binary);
  if (!(file << text) || !file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace brim::harness

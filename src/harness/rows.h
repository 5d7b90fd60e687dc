// Results as files: JSON with the fields that SPEC.md and docs name, and CSV with the same columns.
#pragma once

#include <string>
#include <vector>

#include "harness/bench.h"
#include "harness/check.h"

namespace brim::harness {

// Where and when: device, versions, date (ISO 8601, UTC) and the command line.
struct Context {
  std::string device;
  Device::Facts versions;
  std::string date, command;
};
Context make_context(const Device& device, int argc, const char* const* argv);

// One object a case that ran; those skipped are left out.
std::string check_json(const std::vector<CheckResult>& results);
std::string check_csv(const std::vector<CheckResult>& results);
// Google Benchmark's format with fields of our own.
std::string bench_json(const Context& context, const std::vector<BenchRow>& rows);
std::string bench_csv(const std::vector<BenchRow>& rows);

// Name of one row, e.g.
// "rope/forward/brim/avx2/bfloat16/tokens:8192/heads:32/kv_heads:8/head_dim:128/in_place".
std::string row_name(const BenchRow& row);

// `path` "-" is the standard output. std::runtime_error when it cannot be written.
void write_file(const std::string& path, const std::string& text);

}  // namespace brim::harness

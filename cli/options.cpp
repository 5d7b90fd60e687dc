#include "options.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/tensor.h"
#include "entry/entry.h"
#include "harness/models.h"

namespace brim::cli {
namespace {

constexpr brim_dtype kFloats[] = {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16, BRIM_FLOAT64};

// Distinct values of name(op) over the list.
std::vector<std::string> names_of(const char* (*name)(brim_op)) {
  std::vector<std::string> names;
  for (brim_op op = 0; op < BRIM_OP_COUNT; ++op)
    if (std::find(names.begin(), names.end(), name(op)) == names.end()) names.emplace_back(name(op));
  return names;
}

// A check in CLI11's form: empty when `value` is one of `known`, else the sentence to show.
auto one_of(const char* what, std::vector<std::string> known) {
  return [what, known = std::move(known)](const std::string& value) -> std::string {
    if (std::find(known.begin(), known.end(), value) != known.end()) return "";
    return fmt::format("unknown {} '{}'; known: {}", what, value, fmt::join(known, ", "));
  };
}

}  // namespace

void OpChoice::add_to(CLI::App& command) {
  const auto ops = names_of(entry::op_family), modes = names_of(entry::op_mode);
  command.add_option("--op", op_, fmt::format("only this op ({})", fmt::join(ops, ", ")))
      ->check(one_of("op", ops));
  command.add_option("--mode", mode_, fmt::format("only this mode ({})", fmt::join(modes, ", ")))
      ->check(one_of("mode", modes));
}

std::vector<brim_op> OpChoice::chosen() const {
  std::vector<brim_op> ops;
  for (brim_op op = 0; op < BRIM_OP_COUNT; ++op)
    if ((op_.empty() || op_ == entry::op_family(op)) && (mode_.empty() || mode_ == entry::op_mode(op)))
      ops.push_back(op);
  if (ops.empty()) throw std::runtime_error(fmt::format("op '{}' has no mode '{}'", op_, mode_));
  return ops;
}

void add_backend(CLI::App& command, brim_backend& backend, std::vector<brim_backend> known) {
  std::vector<std::string> names;
  for (brim_backend b : known) names.emplace_back(entry::backend_name(b));
  command
      .add_option_function<std::string>(
          "--backend",
          [&backend, known, names](const std::string& name) {
            backend = known[static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
          },
          fmt::format("{}", fmt::join(names, ", ")))
      ->check(one_of("backend", names));
}

void add_dtypes(CLI::App& command, std::vector<brim_dtype>& dtypes) {
  std::vector<std::string> names;
  for (brim_dtype d : kFloats) names.emplace_back(core::dtype_name(d));
  command
      .add_option_function<std::vector<std::string>>(
          "--dtype",
          [&dtypes](const std::vector<std::string>& chosen) {
            dtypes.clear();
            for (const std::string& name : chosen)
              for (brim_dtype d : kFloats)
                if (name == core::dtype_name(d)) dtypes.push_back(d);
          },
          fmt::format("one or more of {}", fmt::join(names, ", ")))
      ->check(one_of("dtype", names));
}

CLI::Option* add_model(CLI::App& command, std::string& name) {
  return command.add_option(
      "--model", name,
      fmt::format("shapes of a model: the path of a Hugging Face config.json, or one of {}",
                  fmt::join(harness::model_names(), ", ")));
}

void ShapeChoice::add_to(CLI::App& command) {
  add_model(command, model_name_);
  command.add_option("--tokens", tokens_, "tokens, one or more numbers")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  command.add_option("--layout", layouts_,
                     "how the tensors lie in memory, one or more; an unknown name lists those of the op");
}

std::vector<std::pair<brim_op, ops::Case>> ShapeChoice::cases(const std::vector<brim_op>& ops,
                                                              const std::vector<brim_dtype>& dtypes,
                                                              bool large) const {
  ops::ModelShape model;
  ops::BenchRequest request;
  if (!model_name_.empty()) {
    model = harness::load_model(model_name_);
    request.model = &model;
  }
  request.tokens = tokens_;
  request.layouts = layouts_;
  request.large = large;
  std::vector<std::pair<brim_op, ops::Case>> cases;
  for (brim_op op : ops)
    for (brim_dtype dtype : dtypes) {
      request.dtype = dtype;
      for (ops::Case& c : ops::case_list(op).bench(request)) cases.emplace_back(op, std::move(c));
    }
  return cases;
}

std::string shape_text(const ops::Fields& shape) {
  std::string text;
  for (const auto& [name, size] : shape) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, size);
  return text;
}

}  // namespace brim::cli

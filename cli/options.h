// Options that several subcommands share, and the names they take.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "brim/brim.h"
#include "ops/cases.h"

namespace brim::cli {

// Which entries of the list: --op, --mode.
class OpChoice {
 public:
  void add_to(CLI::App& command);
  std::vector<brim_op> chosen() const;  // all of them when nothing was asked for

 private:
  std::string op_, mode_;
};

// --backend; `known` are those that make sense for the command.
void add_backend(CLI::App& command, brim_backend& backend, std::vector<brim_backend> known);
// --dtype, one or more of the float types.
void add_dtypes(CLI::App& command, std::vector<brim_dtype>& dtypes);

// --model, a name or the path of a config.json.
CLI::Option* add_model(CLI::App& command, std::string& name);

// The shapes to bench or plan: --model, --tokens, --layout.
class ShapeChoice {
 public:
  void add_to(CLI::App& command);
  // The cases of `ops` in each of `dtypes`, of sizes for a GPU when `large`. std::runtime_error for an
  // unknown model, std::invalid_argument for a layout that an op does not know.
  std::vector<std::pair<brim_op, ops::Case>> cases(const std::vector<brim_op>& ops,
                                                   const std::vector<brim_dtype>& dtypes, bool large) const;

 private:
  std::string model_name_;
  std::vector<std::string> layouts_;
  std::vector<int64_t> tokens_;
};

std::string shape_text(const ops::Fields& shape);  // "tokens 8192, heads 32"

}  // namespace brim::cli

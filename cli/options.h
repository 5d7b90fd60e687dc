// Options that several subcommands share, and the names they take.
#pragma once

#include <string>
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
// --dtype, of the float types.
void add_dtype(CLI::App& command, brim_dtype& dtype);

// The shapes to bench or plan: --model, --tokens, --layout.
class ShapeChoice {
 public:
  void add_to(CLI::App& command);
  // std::runtime_error for an unknown model. The request points into this object.
  ops::BenchRequest request(brim_dtype dtype, bool large);

 private:
  std::string model_name_, layout_;
  std::vector<int64_t> tokens_;
  ops::ModelShape model_;
};

std::string shape_text(const ops::Fields& shape);  // "tokens 8192, heads 32"

}  // namespace brim::cli

// The subcommands. Each adds itself to the app, with a callback that sets what the process answers.
#pragma once

#include <CLI/CLI.hpp>

namespace brim::cli {

// What a subcommand needs of its process: the command line, to be written beside measured rows, and the exit
// code, 0 when all is well and 1 when something failed. (A wrong command line ends with CLI11's codes, from
// 100 on.)
struct Process {
  int argc;
  const char* const* argv;
  int exit_code = 0;
};

void add_info(CLI::App& app, Process& process);
void add_check(CLI::App& app, Process& process);
void add_bench(CLI::App& app, Process& process);
void add_plan(CLI::App& app, Process& process);

}  // namespace brim::cli

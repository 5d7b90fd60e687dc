// brim: the command. Everything it can do with an op it finds through the list of ops.
#include <exception>

#include <fmt/format.h>

#include "brim/brim.h"
#include "command.h"

int main(int argc, char** argv) {
  CLI::App app{"Memory-bound kernels of language-model training: what is here, is it right, how fast is it.",
               "brim"};
  app.set_version_flag("--version", std::string("brim ") + brim_version());
  app.require_subcommand(0, 1);
  brim::cli::Process process{argc, argv};
  try {
    brim::cli::add_info(app, process);
    brim::cli::add_check(app, process);
    brim::cli::add_bench(app, process);
    brim::cli::add_plan(app, process);
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) fmt::print("{}", app.help());
  } catch (const CLI::ParseError& e) { return app.exit(e); } catch (const std::exception& e) {
    fmt::print(stderr, "brim: {}\n", e.what());
    return 1;
  }
  return process.exit_code;
}

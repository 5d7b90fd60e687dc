// brim info: what this build has and what this machine can run.
#include <fmt/format.h>

#include "command.h"
#include "cpu/isa.h"
#include "entry/entry.h"
#include "harness/check.h"
#include "terminal.h"

namespace brim::cli {
namespace {

std::string gib(size_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1ull << 30)); }

std::string instruction_sets() {
  std::string text;
  for (int i = 0; i < cpu::kIsaCount; ++i) {
    const auto isa = static_cast<cpu::Isa>(i);
    text += fmt::format("{}{}{}", i ? ", " : "", cpu::isa_name(isa),
                        cpu::isa_present(isa) ? "" : " (not on this CPU)");
  }
  return text;
}

void add_device(Table& table, const std::string& name, const harness::Device& device) {
  std::string text = fmt::format("{}, {} free", device.name(), gib(device.free_bytes()));
  for (const auto& [fact, value] : device.properties()) text += fmt::format(", {} {}", fact, value);
  for (const auto& [fact, value] : device.versions()) text += fmt::format(", {} {}", fact, value);
  table.add({name, text});
}

void run() {
  Table table({"brim", brim_version()});
  table.add({"compiler", __VERSION__});
#ifdef BRIM_CUDA_BUILD
  table.add({"CUDA", BRIM_CUDA_BUILD});
#else
  table.add({"CUDA", "left out of this build (no nvcc of CUDA 12.8 or newer, or BRIM_CUDA=OFF)"});
#endif
  for (brim_backend backend : {BRIM_BACKEND_CPU, BRIM_BACKEND_CUDA, BRIM_BACKEND_REFERENCE}) {
    const Status status = brim_backend_status(backend);
    table.add({fmt::format("backend {}", entry::backend_name(backend)),
               ok(status) ? green("ready") : status.message});
  }
  table.add({"instruction sets", instruction_sets()});
  std::string ops;
  for (brim_op op = 0; op < BRIM_OP_COUNT; ++op)
    ops += fmt::format("{}{}", op ? ", " : "", entry::op_name(op));
  table.add({"ops", ops});
  add_device(table, "device cpu", *harness::make_cpu_device());
  std::string why;
  for (int i = 0; auto device = harness::make_cuda_device(i, &why); ++i)
    add_device(table, fmt::format("device cuda:{}", i), *device);
  table.print();
}

}  // namespace

void add_info(CLI::App& app, Process&) {
  app.add_subcommand("info", "version, backends, instruction sets and devices")->callback(run);
}

}  // namespace brim::cli

// brim plan: which form would run for a shape on a device, without that device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "command.h"
#include "core/device_props.h"
#include "core/tensor.h"
#include "entry/entry.h"
#include "harness/case_memory.h"
#include "options.h"
#include "terminal.h"

namespace brim::cli {
namespace {

struct Options {
  OpChoice ops;
  ShapeChoice shapes;
  std::vector<brim_dtype> dtypes{BRIM_BFLOAT16};
  std::string device;
};

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const core::DeviceProps& d : core::kKnownDevices) names.emplace_back(d.name);
  return names;
}

// Addresses that nothing stands at: a plan asks only how they are aligned and that outputs are apart.
std::vector<void*> made_up_storages(const harness::CaseMemory& memory) {
  std::vector<void*> storages;
  uintptr_t next = uintptr_t{1} << 40;
  for (size_t bytes : memory.storage_bytes()) {
    storages.push_back(reinterpret_cast<void*>(next));
    next += (bytes + 255) / 256 * 256;
  }
  return storages;
}

int run(Options& options) {
  std::vector<const core::DeviceProps*> devices;
  for (const core::DeviceProps& d : core::kKnownDevices)
    if (options.device.empty() || options.device == d.name) devices.push_back(&d);
  int exit_code = 0;
  Table table({"op", "shape", "dtype", "form", "device", "plan"});
  for (const auto& [op, c] : options.shapes.cases(options.ops.chosen(), options.dtypes, true)) {
    const harness::CaseMemory memory(c);
    brim_run run{};
    run.backend = BRIM_BACKEND_CUDA;
    const auto args = c.bind(memory.views(made_up_storages(memory), BRIM_CUDA, 0), run);
    for (const core::DeviceProps* device : devices) {
      char text[256];
      const Status status = entry::describe_plan_on(op, args.get(), *device, text, sizeof text);
      if (!ok(status)) exit_code = 1;
      table.add({entry::op_name(op), shape_text(c.shape), core::dtype_name(c.dtype),
                 c.in_place() ? "in place" : "out of place", device->name,
                 ok(status) ? std::string(text) : red(status.message)});
    }
  }
  table.print();
  return exit_code;
}

}  // namespace

void add_plan(CLI::App& app, Process& process) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("plan", "the launch that a shape gets on a GPU, without the GPU");
  options->ops.add_to(*command);
  options->shapes.add_to(*command);
  add_dtypes(*command, options->dtypes);
  command
      ->add_option("--device", options->device,
                   fmt::format("one of {}; all of them when not given", fmt::join(device_names(), ", ")))
      ->check([](const std::string& name) -> std::string {
        if (core::known_device(name.c_str())) return "";
        return fmt::format("unknown device '{}'; known: {}", name, fmt::join(device_names(), ", "));
      });
  command->callback([options, &process] { process.exit_code = run(*options); });
}

}  // namespace brim::cli

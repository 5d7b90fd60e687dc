#include "harness/bench.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/tensor.h"
#include "harness/call.h"

namespace brim::harness {
namespace {

// A contestant with its samples so far.
struct Lane {
  std::string name;
  std::unique_ptr<Timed> timed;
  std::vector<double> times = {};
};

// What the call needs beyond its inputs: outputs of its own and workspace.
int64_t peak_bytes(const ops::Case& c, size_t workspace) {
  int64_t bytes = static_cast<int64_t>(workspace);
  for (const ops::CaseTensor& t : c.tensors) {
    if (!t.dtype || t.role != ops::Role::output) continue;
    int64_t elements = 1;
    for (int64_t n : t.shape) elements *= n;
    bytes += elements * core::element_size(t.dtype);
  }
  return bytes;
}

std::string path_of(brim_op op, const void* args) {
  char text[256];
  if (const Status status = brim_describe_plan(op, args, text, sizeof text); !ok(status))
    throw std::runtime_error(status.message);
  const std::string plan = text;
  return plan.substr(0, plan.find(' '));
}

CheckResult check_first(Checker& checker, brim_op op, const Devices& devices, const BenchOptions& options,
                        const std::string& path) {
  for (const entry::Path& known : entry::paths(options.backend, op)) {
    if (path != known.name) continue;
    const CheckResult result = checker.run(devices, options.backend, known);
    if (result.outcome == Outcome::ok) return result;
    throw std::runtime_error((result.outcome == Outcome::failed ? "wrong: " : "not run: ") + result.message);
  }
  throw std::runtime_error("path '" + path + "' is not among those of the backend");
}

// `count` buffers of `size` bytes of what the op reads, over and over: memory moves constant data faster than real data.
Image repeated(const HostBuffer& data, size_t size, size_t count) {
  Image image;
  for (size_t i = 0; i < count; ++i) {
    HostBuffer& buffer = image.emplace_back(size);
    for (size_t at = 0; at < size; at += data.size())
      std::memcpy(buffer.data() + at, data.data(), std::min(data.size(), size - at));
  }
  return image;
}

// Buffers of a plain copy, and how often the bytes of one move.
struct CopyShape {
  size_t buffers, transfers;
};
CopyShape shape_of(core::CopyPattern pattern) {
  switch (pattern) {
    case core::CopyPattern::in_place: return {1, 2};
    case core::CopyPattern::two_reads_one_write: return {3, 3};
    default: return {2, 2};
  }
}

int rounds_of(const BenchOptions& options, int64_t bytes) {
  if (options.rounds > 0) return options.rounds;
  return options.backend == BRIM_BACKEND_CUDA && bytes < int64_t{256} << 20 ? 75 : 25;
}

}  // namespace

std::vector<BenchRow> bench_case(const ops::Case& c, brim_op op, const Devices& devices,
                                 const BenchOptions& options,
                                 const std::function<void(int round, int rounds)>& progress) {
  Device* const device = devices.of(options.backend);
  if (!device) throw std::runtime_error(devices.no_cuda);
  const CaseMemory memory(c);
  DeviceStorages storages(*device, memory.storage_bytes());
  const brim_run run{device->stream(), nullptr, options.path, options.backend};
  const auto args = c.bind(memory.views(storages.pointers(), device->type(), device->index()), run);
  const std::string path = path_of(op, args.get());
  const Workspace workspace(*device, c, op, args.get(), Workspace::kUsualAlignment);
  Checker checker(c, op, options.seed);
  const CheckResult checked = check_first(checker, op, devices, options, path);
  storages.upload(checker.image());

  const CopyShape shape = shape_of(c.wall);
  const size_t copied = static_cast<size_t>(c.bytes_read + c.bytes_written) / shape.transfers;  // of a buffer
  DeviceStorages copy_storages(*device, std::vector<size_t>(shape.buffers, copied));
  copy_storages.upload(repeated(checker.image().front(), copied, copy_storages.pointers().size()));
  const std::vector<void*>& copy = copy_storages.pointers();

  std::vector<Lane> lanes;
  lanes.push_back({path, device->timed([&] {
                     if (const Status status = call(op, args.get()); !ok(status))
                       throw std::runtime_error(status.message);
                   })});
  const core::CopyMemory copy_memory{copy.back(), shape.buffers > 1 ? copy[0] : nullptr,
                                     shape.buffers > 2 ? copy[1] : nullptr, copied};
  for (const Device::Copy& form : device->copies(c.wall, copy_memory))
    lanes.push_back({form.name, device->timed(form.launch)});
  const int rounds = rounds_of(options, c.bytes_read + c.bytes_written);
  for (int round = 0; round < rounds; ++round) {
    progress(round, rounds);
    for (size_t i = 0; i < lanes.size(); ++i) {  // in turns, another one first each round
      Lane& lane = lanes[(i + static_cast<size_t>(round)) % lanes.size()];
      lane.times.push_back(lane.timed->run());
    }
  }

  const auto best = std::min_element(lanes.begin() + 1, lanes.end(), [](const Lane& a, const Lane& b) {
    return spread(a.times).median < spread(b.times).median;
  });
  BenchRow row{.op = op, .case_name = c.name, .device = device->name(), .dtype = c.dtype, .shape = c.shape};
  row.layout = c.layout;
  row.in_place = c.in_place();
  row.clock = device->type() == BRIM_CUDA ? "graph" : "host";
  row.samples = static_cast<size_t>(rounds);
  row.bytes = c.bytes_read + c.bytes_written;
  row.wall_time = spread(best->times).median;
  BenchRow brim = row, wall = row;
  brim.provider = "brim";
  brim.path = path;
  brim.time = spread(lanes[0].times);
  brim.max_ulp = checked.max_ulp;
  brim.limit_ulp = checked.limit_ulp;
  brim.peak_bytes = peak_bytes(c, workspace.bytes());
  wall.provider = "copy";
  wall.path = best->name;
  wall.time = spread(best->times);
  wall.peak_bytes = shape.buffers > 1 ? static_cast<int64_t>(copied) : 0;
  return {brim, wall};
}

}  // namespace brim::harness

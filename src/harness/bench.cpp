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
int64_t peak_bytes(const ops::Case& c, brim_op op, const void* args) {
  size_t workspace = 0;
  brim_workspace_size(op, args, &workspace);
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

CheckResult check_first(Checker& checker, const Devices& devices, const BenchOptions& options,
                        const std::string& path) {
  for (const entry::Path& known : entry::paths(options.backend)) {
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
  Checker checker(c, op, options.seed);
  const CheckResult checked = check_first(checker, devices, options, path);
  storages.upload(checker.image());

  const bool in_place = c.in_place();
  // Bytes that a copy reads, and writes.
  const size_t copied = static_cast<size_t>(c.bytes_read + c.bytes_written) / 2;
  DeviceStorages copy_storages(*device,
                               in_place ? std::vector<size_t>{copied} : std::vector<size_t>{copied, copied});
  copy_storages.upload(repeated(checker.image().front(), copied, copy_storages.pointers().size()));
  const std::vector<void*>& copy = copy_storages.pointers();

  std::vector<Lane> lanes;
  lanes.push_back({path, device->timed([&] {
                     if (const Status status = call(op, args.get()); !ok(status))
                       throw std::runtime_error(status.message);
                   })});
  const core::CopyPattern pattern = in_place ? core::CopyPattern::in_place : core::CopyPattern::copy;
  const core::CopyMemory copy_memory{copy.back(), in_place ? nullptr : copy.front(), nullptr, copied};
  for (const Device::Copy& form : device->copies(pattern, copy_memory))
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
  row.in_place = in_place;
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
  brim.peak_bytes = peak_bytes(c, op, args.get());
  wall.provider = "copy";
  wall.path = best->name;
  wall.time = spread(best->times);
  wall.peak_bytes = in_place ? 0 : static_cast<int64_t>(copied);
  return {brim, wall};
}

}  // namespace brim::harness

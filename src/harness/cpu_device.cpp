#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "core/parallel.h"
#include "cpu/copy.h"
#include "harness/device.h"

namespace brim::harness {
namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    for (const char* key : {"model name", "Model", "cpu model", "uarch"})  // x86, aarch64 boards, mips, riscv
      if (line.rfind(key, 0) == 0)
        if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "CPU";
}

size_t available_bytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("MemAvailable:", 0) == 0) return std::strtoull(line.c_str() + 13, nullptr, 10) << 10;
  return 0;
}

void run(core::CopyPattern pattern, size_t form, const core::CopyMemory& memory) {
  if (const Status status = cpu::run_copy(pattern, form, memory); !ok(status))
    throw std::runtime_error(status.message);
}

// Read before every sample, each thread its share, so that the threads' own caches are replaced too.
class CacheFlusher {
 public:
  CacheFlusher() : bytes_(cpu::flush_bytes()), buffer_(bytes_ + kLine, 1) {
    begin_ = buffer_.data() + (kLine - reinterpret_cast<uintptr_t>(buffer_.data()) % kLine) % kLine;
  }
  void flush() const { run(core::CopyPattern::read, 0, {nullptr, begin_, nullptr, bytes_}); }

 private:
  static constexpr size_t kLine = 64;
  size_t bytes_;
  std::vector<char> buffer_;
  const char* begin_;
};

class CpuTimed final : public Timed {
 public:
  CpuTimed(std::function<void()> work, std::shared_ptr<const CacheFlusher> flusher)
      : work_(std::move(work)), flusher_(std::move(flusher)) {}

  double run() override {
    using Clock = std::chrono::steady_clock;
    flusher_->flush();
    const Clock::time_point start = Clock::now();
    work_();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

 private:
  std::function<void()> work_;
  std::shared_ptr<const CacheFlusher> flusher_;
};

class CpuDevice final : public Device {
 public:
  std::string name() const override {
    const int64_t threads = core::parallel_width();
    return cpu_model() + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  }
  brim_device_type type() const override { return BRIM_CPU; }

  void* allocate(size_t bytes) override {
    constexpr size_t kAlignment = 256;
    const size_t rounded = std::max((bytes + kAlignment - 1) / kAlignment, size_t{1}) * kAlignment;
    void* memory = std::aligned_alloc(kAlignment, rounded);
    if (!memory) throw std::runtime_error("cpu: no memory for " + std::to_string(bytes) + " bytes");
    return memory;
  }
  void release(void* memory) noexcept override { std::free(memory); }
  size_t free_bytes() const override { return available_bytes(); }
  void upload(void* to, const void* from, size_t bytes) override {
    if (bytes) std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, size_t bytes) override { upload(to, from, bytes); }
  void synchronize() override {}

  std::unique_ptr<Timed> timed(std::function<void()> work) override {
    if (!flusher_) flusher_ = std::make_shared<CacheFlusher>();
    return std::make_unique<CpuTimed>(std::move(work), flusher_);
  }

  std::vector<Copy> copies(core::CopyPattern pattern, const core::CopyMemory& memory) override {
    std::vector<Copy> list;
    const std::vector<const char*> names = cpu::copy_forms(pattern);
    for (size_t form = 0; form < names.size(); ++form)
      list.push_back({names[form], [=] { run(pattern, form, memory); }});
    return list;
  }

 private:
  std::shared_ptr<CacheFlusher> flusher_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace brim::harness

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "core/parallel.h"
#include "cpu/cache.h"
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

// Read before every sample: twice what the last-level caches hold, each thread its share, so that the
// threads' own caches are replaced too. Reading leaves no dirty lines whose writing back would fall into the
// sample.
class CacheFlusher {
 public:
  CacheFlusher() : words_(2 * cpu::last_level_cache_bytes() / sizeof(uint64_t), 1) {}

  void flush() const {
    core::parallel_for(static_cast<int64_t>(words_.size()), 1 << 13, [&](int64_t begin, int64_t end) {
      uint64_t sum = 0;
      for (int64_t i = begin; i < end; i += 8) sum += words_[i];  // one word of each line
      sink_ = sum;
    });
  }

 private:
  std::vector<uint64_t> words_;
  static inline volatile thread_local uint64_t sink_ = 0;
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

  std::vector<Copy> copies(void* to, const void* from, size_t bytes) override {
    return {{"memcpy", [=] { cpu::copy(to, from, bytes); }},
            {"stream", [=] { cpu::stream_copy(to, from, bytes); }}};
  }
  std::vector<Copy> copies_in_place(void* data, size_t bytes) override {
    return {{"load-store", [=] { cpu::rewrite(data, bytes); }},
            {"load-stream", [=] { cpu::stream_rewrite(data, bytes); }}};
  }

 private:
  std::shared_ptr<CacheFlusher> flusher_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace brim::harness

#include "harness/device.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include <unistd.h>

namespace brim::harness {
namespace {

class TimedCall final : public Timed {
 public:
  explicit TimedCall(std::function<void()> work) : work_(std::move(work)) { work_(); }
  double run() override {
    const auto begin = std::chrono::steady_clock::now();
    work_();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  std::function<void()> work_;
};

class CpuDevice final : public Device {
 public:
  std::string name() const override { return "CPU"; }
  brim_device_type type() const override { return BRIM_CPU; }
  void* allocate(size_t bytes) override { return ::operator new (bytes, std::align_val_t{256}); }
  void release(void* memory) override { ::operator delete (memory, std::align_val_t{256}); }
  size_t free_bytes() const override {
    return static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void synchronize() override {}
  std::unique_ptr<Timed> timed(std::function<void()> work) override {
    return std::make_unique<TimedCall>(std::move(work));
  }
  std::vector<Copy> copies(void* to, const void* from, size_t bytes) override {
    return {{"memcpy", [=] { std::memcpy(to, from, bytes); }}};
  }
  std::vector<Copy> copies_in_place(void* data, size_t bytes) override {
    return {{"xor", [=] {
               for (size_t i = 0; i < bytes; ++i) static_cast<char*>(data)[i] ^= 1;
             }}};
  }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace brim::harness

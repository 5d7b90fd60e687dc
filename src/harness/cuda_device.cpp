// A GPU to check and to measure on: memory, graph-replayed timing, and the plain copies that make the wall.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>

#include "cuda/copy.h"
#include "cuda/runtime.h"
#include "harness/device.h"

namespace brim::harness {
namespace {

void check(cudaError_t e, const char* call) {
  if (e == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(e));
}
#define BRIM_CUDA_CHECK(call) check(call, #call)

void check(const Status& status) {
  if (!ok(status)) throw std::runtime_error(status.message);
}

class CudaDevice;

class CudaTimed : public Timed {
 public:
  CudaTimed(CudaDevice& device, const std::function<void()>& work);
  ~CudaTimed() override;
  double run() override;

 private:
  void release();
  CudaDevice& device_;
  cudaGraphExec_t graph_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    use();
    check(cuda::device_props("device", index, &props_));
    BRIM_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~CudaDevice() override {
    cudaSetDevice(index_);
    cudaFree(flush_);
    cudaStreamDestroy(stream_);
  }

  std::string name() const override { return props_->name; }
  brim_device_type type() const override { return BRIM_CUDA; }
  int index() const override { return index_; }
  void* stream() const override { return stream_; }
  Facts properties() const override {
    const int capability = props_->compute_capability;
    return {{"compute capability", std::to_string(capability / 10) + "." + std::to_string(capability % 10)},
            {"SMs", std::to_string(props_->sm_count)},
            {"L2 MiB", std::to_string(props_->l2_bytes >> 20)}};
  }
  Facts versions() const override {
    int driver = 0, runtime = 0;
    BRIM_CUDA_CHECK(cudaDriverGetVersion(&driver));
    BRIM_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    const auto text = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
    return {{"CUDA driver", text(driver)}, {"CUDA runtime", text(runtime)}};
  }
  cudaStream_t queue() const { return stream_; }
  void use() const { BRIM_CUDA_CHECK(cudaSetDevice(index_)); }

  void* allocate(size_t bytes) override {
    use();
    void* memory = nullptr;
    if (const cudaError_t e = cudaMalloc(&memory, std::max<size_t>(bytes, 1)); e != cudaSuccess) {
      cudaGetLastError();
      throw std::runtime_error("cudaMalloc of " + std::to_string(bytes) + " bytes: " + cudaGetErrorString(e));
    }
    return memory;
  }
  // After a fault every call fails with it; whoever waited for the work has reported it.
  void release(void* memory) noexcept override {
    cudaSetDevice(index_);
    cudaFree(memory);
  }
  size_t free_bytes() const override {
    use();
    size_t free = 0, total = 0;
    BRIM_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }
  void upload(void* to, const void* from, size_t bytes) override {
    use();
    BRIM_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
    synchronize();
  }
  void download(void* to, const void* from, size_t bytes) override {
    use();
    BRIM_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
    synchronize();
  }
  void synchronize() override {
    use();
    BRIM_CUDA_CHECK(cudaStreamSynchronize(stream_));
  }

  std::unique_ptr<Timed> timed(std::function<void()> work) override {
    use();
    if (!flush_) {
      const size_t bytes = cuda::flush_bytes(*props_);
      flush_ = static_cast<char*>(allocate(bytes + kSinkBytes));
      BRIM_CUDA_CHECK(cudaMemsetAsync(flush_, 0, bytes + kSinkBytes, stream_));
    }
    return std::make_unique<CudaTimed>(*this, work);
  }
  void flush() {
    const size_t bytes = cuda::flush_bytes(*props_);
    check(cuda::launch_copy(cuda::flush_form(*props_), {flush_ + bytes, flush_, nullptr, bytes}, index_,
                            stream_));
  }

  std::vector<Copy> copies(core::CopyPattern pattern, const core::CopyMemory& memory) override {
    std::vector<Copy> list;
    for (const cuda::CopyForm& form : cuda::copy_forms(pattern, memory.bytes, *props_))
      list.push_back({form.name, [=, this] { check(cuda::launch_copy(form, memory, index_, stream_)); }});
    return list;
  }

 private:
  static constexpr size_t kSinkBytes = 16;  // after what the flush reads
  int index_;
  const core::DeviceProps* props_ = nullptr;
  cudaStream_t stream_ = nullptr;
  char* flush_ = nullptr;
};

CudaTimed::CudaTimed(CudaDevice& device, const std::function<void()>& work) : device_(device) {
  cudaGraph_t graph = nullptr;
  try {
    work();  // loads the kernels: inside a capture that may fail
    device.synchronize();
    BRIM_CUDA_CHECK(cudaStreamBeginCapture(device.queue(), cudaStreamCaptureModeThreadLocal));
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(device.queue(), &graph);
      throw;
    }
    BRIM_CUDA_CHECK(cudaStreamEndCapture(device.queue(), &graph));
    BRIM_CUDA_CHECK(cudaGraphInstantiate(&graph_, graph, 0));
    BRIM_CUDA_CHECK(cudaEventCreate(&begin_));
    BRIM_CUDA_CHECK(cudaEventCreate(&end_));
    BRIM_CUDA_CHECK(cudaGraphUpload(graph_, device.queue()));
    device.synchronize();
  } catch (...) {
    if (graph) cudaGraphDestroy(graph);
    release();
    throw;
  }
  cudaGraphDestroy(graph);
}

CudaTimed::~CudaTimed() {
  cudaSetDevice(device_.index());
  release();
}

void CudaTimed::release() {
  if (end_) cudaEventDestroy(end_);
  if (begin_) cudaEventDestroy(begin_);
  if (graph_) cudaGraphExecDestroy(graph_);
}

double CudaTimed::run() {
  device_.use();
  device_
      .flush();  // long enough for what follows to be queued behind it: no gap on the host's account is timed
  BRIM_CUDA_CHECK(cudaEventRecord(begin_, device_.queue()));
  BRIM_CUDA_CHECK(cudaGraphLaunch(graph_, device_.queue()));
  BRIM_CUDA_CHECK(cudaEventRecord(end_, device_.queue()));
  BRIM_CUDA_CHECK(cudaEventSynchronize(end_));
  float ms = 0;
  BRIM_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
  return ms * 1e3;
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(int index, std::string* why) {
  int count = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess || index < 0 || index >= count) {
    cudaGetLastError();
    if (why)
      *why = e != cudaSuccess ? std::string("no GPU can be used: ") + cudaGetErrorString(e)
                              : "there is no device cuda:" + std::to_string(index);
    return nullptr;
  }
  try {
    return std::make_unique<CudaDevice>(index);
  } catch (const std::exception& e) {
    if (why) *why = e.what();
    return nullptr;
  }
}

}  // namespace brim::harness

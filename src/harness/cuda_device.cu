// A GPU to check and to measure on: memory, graph-replayed timing, and the plain copies that make the wall.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "harness/device.h"

namespace brim::harness {
namespace {

void check(cudaError_t e, const char* call) {
  if (e == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(e));
}
#define BRIM_CUDA_CHECK(call) check(call, #call)

// 16-byte vectors of [0, count), `Unroll` loads on their way before the first store. Threads step over the
// whole range, so any grid will do; `Streaming` tells the caches that nothing is read twice.
template <int Unroll, bool Streaming, class Use>
__device__ __forceinline__ void each_vector(const uint4* from, size_t count, Use use) {
  const size_t tile = static_cast<size_t>(blockDim.x) * Unroll;
  for (size_t start = blockIdx.x * tile; start < count; start += gridDim.x * tile) {
    uint4 v[Unroll];
#pragma unroll
    for (int u = 0; u < Unroll; ++u) {
      const size_t i = start + u * blockDim.x + threadIdx.x;
      if (i < count) v[u] = Streaming ? __ldcs(from + i) : from[i];
    }
#pragma unroll
    for (int u = 0; u < Unroll; ++u) {
      const size_t i = start + u * blockDim.x + threadIdx.x;
      if (i < count) use(i, v[u]);
    }
  }
}

// The bytes past the last whole vector, by the first threads of the first CTA.
__device__ __forceinline__ bool has_tail_byte(size_t bytes, size_t* i) {
  *i = bytes / 16 * 16 + threadIdx.x;
  return blockIdx.x == 0 && *i < bytes;
}

template <int Unroll, bool Streaming>
__global__ void copy_kernel(char* to, const char* from, size_t bytes) {
  uint4* out = reinterpret_cast<uint4*>(to);
  each_vector<Unroll, Streaming>(reinterpret_cast<const uint4*>(from), bytes / 16, [&](size_t i, uint4 v) {
    if constexpr (Streaming)
      __stcs(out + i, v);
    else
      out[i] = v;
  });
  if (size_t i; has_tail_byte(bytes, &i)) to[i] = from[i];
}

// Every bit flipped where it stands: as cheap as a change can be, and no compiler can drop it.
template <int Unroll, bool Streaming>
__global__ void flip_kernel(char* data, size_t bytes) {
  uint4* out = reinterpret_cast<uint4*>(data);
  each_vector<Unroll, Streaming>(out, bytes / 16, [&](size_t i, uint4 v) {
    v = {~v.x, ~v.y, ~v.z, ~v.w};
    if constexpr (Streaming)
      __stcs(out + i, v);
    else
      out[i] = v;
  });
  if (size_t i; has_tail_byte(bytes, &i)) data[i] = ~data[i];
}

// Fills the L2 cache with clean lines. A memset would leave dirty ones, written back while the next kernel is
// timed.
__global__ void read_kernel(const uint4* from, size_t count, unsigned* out) {
  unsigned sum = 0;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    const uint4 v = from[i];
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x9e3779b9u) *out = sum;  // the buffer holds zeros: never true, and the reads cannot be dropped
}

constexpr int kThreads = 256;

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
    cudaDeviceProp p;
    BRIM_CUDA_CHECK(cudaGetDeviceProperties(&p, index));
    name_ = p.name;
    sms_ = p.multiProcessorCount;
    properties_ = {{"compute capability", std::to_string(p.major) + "." + std::to_string(p.minor)},
                   {"SMs", std::to_string(sms_)},
                   {"L2 MiB", std::to_string(p.l2CacheSize >> 20)}};
    flush_bytes_ = std::max<size_t>(256u << 20, 4 * static_cast<size_t>(p.l2CacheSize));
    BRIM_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~CudaDevice() override {
    cudaSetDevice(index_);
    cudaFree(flush_);
    cudaStreamDestroy(stream_);
  }

  std::string name() const override { return name_; }
  brim_device_type type() const override { return BRIM_CUDA; }
  int index() const override { return index_; }
  void* stream() const override { return stream_; }
  Facts properties() const override { return properties_; }
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
      BRIM_CUDA_CHECK(cudaMalloc(&flush_, flush_bytes_ + 16));
      BRIM_CUDA_CHECK(cudaMemsetAsync(flush_, 0, flush_bytes_ + 16, stream_));
    }
    return std::make_unique<CudaTimed>(*this, work);
  }
  void flush() {
    read_kernel<<<sms_ * 8, kThreads, 0, stream_>>>(reinterpret_cast<const uint4*>(flush_), flush_bytes_ / 16,
                                                    reinterpret_cast<unsigned*>(flush_ + flush_bytes_));
    BRIM_CUDA_CHECK(cudaGetLastError());
  }

  std::vector<Copy> copies(void* to, const void* from, size_t bytes) override {
    std::vector<Copy> list;
    list.push_back({"cudaMemcpyAsync", [=, this] {
                      use();
                      BRIM_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
                    }});
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 != 0) return list;
    const auto add = [&](auto kernel, const char* form, int unroll) {
      for (const Grid& grid : grids(bytes, unroll))
        list.push_back({std::string("copy") + form + grid.name, [=, this] {
                          use();
                          kernel<<<grid.blocks, kThreads, 0, stream_>>>(
                              static_cast<char*>(to), static_cast<const char*>(from), bytes);
                          BRIM_CUDA_CHECK(cudaGetLastError());
                        }});
    };
    add(copy_kernel<4, false>, " 4x16", 4);
    add(copy_kernel<4, true>, " 4x16 streaming", 4);
    add(copy_kernel<1, true>, " 1x16 streaming", 1);
    return list;
  }

  std::vector<Copy> copies_in_place(void* data, size_t bytes) override {
    std::vector<Copy> list;
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
      throw std::runtime_error("copies_in_place: the buffer is not aligned to 16 bytes");
    const auto add = [&](auto kernel, const char* form, int unroll) {
      for (const Grid& grid : grids(bytes, unroll))
        list.push_back({std::string("flip") + form + grid.name, [=, this] {
                          use();
                          kernel<<<grid.blocks, kThreads, 0, stream_>>>(static_cast<char*>(data), bytes);
                          BRIM_CUDA_CHECK(cudaGetLastError());
                        }});
    };
    add(flip_kernel<4, false>, " 4x16", 4);
    add(flip_kernel<4, true>, " 4x16 streaming", 4);
    add(flip_kernel<1, true>, " 1x16 streaming", 1);
    return list;
  }

 private:
  struct Grid {
    std::string name;
    unsigned blocks;
  };
  // One tile per CTA, and grids that stay on the SMs and step through.
  std::vector<Grid> grids(size_t bytes, int unroll) const {
    const size_t tile = static_cast<size_t>(kThreads) * unroll * 16,
                 tiles = std::max<size_t>((bytes + tile - 1) / tile, 1);
    std::vector<Grid> list;
    if (tiles <= 0x7fffffff) list.push_back({", a CTA a tile", static_cast<unsigned>(tiles)});
    for (const size_t per_sm : {4, 8, 16})
      if (per_sm * sms_ < tiles)
        list.push_back({", " + std::to_string(per_sm) + " CTAs an SM", static_cast<unsigned>(per_sm * sms_)});
    return list;
  }

  int index_;
  std::string name_;
  int sms_ = 0;
  Facts properties_;
  cudaStream_t stream_ = nullptr;
  char* flush_ = nullptr;
  size_t flush_bytes_ = 0;
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

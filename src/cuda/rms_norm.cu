// The norms' kernels, and their launches.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "cuda/device/rms_norm_backward.cuh"
#include "cuda/device/rms_norm_forward.cuh"
#include "cuda/kernel_table.h"
#include "cuda/rms_norm.h"
#include "cuda/rms_norm_kernels.h"
#include "cuda/runtime.h"

namespace brim::cuda {
namespace {

constexpr int kMostUnaskedSharedBytes = (48 << 10) - kNormStaticBytes;

// A kernel is asked for once a device.
cudaError_t allow_shared_bytes(int index, NormKernel* kernel, int device) {
  static std::atomic<uint64_t> allowed[kNormVariants.size()];
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if (allowed[index].load(std::memory_order_relaxed) & bit) return cudaSuccess;
  int most;
  cudaError_t error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaFuncAttributes attributes;
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 most - static_cast<int>(attributes.sharedSizeBytes));
  if (error == cudaSuccess) allowed[index].fetch_or(bit, std::memory_order_relaxed);
  return error;
}

template <class TX, class TS, class TW, NormForm kForm, bool kAdd, bool kBackward, bool kSingle, int V>
__global__ void __maxnreg__(norm_registers(kForm, kAdd, sizeof(TX) != sizeof(TS), kBackward, kSingle, V,
                                           norm_elements_of<TX, TS>(kSingle)))
    norm_kernel(const __grid_constant__ NormParams p) {
  constexpr int N = norm_elements_of<TX, TS>(kSingle);
  if constexpr (kBackward) norm_finish_may_start();
  if constexpr (kForm == NormForm::loop && kBackward)
    norm_backward_loop<TX, TS, TW, kAdd, N>(p);
  else if constexpr (kForm == NormForm::loop)
    norm_forward_loop<TX, TS, TW, kAdd, N>(p);
  else if constexpr (kBackward)
    norm_backward_rows<TX, TS, TW, kAdd, N, V>(p);
  else
    norm_forward_rows<TX, TS, TW, kAdd, N, V>(p);
}

template <bool kShifted>
__global__ void __launch_bounds__(kNormFinishThreads)
    norm_finish_kernel(const __grid_constant__ NormParams p) {
  __shared__ __align__(16) float scratch[kNormFinishThreads / 32 * kNormFinishColumns];
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the partials are there
#endif
  norm_finish<kShifted>(p, kNormFinishColumns, scratch);
}

constexpr auto kKernels = kernel_table<kNormVariants.size()>([](auto index) -> NormKernel* {
  constexpr NormVariant v = kNormVariants[decltype(index)::value];
  if constexpr (v.form == NormForm::bulk)
    return nullptr;
  else
    return norm_kernel<NormType<v.dtype>, NormType<v.sum_dtype>, NormType<v.weight_dtype>, v.form, v.add,
                       v.backward, v.single, v.vectors>;
});

NormParams make_params(const brim_rms_norm_args& a, const ops::RmsNormProblem& p, const NormPlan& plan) {
  NormParams n{};
  n.rows = static_cast<int32_t>(std::min(p.rows, kNormMostRows));
  n.hidden = p.hidden;
  n.axes = p.axes;
  n.groups = plan.groups;
  n.inverse_hidden = p.hidden ? 1 / static_cast<float>(p.hidden) : 0;
  n.eps = static_cast<float>(p.eps);
  n.offset = static_cast<float>(p.offset);
  n.round_xhat = p.round_xhat;
  n.saves_rstd = p.saves_rstd;
  n.has_dy = p.has_dy;
  n.has_dsum = p.has_dsum;
  n.wants_dx = p.wants_dx;
  n.wants_dresidual = p.wants_dresidual;
  n.wants_partials = plan.partials > 0;
  n.weight = p.weight_dtype ? static_cast<const char*>(a.weight.data) : nullptr;
  n.rstd = static_cast<float*>(a.rstd.data);
  n.weight_stride = p.weight_stride;
  n.rstd_stride = p.rstd_stride;
  const auto set = [&](NormTensorIndex i, const TensorView& t, const ops::RowStrides& s) {
    n.tensor[i] = {static_cast<char*>(t.data), s.axis[0], s.column};
    std::copy(std::begin(s.axis), std::end(s.axis), n.inner[i]);
  };
  if (p.backward) {
    set(kS, p.add ? a.sum : a.x, p.s);
    set(kDy, a.dy, p.dy);
    set(kDx, a.dx, p.dx);
    set(kDsum, a.dsum, p.dsum);
    set(kDresidual, a.dresidual, p.dresidual);
  } else {
    set(kX, a.x, p.x);
    set(kY, a.y, p.y);
    set(kResidual, a.residual, p.residual);
    set(kSum, a.sum, p.sum);
  }
  n.cluster = plan.cluster;
  n.share = plan.share;
  n.slots = plan.slots;
  n.pitch = plan.pitch;
  n.sum_pitch = plan.sum_pitch;
  n.partials = static_cast<float*>(a.workspace);
  n.partial_pitch = norm_partial_pitch(plan, p.hidden);
  n.slopes = n.partials + plan.partials * n.partial_pitch;
  n.partials_count = static_cast<int32_t>(plan.partials);
  n.dweight = static_cast<char*>(a.dweight.data);
  n.dweight_stride = p.dweight_stride;
  n.dweight_dtype = a.dweight.dtype;
  std::copy(std::begin(plan.by), std::end(plan.by), n.by);
  n.rows_overlap = plan.rows_overlap;
  if (plan.shift > 1) {  // as the kernel chooses the vectors of the rows
    const bool dx = p.wants_dx, dresidual = p.add && p.wants_dresidual;
    const TensorView& t = dx ? a.dx : dresidual ? a.dresidual : p.add ? a.sum : a.x;
    const int size = core::element_size(dx ? p.dtype : p.sum_dtype);
    const ops::RowStrides& rows = dx ? p.dx : dresidual ? p.dresidual : p.s;
    n.partial_mask = 16 / size - 1;
    n.partial_off = static_cast<int32_t>(reinterpret_cast<uintptr_t>(t.data) % 16 / size);
    n.partial_step = p.axes == 1 ? static_cast<int32_t>(rows.axis[0] & n.partial_mask) : 0;
  }
  return n;
}

// Whether the plan's CTAs are on the SMs at once, as their grid barrier needs: asked once for each of the last few plans.
bool fits_at_once(int index, NormKernel* kernel, const cudaLaunchConfig_t& config, const NormPlan& plan,
                  int device) {
  static std::atomic<uint64_t> known[256];
  const uint64_t threads = config.blockDim.x * config.blockDim.y;
  const uint64_t key = ((((static_cast<uint64_t>(index) * 64 + device % 64) * 64 + threads / 32) * 65536 +
                         plan.shared_bytes / 4) *
                            16 +
                        plan.cluster) *
                           65536 +
                       plan.groups;
  std::atomic<uint64_t>& place = known[key * 0x9e3779b97f4a7c15u >> 56];
  if (place.load(std::memory_order_relaxed) == key) return true;
  int most = 0, sms = 0;
  if (plan.cluster > 1) {
    if (cudaOccupancyMaxActiveClusters(&most, reinterpret_cast<const void*>(kernel), &config) != cudaSuccess)
      most = 0;
  } else if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, reinterpret_cast<const void*>(kernel),
                                                           static_cast<int>(threads),
                                                           config.dynamicSmemBytes) != cudaSuccess ||
             cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    most = 0;
  } else {
    most *= sms;
  }
  cudaGetLastError();
  if (most < plan.groups) return false;
  place.store(key, std::memory_order_relaxed);
  return true;
}

// `finished`: whether this launch has made dweight too.
cudaError_t launch_rows(NormParams params, const NormPlan& plan, int device, cudaStream_t stream,
                        bool* finished) {
  const int index = norm_variant_index(plan.variant);
  NormKernel* const kernel = plan.variant.form == NormForm::bulk ? norm_bulk_kernel(index) : kKernels[index];
  if (plan.shared_bytes > kMostUnaskedSharedBytes)
    if (const cudaError_t error = allow_shared_bytes(index, kernel, device); error != cudaSuccess)
      return error;
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(params.makes_slopes
               ? static_cast<unsigned>(params.rows)
               : static_cast<unsigned>(plan.groups * std::max<int64_t>(plan.blocks, 1)) * plan.cluster);
  config.blockDim = dim3(plan.lanes + (plan.slots ? 32 : 0), plan.rows_per_cta);
  config.stream = stream;
  config.dynamicSmemBytes = static_cast<size_t>(plan.shared_bytes);
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (plan.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(plan.cluster), 1, 1};
  }
  *finished = plan.finish_columns > 0 && fits_at_once(index, kernel, config, plan, device);
  if (*finished) {
    params.finish_columns = plan.finish_columns;
    cudaLaunchAttribute& together = attributes[config.numAttrs++];
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
  }
  void* values[] = {&params};
  cudaError_t error = cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), values);
  if (*finished && error == cudaErrorCooperativeLaunchTooLarge) {  // not all SMs are this context's
    cudaGetLastError();
    *finished = false;
    params.finish_columns = 0;
    --config.numAttrs;
    error = cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), values);
  }
  return error;
}

// launch(params) for each piece of the rows that one launch takes.
template <class Launch>
cudaError_t each_piece(const NormParams& params, const NormPlan& plan, const ops::RmsNormProblem& problem,
                       Launch launch) {
  if (plan.launches == 1) return launch(params);
  const NormPieces pieces = norm_pieces(problem);
  cudaError_t error = cudaSuccess;
  for (int64_t row = 0, piece = 0; row < problem.rows && error == cudaSuccess; ++piece) {
    const int64_t index = row / pieces.inner % problem.sizes[pieces.axis];
    const int64_t count = std::min(pieces.most, problem.sizes[pieces.axis] - index) * pieces.inner;
    NormParams part = params;
    part.rows = static_cast<int32_t>(count);
    if (part.rstd) part.rstd += row * params.rstd_stride;
    if (part.slopes) part.slopes += row;
    if (part.partials) part.partials += piece * plan.groups * params.partial_pitch;
    for (int i = 0; i < kNormTensors; ++i) {
      const brim_dtype dtype = i == kY || (i == kDx && problem.backward) || (i == kX && !problem.backward)
                                   ? problem.dtype
                                   : problem.sum_dtype;
      ops::RowStrides strides{};
      std::copy(std::begin(params.inner[i]), std::end(params.inner[i]), strides.axis);
      if (part.tensor[i].data)
        part.tensor[i].data += ops::row_offset(problem, strides, row) * core::element_size(dtype);
    }
    error = launch(part);
    row += count;
  }
  return error;
}

cudaError_t launch_finish(const NormParams& params, const NormPlan& plan, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((params.hidden + kNormFinishColumns - 1) / kNormFinishColumns));
  config.blockDim = dim3(kNormFinishThreads);
  config.stream = stream;
  cudaLaunchAttribute early{};  // its CTAs wait for the partials themselves
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  if (params.partials_count > 0) {
    config.attrs = &early;
    config.numAttrs = 1;
  }
  void* values[] = {const_cast<NormParams*>(&params)};
  auto* const kernel = plan.shift > 1 ? norm_finish_kernel<true> : norm_finish_kernel<false>;
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), values);
}

}  // namespace

Status launch_rms_norm(const char* op, const brim_rms_norm_args& args, const ops::RmsNormProblem& problem,
                       const NormPlan& plan) {
  const TensorView& rows = ops::lead_tensor(args);
  const DeviceGuard guard(rows.device_index);
  cudaError_t error = guard.error();
  const NormParams params = make_params(args, problem, plan);
  const auto stream = static_cast<cudaStream_t>(args.run.stream);
  bool finished = false;
  if (error == cudaSuccess && plan.groups > 0)
    error = each_piece(params, plan, problem, [&](const NormParams& piece) {
      NormParams slopes = piece;
      slopes.makes_slopes = plan.blocks > 0;
      if (slopes.makes_slopes)
        if (const cudaError_t failed = launch_rows(slopes, plan, rows.device_index, stream, &finished);
            failed != cudaSuccess)
          return failed;
      return launch_rows(piece, plan, rows.device_index, stream, &finished);
    });
  if (error == cudaSuccess && problem.wants_dweight && problem.hidden > 0 && !finished)
    error = launch_finish(params, plan, stream);
  if (error == cudaSuccess) return core::success();
  char doing[256];
  std::snprintf(doing, sizeof doing, "launching on cuda:%d, rows %s", rows.device_index,
                core::shape_text(rows).text);
  return cuda_failure(op, error, doing);
}

}  // namespace brim::cuda

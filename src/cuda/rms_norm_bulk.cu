// The norms' kernels of the bulk form.
#include "cuda/device/rms_norm_ring.cuh"
#include "cuda/kernel_table.h"
#include "cuda/rms_norm_kernels.h"

namespace brim::cuda {
namespace {

template <class TX, class TS, class TW, bool kAdd, bool kBackward, bool kShifted, int V>
__global__ void __maxnreg__(norm_registers(NormForm::bulk, kAdd, sizeof(TX) != sizeof(TS), kBackward,
                                           kShifted, V, norm_elements_of<TX, TS>(false)))
    norm_bulk(const __grid_constant__ NormParams p) {
#if BRIM_BULK_COPIES
  constexpr int N = norm_elements_of<TX, TS>(false);
  if constexpr (kBackward) {
    norm_finish_may_start();
    norm_ring<NormRingBackward<TX, TS, TW, kAdd, N, V, kShifted>, kShifted>(p);
  } else if constexpr (V > 0) {
    norm_ring<NormRingForward<TX, TS, TW, kAdd, N, V, kShifted>, kShifted>(p);
  } else {
    norm_forward_bulk<TX, TS, TW, kAdd, N, kShifted>(p);
  }
#else
  __trap();  // the plan asks device_props(), which knows the code that was loaded
#endif
}

constexpr auto kKernels = kernel_table<kNormVariants.size()>([](auto index) -> NormKernel* {
  constexpr NormVariant v = kNormVariants[decltype(index)::value];
  if constexpr (v.form == NormForm::bulk)
    return norm_bulk<NormType<v.dtype>, NormType<v.sum_dtype>, NormType<v.weight_dtype>, v.add, v.backward,
                     v.single, v.vectors>;
  else
    return nullptr;
});

}  // namespace

NormKernel* norm_bulk_kernel(int index) { return kKernels[index]; }

}  // namespace brim::cuda

#include "harness/oracle.h"

#include <stdexcept>

#include "core/tensor.h"
#include "harness/call.h"
#include "harness/elements.h"

namespace brim::harness {

ops::Values run_oracle(const ops::Case& c, brim_op op, const std::vector<TensorView>& views,
                       const ops::Values& inputs) {
  std::vector<std::vector<std::byte>> memory(views.size());
  std::vector<TensorView> wide(views.size());
  for (size_t i = 0; i < views.size(); ++i) {
    TensorView& t = wide[i] = views[i];
    if (!t.dtype) continue;
    if (t.dtype != BRIM_INT32 && t.dtype != BRIM_INT64) t.dtype = BRIM_FLOAT64;
    int64_t stride = 1;
    for (int axis = t.rank; axis-- > 0; stride *= t.shape[axis]) t.strides[axis] = stride;
    memory[i].resize(static_cast<size_t>(core::element_count(t) * core::element_size(t.dtype)),
                     std::byte{0xff});
    t.data = memory[i].data();
    t.device = BRIM_CPU;
    t.device_index = 0;
    if (!inputs[i].empty()) write_elements(t, inputs[i]);
  }
  brim_run run{};
  run.backend = BRIM_BACKEND_REFERENCE;
  const auto args = c.bind(wide, run);
  if (const Status status = call(op, args.get()); !ok(status))
    throw std::runtime_error("the reference refuses the case: " + std::string(status.message));
  ops::Values outputs(views.size());
  for (size_t i = 0; i < views.size(); ++i)
    if (wide[i].dtype && c.tensors[i].role != ops::Role::input) outputs[i] = read_elements(wide[i]);
  return outputs;
}

}  // namespace brim::harness

// torch.ops.brim.rope, rope_one (no k) and rope_ (in place): brim.rope's C++ side. Backward passes call the
// same ops.
#include <torch/csrc/stable/library.h>

#include <string>

#include "convert.h"

namespace {

using brim::binding::Facts;
using brim::binding::Handle;
using brim::binding::input;
using brim::binding::Made;
using torch::stable::detail::to;

// What the ops have in common, off the dispatcher's stack: cos, sin, position_ids, options, sections.
//
// The options of a call are one number, since every argument of an op costs a call a tenth of a microsecond and
// more: rotary_dim in 32 bits, then layout and pairing in 2 each, inverse and sections_interleaved in 1. Three
// sections of 21 bits are another; no sections: 0. python/brim/_rope.py packs them.
struct Call {
  explicit Call(const StableIValue* stack)
      : cos(to<AtenTensorHandle>(stack[0])),
        sin(to<AtenTensorHandle>(stack[1])),
        positions(brim::binding::optional_tensor(stack[2])),
        options(to<int64_t>(stack[3])),
        sections(to<int64_t>(stack[4])) {}

  brim::RopeArgs arguments(const Facts& q, const brim::TensorView& q_in, const brim::TensorView& k_in,
                           const brim::TensorView& q_out, const brim::TensorView& k_out) const {
    brim::RopeArgs args;
    args.q = q_in;
    args.k = k_in;
    args.q_out = q_out;
    args.k_out = k_out;
    args.cos = input(cos);
    args.sin = input(sin);
    args.positions = input(positions);
    args.rotary_dim = options & 0xffffffff;
    args.layout = static_cast<brim_rope_layout>(options >> 32 & 3);
    args.pairing = static_cast<brim_rope_pairing>(options >> 34 & 3);
    args.inverse = options >> 36 & 1;
    args.sections_interleaved = options >> 37 & 1;
    for (int i = 0; i < 3; ++i) args.sections[i] = static_cast<int32_t>(sections >> 21 * i & 0x1fffff);
    args.run.stream = brim::binding::current_stream(q);
    return args;
  }

  Handle cos, sin, positions;
  int64_t options, sections;
};

// (q, k, ..., orders): two orders (convert.h) in one number.
void rope(StableIValue* stack, uint64_t, uint64_t) {
  const Handle q_tensor(to<AtenTensorHandle>(stack[0])), k_tensor(to<AtenTensorHandle>(stack[1]));
  const Facts q(q_tensor), k(k_tensor);
  const Call call(stack + 2);
  const int64_t orders = to<int64_t>(stack[7]);
  Made q_out = brim::binding::empty_in_order(q, static_cast<int32_t>(orders)),
       k_out = brim::binding::empty_in_order(k, static_cast<int32_t>(orders >> 32));
  brim::binding::raise(brim::rope_forward(call.arguments(q, input(q), input(k), q_out.view, k_out.view)));
  stack[0] = brim::binding::give(q_out);
  stack[1] = brim::binding::give(k_out);
}

// (x, ..., order)
void rope_one(StableIValue* stack, uint64_t, uint64_t) {
  const Handle x_tensor(to<AtenTensorHandle>(stack[0]));
  const Facts x(x_tensor);
  const Call call(stack + 1);
  Made out = brim::binding::empty_in_order(x, to<int64_t>(stack[6]));
  brim::binding::raise(brim::rope_forward(call.arguments(x, input(x), {}, out.view, {})));
  stack[0] = brim::binding::give(out);
}

// What is written in place is written to PyTorch, though it is read as well.
brim::RopeArgs in_place_arguments(const Call& call, const Facts& q, const Facts& k) {
  const brim::TensorView q_view = brim::binding::output(q), k_view = brim::binding::output(k);
  return call.arguments(q, q_view, k_view, q_view, k_view);
}

// (q, k or none, ...)
void rope_in_place(StableIValue* stack, uint64_t, uint64_t) {
  const Handle q(to<AtenTensorHandle>(stack[0])), k(brim::binding::optional_tensor(stack[1]));
  const Call call(stack + 2);
  brim::binding::raise(brim::rope_forward(in_place_arguments(call, q, k)));
}

// (q, k or none, ..., in place): what describe_plan says of the same call, for brim.bench.
void rope_plan(StableIValue* stack, uint64_t, uint64_t) {
  const Handle q_tensor(to<AtenTensorHandle>(stack[0])), k_tensor(brim::binding::optional_tensor(stack[1]));
  const Facts q(q_tensor), k(k_tensor);
  const Call call(stack + 2);
  const bool in_place = to<bool>(stack[7]);
  const Made q_out = in_place ? Made() : brim::binding::empty_like(q),
             k_out = in_place ? Made() : brim::binding::empty_like(k);
  const brim::RopeArgs args = in_place ? in_place_arguments(call, q, k)
                                       : call.arguments(q, input(q), input(k), q_out.view, k_out.view);
  char plan[256] = "";
  brim::binding::raise(brim_describe_plan(BRIM_OP_rope_forward, &args, plan, sizeof plan));
  stack[0] = torch::stable::detail::from(std::string(plan));
}

#define BRIM_ROPE_OPTIONS "Tensor cos, Tensor sin, Tensor? position_ids, int options, int sections"

STABLE_TORCH_LIBRARY_FRAGMENT(brim, m) {
  m.def("rope(Tensor q, Tensor k, " BRIM_ROPE_OPTIONS ", int orders) -> (Tensor, Tensor)");
  m.def("rope_one(Tensor x, " BRIM_ROPE_OPTIONS ", int order) -> Tensor");
  m.def("rope_(Tensor(a!) q, Tensor(b!)? k, " BRIM_ROPE_OPTIONS ") -> ()");
  m.def("_rope_plan(Tensor q, Tensor? k, " BRIM_ROPE_OPTIONS ", bool inplace) -> str");
}

void implement(torch::stable::detail::StableLibrary& m) {
  m.impl("rope", rope);
  m.impl("rope_one", rope_one);
  m.impl("rope_", rope_in_place);
  m.impl("_rope_plan", rope_plan);
}

STABLE_TORCH_LIBRARY_IMPL(brim, CPU, m) { implement(m); }
#ifdef USE_CUDA
STABLE_TORCH_LIBRARY_IMPL(brim, CUDA, m) { implement(m); }
#endif

}  // namespace

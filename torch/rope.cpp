// torch.ops.brim.rope, rope_one (no k) and rope_ (in place): brim.rope's C++ side. Backward passes call the
// same ops.
#include <torch/csrc/stable/library.h>

#include <string>

#include "convert.h"

namespace {

using brim::binding::Handle;
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

  brim::RopeArgs arguments(AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle q_out,
                           AtenTensorHandle k_out) const {
    using brim::binding::input, brim::binding::output;
    brim::RopeArgs args;
    args.q_out = output(q_out);  // in place the same tensor, and PyTorch is to know that it is written
    args.k_out = output(k_out);
    args.q = q == q_out ? args.q_out : input(q);
    args.k = k == k_out ? args.k_out : input(k);
    args.cos = input(cos.get());
    args.sin = input(sin.get());
    args.positions = input(positions.get());
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
  const Handle q(to<AtenTensorHandle>(stack[0])), k(to<AtenTensorHandle>(stack[1]));
  const Call call(stack + 2);
  const int64_t orders = to<int64_t>(stack[7]);
  Handle q_out = brim::binding::empty_in_order(q.get(), static_cast<int32_t>(orders)),
         k_out = brim::binding::empty_in_order(k.get(), static_cast<int32_t>(orders >> 32));
  brim::binding::raise(brim::rope_forward(call.arguments(q.get(), k.get(), q_out.get(), k_out.get())));
  stack[0] = brim::binding::give(q_out);
  stack[1] = brim::binding::give(k_out);
}

// (x, ..., order)
void rope_one(StableIValue* stack, uint64_t, uint64_t) {
  const Handle x(to<AtenTensorHandle>(stack[0]));
  const Call call(stack + 1);
  Handle out = brim::binding::empty_in_order(x.get(), to<int64_t>(stack[6]));
  brim::binding::raise(brim::rope_forward(call.arguments(x.get(), nullptr, out.get(), nullptr)));
  stack[0] = brim::binding::give(out);
}

// (q, k or none, ...)
void rope_in_place(StableIValue* stack, uint64_t, uint64_t) {
  const Handle q(to<AtenTensorHandle>(stack[0])), k(brim::binding::optional_tensor(stack[1]));
  const Call call(stack + 2);
  brim::binding::raise(brim::rope_forward(call.arguments(q.get(), k.get(), q.get(), k.get())));
}

// (q, k or none, ..., in place): what describe_plan says of the same call, for brim.bench.
void rope_plan(StableIValue* stack, uint64_t, uint64_t) {
  const Handle q(to<AtenTensorHandle>(stack[0])), k(brim::binding::optional_tensor(stack[1]));
  const Call call(stack + 2);
  const bool in_place = to<bool>(stack[7]);
  const auto out = [&](AtenTensorHandle x) {
    return in_place || !x ? Handle() : brim::binding::empty_in_order(x, brim::binding::kOrderOfInput);
  };
  const Handle q_out = out(q.get()), k_out = out(k.get());
  const brim::RopeArgs args =
      call.arguments(q.get(), k.get(), in_place ? q.get() : q_out.get(), in_place ? k.get() : k_out.get());
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

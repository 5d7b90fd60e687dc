// torch.ops.brim.rope, rope_one (no k) and rope_ (in place): brim.rope's C++ side. Backward passes call the
// same ops.
#include <torch/csrc/stable/library.h>

#include <string>
#include <tuple>
#include <utility>

#include "convert.h"

namespace {

using brim::binding::Tensor;

// The options of a call in one number, since every argument of an op costs a call a tenth of a microsecond and
// more: rotary_dim in 32 bits, then layout and pairing in 2 each, inverse and sections_interleaved in 1. Three
// sections of 21 bits in another; no sections: 0. python/brim/_rope.py packs them.
brim::RopeArgs arguments(const Tensor& q, const Tensor& cos, const Tensor& sin,
                         const std::optional<Tensor>& positions, int64_t options, int64_t sections) {
  brim::RopeArgs args;
  args.q = brim::binding::input(q);
  args.cos = brim::binding::input(cos);
  args.sin = brim::binding::input(sin);
  args.positions = brim::binding::input(positions);
  args.rotary_dim = options & 0xffffffff;
  args.layout = static_cast<brim_rope_layout>(options >> 32 & 3);
  args.pairing = static_cast<brim_rope_pairing>(options >> 34 & 3);
  args.inverse = options >> 36 & 1;
  args.sections_interleaved = options >> 37 & 1;
  for (int i = 0; i < 3; ++i) args.sections[i] = static_cast<int32_t>(sections >> 21 * i & 0x1fffff);
  args.run.stream = brim::binding::current_stream(q);
  return args;
}

// Two orders (convert.h) in one number.
std::tuple<Tensor, Tensor> rope(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin,
                                const std::optional<Tensor>& positions, int64_t options, int64_t sections,
                                int64_t orders) {
  brim::RopeArgs args = arguments(q, cos, sin, positions, options, sections);
  Tensor q_out = brim::binding::empty_in_order(q, static_cast<int32_t>(orders)),
         k_out = brim::binding::empty_in_order(k, static_cast<int32_t>(orders >> 32));
  args.k = brim::binding::input(k);
  args.q_out = brim::binding::output(q_out);
  args.k_out = brim::binding::output(k_out);
  brim::binding::raise(brim::rope_forward(args));
  return {std::move(q_out), std::move(k_out)};
}

Tensor rope_one(const Tensor& x, const Tensor& cos, const Tensor& sin, const std::optional<Tensor>& positions,
                int64_t options, int64_t sections, int64_t order) {
  brim::RopeArgs args = arguments(x, cos, sin, positions, options, sections);
  Tensor out = brim::binding::empty_in_order(x, order);
  args.q_out = brim::binding::output(out);
  brim::binding::raise(brim::rope_forward(args));
  return out;
}

void rope_in_place(const Tensor& q, const std::optional<Tensor>& k, const Tensor& cos, const Tensor& sin,
                   const std::optional<Tensor>& positions, int64_t options, int64_t sections) {
  brim::RopeArgs args = arguments(q, cos, sin, positions, options, sections);
  args.q = args.q_out = brim::binding::output(q);
  args.k = args.k_out = brim::binding::output(k);
  brim::binding::raise(brim::rope_forward(args));
}

// What describe_plan says of the same call, for brim.bench.
std::string rope_plan(const Tensor& q, const std::optional<Tensor>& k, const Tensor& cos, const Tensor& sin,
                      const std::optional<Tensor>& positions, int64_t options, int64_t sections,
                      bool in_place) {
  brim::RopeArgs args = arguments(q, cos, sin, positions, options, sections);
  const auto out = [&](const Tensor& x) {
    return in_place ? x : brim::binding::empty_in_order(x, brim::binding::kOrderOfInput);
  };
  const Tensor q_out = out(q);
  const std::optional<Tensor> k_out = k ? std::optional(out(*k)) : std::nullopt;
  args.k = brim::binding::input(k);
  args.q_out = brim::binding::output(q_out);
  args.k_out = brim::binding::output(k_out);
  char plan[256] = "";
  brim::binding::raise(brim_describe_plan(BRIM_OP_rope_forward, &args, plan, sizeof plan));
  return plan;
}

#define BRIM_ROPE_OPTIONS "Tensor cos, Tensor sin, Tensor? position_ids, int options, int sections"

STABLE_TORCH_LIBRARY_FRAGMENT(brim, m) {
  m.def("rope(Tensor q, Tensor k, " BRIM_ROPE_OPTIONS ", int orders) -> (Tensor, Tensor)");
  m.def("rope_one(Tensor x, " BRIM_ROPE_OPTIONS ", int order) -> Tensor");
  m.def("rope_(Tensor(a!) q, Tensor(b!)? k, " BRIM_ROPE_OPTIONS ") -> ()");
  m.def("_rope_plan(Tensor q, Tensor? k, " BRIM_ROPE_OPTIONS ", bool inplace) -> str");
}

void implement(torch::stable::detail::StableLibrary& m) {
  m.impl("rope", TORCH_BOX(&rope));
  m.impl("rope_one", TORCH_BOX(&rope_one));
  m.impl("rope_", TORCH_BOX(&rope_in_place));
  m.impl("_rope_plan", TORCH_BOX(&rope_plan));
}

STABLE_TORCH_LIBRARY_IMPL(brim, CPU, m) { implement(m); }
#ifdef USE_CUDA
STABLE_TORCH_LIBRARY_IMPL(brim, CUDA, m) { implement(m); }
#endif

}  // namespace

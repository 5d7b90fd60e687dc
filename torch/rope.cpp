// torch.ops.brim.rope, rope_one (no k) and rope_ (in place): brim.rope's C++ side. Backward passes call the
// same ops.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "convert.h"

namespace {

using brim::binding::Tensor;
using Sections = std::optional<std::vector<int64_t>>;

brim::RopeArgs arguments(const Tensor& q, const Tensor& cos, const Tensor& sin,
                         const std::optional<Tensor>& positions, int64_t rotary_dim, const Sections& sections,
                         bool sections_interleaved, int64_t layout, int64_t pairing, bool inverse) {
  brim::RopeArgs args;
  args.q = brim::binding::input(q);
  args.cos = brim::binding::input(cos);
  args.sin = brim::binding::input(sin);
  args.positions = brim::binding::input(positions);
  args.rotary_dim = rotary_dim;
  if (sections) {
    if (sections->size() != 3) throw std::invalid_argument("rope: sections needs 3 entries, one an axis");
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    for (int i = 0; i < 3; ++i)
      args.sections[i] = static_cast<int32_t>(std::clamp((*sections)[i], -most, most));
  }
  args.sections_interleaved = sections_interleaved;
  args.layout = static_cast<brim_rope_layout>(layout);
  args.pairing = static_cast<brim_rope_pairing>(pairing);
  args.inverse = inverse;
  args.run.stream = brim::binding::current_stream(q);
  return args;
}

std::tuple<Tensor, Tensor> rope(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin,
                                const std::optional<Tensor>& positions, int64_t rotary_dim,
                                const Sections& sections, bool sections_interleaved, int64_t layout,
                                int64_t pairing, bool inverse, int64_t q_order, int64_t k_order) {
  brim::RopeArgs args =
      arguments(q, cos, sin, positions, rotary_dim, sections, sections_interleaved, layout, pairing, inverse);
  Tensor q_out = brim::binding::empty_in_order(q, q_order), k_out = brim::binding::empty_in_order(k, k_order);
  args.k = brim::binding::input(k);
  args.q_out = brim::binding::output(q_out);
  args.k_out = brim::binding::output(k_out);
  brim::binding::raise(brim::rope_forward(args));
  return {q_out, k_out};
}

Tensor rope_one(const Tensor& x, const Tensor& cos, const Tensor& sin, const std::optional<Tensor>& positions,
                int64_t rotary_dim, const Sections& sections, bool sections_interleaved, int64_t layout,
                int64_t pairing, bool inverse, int64_t order) {
  brim::RopeArgs args =
      arguments(x, cos, sin, positions, rotary_dim, sections, sections_interleaved, layout, pairing, inverse);
  Tensor out = brim::binding::empty_in_order(x, order);
  args.q_out = brim::binding::output(out);
  brim::binding::raise(brim::rope_forward(args));
  return out;
}

void rope_in_place(const Tensor& q, const std::optional<Tensor>& k, const Tensor& cos, const Tensor& sin,
                   const std::optional<Tensor>& positions, int64_t rotary_dim, const Sections& sections,
                   bool sections_interleaved, int64_t layout, int64_t pairing, bool inverse) {
  brim::RopeArgs args =
      arguments(q, cos, sin, positions, rotary_dim, sections, sections_interleaved, layout, pairing, inverse);
  args.q = args.q_out = brim::binding::output(q);
  args.k = args.k_out = brim::binding::output(k);
  brim::binding::raise(brim::rope_forward(args));
}

// What describe_plan says of the same call, for brim.bench.
std::string rope_plan(const Tensor& q, const std::optional<Tensor>& k, const Tensor& cos, const Tensor& sin,
                      const std::optional<Tensor>& positions, int64_t rotary_dim, const Sections& sections,
                      bool sections_interleaved, int64_t layout, int64_t pairing, bool inverse,
                      bool in_place) {
  brim::RopeArgs args =
      arguments(q, cos, sin, positions, rotary_dim, sections, sections_interleaved, layout, pairing, inverse);
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

#define BRIM_ROPE_OPTIONS                                                                \
  "Tensor cos, Tensor sin, Tensor? position_ids, int rotary_dim, int[]? sections, bool " \
  "sections_interleaved, "                                                               \
  "int layout, int pairing, bool inverse"

STABLE_TORCH_LIBRARY_FRAGMENT(brim, m) {
  m.def("rope(Tensor q, Tensor k, " BRIM_ROPE_OPTIONS ", int q_order, int k_order) -> (Tensor, Tensor)");
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

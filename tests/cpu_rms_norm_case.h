// Calls of the norms on the CPU backend, as a caller makes them or cut up for other caches and threads.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "brim/brim.hpp"
#include "cpu/rms_norm.h"
#include "cpu_tensor.h"

namespace brim::test {

struct NormSpec {
  bool add = false, backward = false;
  brim_dtype x = BRIM_FLOAT32, s = BRIM_FLOAT32, weight = BRIM_FLOAT32;  // s: of residual and sum
  int64_t outer = 1, rows = 5, hidden = 64;                              // outer x rows x hidden
  int64_t gap = 0, step = 1, shift = 0;  // after each row, between columns, before the first element
  brim_rms_norm_casting casting = BRIM_CASTING_LLAMA;
  double offset = 0;
  bool rstd = true, dy = true, dsum = true, dx = true, dresidual = true, dweight = true;
};

class NormCase {
 public:
  // In the order of the outputs: y, sum, rstd, dx, dresidual, dweight. Absent ones have no view.
  using Outputs = std::vector<Tensor>;

  explicit NormCase(const NormSpec& spec, uint64_t seed = 1) : spec_(spec) {
    std::mt19937_64 random(seed);
    const bool forward = !spec.backward;
    x = rows_of(forward || !spec.add, spec.x, 0);
    residual = rows_of(forward && spec.add, spec.s, 0);
    sum = rows_of(spec.backward && spec.add, spec.s, 0);
    dy = rows_of(spec.backward && spec.dy, spec.x, 0);
    dsum = rows_of(spec.backward && spec.add && spec.dsum, spec.s, 0);
    if (spec.weight) weight = Tensor(spec.weight, {spec.hidden}, {1}, spec.shift, 0);
    if (spec.backward && spec.dy) rstd = Tensor(rstd_type(), {spec.outer * spec.rows}, {1}, 0, 0);
    for (Tensor* t : {&x, &residual, &sum, &dy, &dsum, &weight, &rstd}) t->fill(random);
  }

  // Through the C interface, on a path or the reference.
  Outputs call(const char* path, bool reference = false) const {
    Outputs out = outputs();
    RmsNormArgs a = args(out);
    a.run.backend = reference ? BRIM_BACKEND_REFERENCE : BRIM_BACKEND_CPU;
    a.run.path = reference ? nullptr : path;
    size_t bytes = 0;
    EXPECT_EQ(brim_workspace_size(op(), &a, &bytes).code, BRIM_OK);
    Tensor space(BRIM_FLOAT32, {static_cast<int64_t>(bytes / 4)}, {1}, 4);  // aligned to 16 bytes
    a.workspace = space.view().data;
    a.workspace_bytes = bytes;
    const Status status = run(a);
    EXPECT_EQ(status.code, BRIM_OK) << status.message;
    EXPECT_TRUE(space.canaries_intact());
    check_outside(out);
    return out;
  }

  // As if the caches held nothing, in pieces of one unit; the last come first.
  Outputs cut(const char* path, cpu::RowWriting* writing = nullptr) const {
    cpu::Isa isa{};
    EXPECT_EQ(cpu::choose_isa("test", path, &isa).code, BRIM_OK);
    const cpu::RmsNormBodies& bodies = cpu::rms_norm_bodies(isa);
    Outputs out = outputs();
    const RmsNormArgs a = args(out);
    cpu::RmsNormPlan plan =
        cpu::make_rms_norm_plan(a, ops::make_rms_norm_problem(a, spec_.add, spec_.backward), 3, 0);
    if (writing) *writing = plan.call.writing;
    std::vector<double> factors(spec_.hidden), paired(spec_.hidden);
    Tensor space(BRIM_FLOAT32, {plan.workspace_bytes / 4}, {1}, 4);
    plan.call.factors = factors.data();
    plan.call.paired_factors = paired.data();
    if (plan.workspace_bytes) plan.call.partials = space.view().data;
    bodies.factors(plan.call);
    for (int64_t i = plan.units; i-- > 0;)
      (spec_.backward ? bodies.backward : bodies.forward)(plan.call, i, i + 1);
    for (int64_t i = plan.column_groups; i-- > 0;) bodies.dweight(plan.call, i, i + 1);
    EXPECT_TRUE(space.canaries_intact());
    check_outside(out);
    return out;
  }

  std::string describe() const {
    const auto number = [](const char* name, int64_t n) {
      return std::string(" ") + name + std::to_string(n);
    };
    return std::string(spec_.add ? "add " : "") + (spec_.backward ? "backward" : "forward") +
           number("x", spec_.x) + number("s", spec_.s) + number("w", spec_.weight) +
           number("outer ", spec_.outer) + number("rows ", spec_.rows) + number("hidden ", spec_.hidden) +
           number("gap ", spec_.gap) + number("step ", spec_.step) + number("shift ", spec_.shift) +
           number("casting ", spec_.casting);
  }

  Tensor x, residual, sum, dy, dsum, weight, rstd;

 private:
  brim_op op() const {
    if (spec_.add) return spec_.backward ? BRIM_OP_add_rms_norm_backward : BRIM_OP_add_rms_norm_forward;
    return spec_.backward ? BRIM_OP_rms_norm_backward : BRIM_OP_rms_norm_forward;
  }
  Status run(const RmsNormArgs& a) const {
    if (spec_.add) return spec_.backward ? add_rms_norm_backward(a) : add_rms_norm_forward(a);
    return spec_.backward ? rms_norm_backward(a) : rms_norm_forward(a);
  }
  brim_dtype rstd_type() const { return spec_.x == BRIM_FLOAT64 ? BRIM_FLOAT64 : BRIM_FLOAT32; }

  Tensor rows_of(bool is, brim_dtype dtype, size_t tail = Tensor::kGuard) const {
    if (!is) return {};
    const int64_t row = spec_.hidden * spec_.step + spec_.gap;
    return Tensor(dtype, {spec_.outer, spec_.rows, spec_.hidden},
                  {spec_.rows * row + spec_.gap, row, spec_.step}, spec_.shift, tail);
  }
  Outputs outputs() const {
    Outputs out(6);
    const bool forward = !spec_.backward;
    out[0] = rows_of(forward, spec_.x);
    out[1] = rows_of(forward && spec_.add, spec_.s);
    if (forward && spec_.rstd) out[2] = Tensor(rstd_type(), {spec_.outer * spec_.rows}, {1});
    out[3] = rows_of(spec_.backward && spec_.dx, spec_.x);
    out[4] = rows_of(spec_.backward && spec_.add && spec_.dresidual, spec_.s);
    if (spec_.backward && spec_.weight && spec_.dweight)
      out[5] = Tensor(spec_.weight, {spec_.hidden}, {1}, spec_.shift);
    return out;
  }
  RmsNormArgs args(const Outputs& out) const {
    RmsNormArgs a;
    a.x = x.view();
    a.residual = residual.view();
    a.sum = spec_.backward ? sum.view() : out[1].view();
    a.weight = weight.view();
    a.rstd = spec_.backward ? rstd.view() : out[2].view();
    a.dy = dy.view();
    a.dsum = dsum.view();
    a.y = out[0].view();
    a.dx = out[3].view();
    a.dresidual = out[4].view();
    a.dweight = out[5].view();
    a.eps = 1e-6;
    a.offset = spec_.offset;
    a.casting = spec_.casting;
    return a;
  }
  void check_outside(const Outputs& out) const {
    for (const Tensor& t : out) EXPECT_TRUE(t.canaries_intact()) << describe();
  }

  NormSpec spec_;
};

}  // namespace brim::test

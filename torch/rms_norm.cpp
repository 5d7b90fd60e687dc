// torch.ops.brim.rms_norm, add_rms_norm and the ops of their backward passes: the C++ side of brim.rms_norm and
// brim.add_rms_norm. `_rstd` marks the forward ops that keep what backward needs; a backward op is named after the
// gradients that it makes: dx, dr (of the residual, where its type is not x's) and dw.
#include <torch/csrc/stable/library.h>

#include <stdexcept>
#include <string>

#include "convert.h"
#include "entry/entry.h"

namespace {

using brim::binding::empty_like;
using brim::binding::Facts;
using brim::binding::Handle;
using brim::binding::input;
using brim::binding::Made;
using torch::stable::detail::to;

// What rstd is to the core, which knows rows by number: one axis. PyTorch sees the axes of the rows (convert.h's
// rstd_of), so that a tensor that is sharded along one of them has an rstd that is sharded alike.
brim::TensorView rows_in_a_line(brim::TensorView rstd) {
  int64_t rows = 1;
  for (int i = 0; i < rstd.rank; ++i) rows *= rstd.shape[i];
  rstd.rank = 1;
  rstd.shape[0] = rows;
  rstd.strides[0] = 1;
  return rstd;
}

// (x, residual of the add, weight or none, eps, offset, casting) -> y, the sum of the add, rstd if it is kept
template <bool kAdd, bool kRstd>
void forward(StableIValue* stack, uint64_t, uint64_t) {
  int at = 0;
  const Handle x_tensor(to<AtenTensorHandle>(stack[at++])),
      residual_tensor(kAdd ? to<AtenTensorHandle>(stack[at++]) : nullptr),
      weight = brim::binding::optional_tensor(stack[at++]);
  const Facts x(x_tensor), residual(residual_tensor);
  brim::RmsNormArgs args;
  args.eps = to<double>(stack[at++]);
  args.offset = to<double>(stack[at++]);
  args.casting = static_cast<brim_rms_norm_casting>(to<int64_t>(stack[at]));
  Made y = empty_like(x), sum = empty_like(residual), rstd = kRstd ? brim::binding::empty_rstd(x) : Made();
  args.x = input(x);
  args.residual = input(residual);
  args.weight = input(weight);
  args.y = y.view;
  args.sum = sum.view;
  if (kRstd) args.rstd = rows_in_a_line(rstd.view);
  args.run.stream = brim::binding::current_stream(x);
  brim::binding::raise(kAdd ? brim::add_rms_norm_forward(args) : brim::rms_norm_forward(args));
  at = 0;
  stack[at++] = brim::binding::give(y);
  if (kAdd) stack[at++] = brim::binding::give(sum);
  if (kRstd) stack[at] = brim::binding::give(rstd);
}

enum Wants : unsigned { kDx = 1, kDr = 2, kDw = 4 };

template <bool kAdd>
void run_with_workspace(brim::RmsNormArgs& args, const Facts& like) {
  brim::entry::Prepared call;
  brim::binding::raise(
      brim::entry::prepare(kAdd ? BRIM_OP_add_rms_norm_backward : BRIM_OP_rms_norm_backward, &args, &call));
  const Made workspace = brim::binding::empty_bytes(like, call.workspace_bytes);
  args.workspace = workspace.view.data;
  args.workspace_bytes = call.workspace_bytes;
  brim::binding::raise(brim::entry::run(call, &args));
}

// (dy, dsum or none of the add, x or the sum, weight or none, rstd, offset) -> the gradients that kWants names
template <bool kAdd, unsigned kWants>
void backward(StableIValue* stack, uint64_t, uint64_t) {
  int at = 0;
  const Handle dy_tensor(to<AtenTensorHandle>(stack[at++])),
      dsum(kAdd ? brim::binding::optional_tensor(stack[at++]) : Handle()),
      rows_tensor(to<AtenTensorHandle>(stack[at++])),
      weight_tensor = brim::binding::optional_tensor(stack[at++]), rstd(to<AtenTensorHandle>(stack[at++]));
  if (kWants & kDw && !weight_tensor.get())
    throw std::invalid_argument("rms_norm_backward: dweight is wanted without weight");
  const Facts dy(dy_tensor), rows(rows_tensor), weight(weight_tensor);
  brim::RmsNormArgs args;
  args.offset = to<double>(stack[at]);
  // As the rows are laid out, which gradients mostly are not: they are accumulated into the gradient of what made
  // the rows.
  Made dx = kWants & kDx ? empty_like(rows, dy.dtype) : Made(), dr = kWants & kDr ? empty_like(rows) : Made(),
       dw = kWants & kDw ? empty_like(weight) : Made();
  bool contiguous;
  TORCH_ERROR_CODE_CHECK(aoti_torch_is_contiguous(rstd.get(), &contiguous));
  if (!contiguous) throw std::invalid_argument("rms_norm_backward: rstd is not contiguous");
  (kAdd ? args.sum : args.x) = input(rows);
  args.dy = input(dy);
  args.dsum = input(dsum);
  args.weight = input(weight);
  args.rstd = rows_in_a_line(input(rstd));
  args.dx = dx.view;
  args.dresidual = dr.view;
  args.dweight = dw.view;
  args.run.stream = brim::binding::current_stream(dy);
  if (kWants & kDw)
    run_with_workspace<kAdd>(args, dy);
  else
    brim::binding::raise(kAdd ? brim::add_rms_norm_backward(args) : brim::rms_norm_backward(args));
  at = 0;
  if (kWants & kDx) stack[at++] = brim::binding::give(dx);
  if (kWants & kDr) stack[at++] = brim::binding::give(dr);
  if (kWants & kDw) stack[at] = brim::binding::give(dw);
}

// (x, residual or none, weight or none, backward): what describe_plan says of such a call, for brim.bench.
void plan(StableIValue* stack, uint64_t, uint64_t) {
  const Handle x_tensor(to<AtenTensorHandle>(stack[0])),
      residual_tensor = brim::binding::optional_tensor(stack[1]),
      weight_tensor = brim::binding::optional_tensor(stack[2]);
  const Facts x(x_tensor), residual(residual_tensor), weight(weight_tensor);
  const bool add = residual.tensor, back = to<bool>(stack[3]);
  const Made y = empty_like(x), sum = empty_like(residual), rstd = brim::binding::empty_rstd(x),
             dw = empty_like(weight);
  brim::RmsNormArgs args;
  args.weight = input(weight);
  args.rstd = rows_in_a_line(rstd.view);
  if (back) {
    (add ? args.sum : args.x) = add ? sum.view : input(x);
    args.dy = input(x);
    if (add) args.dsum = input(residual);
    args.dx = y.view;
    args.dweight = dw.view;
  } else {
    args.x = input(x);
    args.residual = input(residual);
    args.sum = sum.view;
    args.y = y.view;
  }
  const brim_op op = add    ? back ? BRIM_OP_add_rms_norm_backward : BRIM_OP_add_rms_norm_forward
                     : back ? BRIM_OP_rms_norm_backward
                            : BRIM_OP_rms_norm_forward;
  char text[256] = "";
  brim::binding::raise(brim_describe_plan(op, &args, text, sizeof text));
  stack[0] = torch::stable::detail::from(std::string(text));
}

#define BRIM_OPTIONS "Tensor? weight, float eps, float offset=0.0, int casting=0) -> "
#define BRIM_NORM "(Tensor x, " BRIM_OPTIONS
#define BRIM_ADD "(Tensor x, Tensor residual, " BRIM_OPTIONS
#define BRIM_KEPT "Tensor? weight, Tensor rstd, float offset=0.0) -> "
#define BRIM_NORM_BACK "(Tensor dy, Tensor x, " BRIM_KEPT
#define BRIM_ADD_BACK "(Tensor dy, Tensor? dsum, Tensor sum, " BRIM_KEPT

STABLE_TORCH_LIBRARY_FRAGMENT(brim, m) {
  m.def("rms_norm" BRIM_NORM "Tensor");
  m.def("rms_norm_rstd" BRIM_NORM "(Tensor, Tensor)");
  m.def("rms_norm_dx" BRIM_NORM_BACK "Tensor");
  m.def("rms_norm_dw" BRIM_NORM_BACK "Tensor");
  m.def("rms_norm_dx_dw" BRIM_NORM_BACK "(Tensor, Tensor)");
  m.def("add_rms_norm" BRIM_ADD "(Tensor, Tensor)");
  m.def("add_rms_norm_rstd" BRIM_ADD "(Tensor, Tensor, Tensor)");
  m.def("add_rms_norm_dx" BRIM_ADD_BACK "Tensor");
  m.def("add_rms_norm_dw" BRIM_ADD_BACK "Tensor");
  m.def("add_rms_norm_dx_dw" BRIM_ADD_BACK "(Tensor, Tensor)");
  m.def("add_rms_norm_dx_dr" BRIM_ADD_BACK "(Tensor, Tensor)");
  m.def("add_rms_norm_dx_dr_dw" BRIM_ADD_BACK "(Tensor, Tensor, Tensor)");
  m.def("_rms_norm_plan(Tensor x, Tensor? residual, Tensor? weight, bool backward) -> str");
}

void implement(torch::stable::detail::StableLibrary& m) {
  m.impl("rms_norm", forward<false, false>);
  m.impl("rms_norm_rstd", forward<false, true>);
  m.impl("rms_norm_dx", backward<false, kDx>);
  m.impl("rms_norm_dw", backward<false, kDw>);
  m.impl("rms_norm_dx_dw", backward<false, kDx | kDw>);
  m.impl("add_rms_norm", forward<true, false>);
  m.impl("add_rms_norm_rstd", forward<true, true>);
  m.impl("add_rms_norm_dx", backward<true, kDx>);
  m.impl("add_rms_norm_dw", backward<true, kDw>);
  m.impl("add_rms_norm_dx_dw", backward<true, kDx | kDw>);
  m.impl("add_rms_norm_dx_dr", backward<true, kDx | kDr>);
  m.impl("add_rms_norm_dx_dr_dw", backward<true, kDx | kDr | kDw>);
  m.impl("_rms_norm_plan", plan);
}

STABLE_TORCH_LIBRARY_IMPL(brim, CPU, m) { implement(m); }
#ifdef USE_CUDA
STABLE_TORCH_LIBRARY_IMPL(brim, CUDA, m) { implement(m); }
#endif

}  // namespace

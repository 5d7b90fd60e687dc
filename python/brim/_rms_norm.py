"""brim.rms_norm and brim.add_rms_norm, forward and backward.

The ops (torch/rms_norm.cpp) convert tensors and call the core, which checks shapes and numbers. Here are the autograd
Functions, what the core cannot see (types as TypeError) and the ops' fakes.
"""

import torch
from torch import Tensor
from torch.compiler import is_compiling, is_dynamo_compiling

from ._autograd import lean, op_forms, recorder
from ._layout import empty_in_order
from ._rms_norm_checks import ADD_CPU_TYPES, ADD_TYPES, CASTINGS, CPU_TYPES, TYPES, casting_error, number, type_error
from ._rms_norm_formula import gradients
from ._sharding import learn_shardings

_traced, _eager = op_forms(
    "rms_norm",
    "rms_norm_rstd",
    "rms_norm_dx",
    "rms_norm_dw",
    "rms_norm_dx_dw",
    "add_rms_norm",
    "add_rms_norm_rstd",
    "add_rms_norm_dx",
    "add_rms_norm_dw",
    "add_rms_norm_dx_dw",
    "add_rms_norm_dx_dr",
    "add_rms_norm_dx_dr_dw",
)


def rms_norm(x, weight=None, eps=1e-6, *, offset=0.0, casting="llama"):
    """RMSNorm over the last axis: y = x * rstd * (offset + weight), rstd = 1 / sqrt(mean(x^2) + eps).

    x is (...,H), of 1 to 5 axes and any strides; float32, bfloat16 or float16 (float64 on the CPU). weight is (H) or
    None, which stands for a factor of 1 whatever the offset; float32, x's type, or 16 bits beside float32. y has x's
    shape, type and layout in memory, under autocast as well.

    Computed in float32. casting says where else than into y it is rounded: "llama" rounds x * rstd to x's type before
    the product with the weight, as the model code of Llama, Qwen and Mistral does; "gemma" (whose offset is 1) and
    "none" round only once. eps is added in float32; it does not depend on any type.

    Under autograd x, weight and rstd (a number a row) are kept. The gradient of the weight has the weight's type and is
    summed in float32 in a fixed order; it is not computed for a weight that does not require grad, nor is that of x.

    ValueError for shapes and numbers, TypeError for types and what is no tensor, RuntimeError for devices.
    """
    try:
        types = x.dtype, None if weight is None else weight.dtype
    except AttributeError:
        types = None
    if types not in TYPES and (types not in CPU_TYPES or x.is_cuda):
        raise type_error("rms_norm", x=x, weight=weight)
    if type(eps) is not float or type(offset) is not float:
        eps, offset = number("rms_norm", eps=eps), number("rms_norm", offset=offset)
    try:
        casting = CASTINGS[casting]
    except (KeyError, TypeError):  # a list, say, is no key
        raise casting_error("rms_norm", casting) from None
    ops = _traced if is_dynamo_compiling() else _eager
    # What an op does by default need not be converted for it.
    options = (eps,) if ops is _eager and not (casting or offset) else (eps, offset, casting)
    if x.__class__ is not Tensor:
        learn_shardings()
    apply = recorder(_RmsNorm, x, weight)
    if apply is not None:
        return apply(x, weight, options)
    return ops.rms_norm(x, weight, *options)


def add_rms_norm(x, residual, weight=None, eps=1e-6, *, offset=0.0, casting="llama"):
    """Adds x to the residual stream and normalises the sum, in one pass. Returns (y, residual).

    S = x + residual, rounded to the residual's type; y = rms_norm(S), of the rounded sum. S is what is returned for the
    residual: a new tensor, the inputs stay as they are. x and residual are (...,H) of one shape; the residual has x's
    type or float32, S has the residual's, y has x's. Under casting "llama" S * rstd is rounded to the type of S. All
    else is as brim.rms_norm says.

    Under autograd S, weight and rstd are kept, so S must not be changed in place before the backward pass. x and
    residual have one gradient, that of S, each in its own type.
    """
    try:
        types = x.dtype, residual.dtype, None if weight is None else weight.dtype
    except AttributeError:
        types = None
    if types not in ADD_TYPES and (types not in ADD_CPU_TYPES or x.is_cuda):
        raise type_error("add_rms_norm", x=x, residual=residual, weight=weight)
    if type(eps) is not float or type(offset) is not float:
        eps, offset = number("add_rms_norm", eps=eps), number("add_rms_norm", offset=offset)
    try:
        casting = CASTINGS[casting]
    except (KeyError, TypeError):
        raise casting_error("add_rms_norm", casting) from None
    ops = _traced if is_dynamo_compiling() else _eager
    # What an op does by default need not be converted for it.
    options = (eps,) if ops is _eager and not (casting or offset) else (eps, offset, casting)
    if x.__class__ is not Tensor:
        learn_shardings()
    apply = recorder(_AddRmsNorm, x, residual, weight)
    if apply is not None:
        if residual is x:  # torch.compile loses a gradient of a tensor that a Function takes twice (torch 2.11)
            residual = residual.view_as(residual)
        return apply(x, residual, weight, options)
    return ops.add_rms_norm(x, residual, weight, *options)


@lean
class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, options):
        ops = _traced if is_dynamo_compiling() else _eager
        y, rstd = ops.rms_norm_rstd(x, weight, *options)
        ctx.save_for_backward(x, weight, rstd)
        ctx.options = options
        return y

    @staticmethod
    def backward(ctx, dy):
        wants_x, wants_weight, _ = ctx.needs_input_grad
        x, weight, rstd = ctx.saved_tensors
        offset = ctx.options[1:2]
        ops = _traced if is_dynamo_compiling() else _eager
        dx = dw = None
        if torch.is_grad_enabled() and not is_compiling():  # create_graph
            dx, dw = gradients(dy, x, weight, *ctx.options[:2])
            dx = dx.to(x.dtype)
        elif wants_x and wants_weight:
            dx, dw = ops.rms_norm_dx_dw(dy, x, weight, rstd, *offset)
        elif wants_x:
            dx = ops.rms_norm_dx(dy, x, weight, rstd, *offset)
        elif wants_weight:
            dw = ops.rms_norm_dw(dy, x, weight, rstd, *offset)
        return dx, dw, None


@lean
class _AddRmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, options):
        ops = _traced if is_dynamo_compiling() else _eager
        y, total, rstd = ops.add_rms_norm_rstd(x, residual, weight, *options)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(total, weight, rstd)
        ctx.options, ctx.x_dtype = options, x.dtype
        if not (x.requires_grad or residual.requires_grad):  # the weight alone does
            ctx.mark_non_differentiable(total)
        return y, total

    @staticmethod
    def backward(ctx, dy, dsum):
        wants_x, wants_residual, wants_weight, _ = ctx.needs_input_grad
        wants_sum = wants_x or wants_residual
        total, weight, rstd = ctx.saved_tensors
        offset, x_dtype = ctx.options[1:2], ctx.x_dtype
        ops = _traced if is_dynamo_compiling() else _eager
        dx = dr = dw = None
        if dy is None:
            dr = dsum
            dw = torch.zeros_like(weight) if wants_weight else None
        elif torch.is_grad_enabled() and not is_compiling():  # create_graph
            dr, dw = gradients(dy, total, weight, *ctx.options[:2])
            dr = (dr if dsum is None else dr + dsum).to(total.dtype)
        elif wants_residual and x_dtype != total.dtype:
            if wants_weight:
                dx, dr, dw = ops.add_rms_norm_dx_dr_dw(dy, dsum, total, weight, rstd, *offset)
            else:
                dx, dr = ops.add_rms_norm_dx_dr(dy, dsum, total, weight, rstd, *offset)
        elif wants_sum and wants_weight:
            dx, dw = ops.add_rms_norm_dx_dw(dy, dsum, total, weight, rstd, *offset)
        elif wants_sum:
            dx = ops.add_rms_norm_dx(dy, dsum, total, weight, rstd, *offset)
        elif wants_weight:
            dw = ops.add_rms_norm_dw(dy, dsum, total, weight, rstd, *offset)
        if dx is None and dr is not None:
            dx = dr.to(x_dtype)
        elif dr is None:
            dr = dx
        return dx if wants_x else None, dr if wants_residual else None, dw, None


def _empty_rstd(x):
    return x.new_empty(x.shape[:-1], dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)


@torch.library.register_fake("brim::rms_norm")
def _(x, weight, *options):
    return empty_in_order(x)


@torch.library.register_fake("brim::rms_norm_rstd")
def _(x, weight, *options):
    return empty_in_order(x), _empty_rstd(x)


@torch.library.register_fake("brim::add_rms_norm")
def _(x, residual, weight, *options):
    return empty_in_order(x), empty_in_order(residual)


@torch.library.register_fake("brim::add_rms_norm_rstd")
def _(x, residual, weight, *options):
    return empty_in_order(x), empty_in_order(residual), _empty_rstd(x)


def _register_backward(name, has_dsum):
    def make(dy, rows, weight, *options):
        empty = {
            "dx": lambda: empty_in_order(rows, dtype=dy.dtype),
            "dr": lambda: empty_in_order(rows),
            "dw": lambda: empty_in_order(weight),
        }
        made = tuple(empty[which]() for which in name.split("norm_")[1].split("_"))
        return made if len(made) > 1 else made[0]

    fake = (lambda dy, dsum, *rest: make(dy, *rest)) if has_dsum else make
    torch.library.register_fake(f"brim::{name}", fake)


for _name in ("rms_norm_dx", "rms_norm_dw", "rms_norm_dx_dw"):
    _register_backward(_name, has_dsum=False)
    _register_backward(f"add_{_name}", has_dsum=True)
for _name in ("add_rms_norm_dx_dr", "add_rms_norm_dx_dr_dw"):
    _register_backward(_name, has_dsum=True)

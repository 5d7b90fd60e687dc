"""brim.rope: rotary position embedding of queries and keys, forward and backward, out of place and in place.

The ops (torch/rope.cpp) convert tensors and call the core, which checks shapes, strides and options. Here are the
autograd Functions, what the core cannot see (types as TypeError, leaves, version counters) and the ops' fakes.
"""

import torch
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from ._autograd import lean, recorder
from ._checks import is_integer
from ._layout import ORDER_OF_INPUT, axis_order, empty_in_order
from ._rope_checks import CPU_TYPES, TYPES, check_positions, option_error, packed_sections, type_error

_creation_meta = torch._C._autograd._get_creation_meta
_ORDINARY_VIEW = torch._C._autograd.CreationMeta.DEFAULT

_rope = torch.ops.brim.rope.default
_rope_one = torch.ops.brim.rope_one.default
_rope_in_place = torch.ops.brim.rope_.default

# The options in one number (torch/rope.cpp takes it apart): rotary_dim, and above it these.
_LAYOUTS = {"bhsd": 0, "bshd": 1 << 32, "thd": 2 << 32}
_PAIRINGS = {False: 0, True: 1 << 34, "to_half": 2 << 34}
INVERSE = 1 << 36
_SECTIONS_INTERLEAVED = 1 << 37


def rope(
    q,
    k,
    cos,
    sin,
    *,
    position_ids=None,
    layout="bhsd",
    interleaved=False,
    rotary_dim=None,
    sections=None,
    sections_interleaved=False,
    inverse=False,
    inplace=False,
):
    """Rotates pairs of elements of every query and key head by the angles of their token. Returns (q, k).

    q and k are (b,h,s,d) and (b,hk,s,d) for layout "bhsd", (b,s,h,d) for "bshd", (t,h,d) for "thd"; views of any
    strides, float32, bfloat16 or float16, each with a result of its own type (float64 on the CPU, with float64 tables).
    k may be None, and comes back as None.

    cos, sin: (s,w), (1,s,w) or (b,s,w); or a table (rows,w) with `position_ids` (s), (1,s), (b,s) or (t), int32 or
    int64; or (3,b,s,w) with `sections` (mRoPE: how many columns take each axis; in blocks, or with
    `sections_interleaved` in turns as in Qwen3-VL). No gradient flows to them.
    interleaved: False pairs elements j and j + r/2, w = r or r/2; True pairs 2j and 2j + 1; "to_half" reads those and
    writes j and j + r/2 (DeepSeek); w = r/2 for both.
    rotary_dim: r, the width that is rotated; the elements beyond pass through. None: as the tables say, where that is
    certain (w = d with interleaved=False, else r = 2w).
    inverse: the transposed rotation.
    inplace: writes q and k themselves and returns them; in eager mode only. Where gradients are recorded, q and k that
    are leaves, views of one buffer or views from split, chunk or unbind are refused (RuntimeError).

    A position outside the table is an IndexError on the CPU; on a GPU it turns the token's rotated elements into NaN,
    unless brim.set_checks(True) asks for the error.
    """
    try:
        types = (q.dtype, None if k is None else k.dtype, cos.dtype, sin.dtype)
    except AttributeError:
        types = None
    if types not in TYPES and (types not in CPU_TYPES or q.is_cuda):
        raise type_error(q, k, cos, sin)
    if cos.requires_grad or sin.requires_grad:
        raise ValueError(
            f"rope: {'cos' if cos.requires_grad else 'sin'} requires grad, and brim.rope computes no gradient for the "
            "tables; pass cos.detach() and sin.detach()"
        )
    try:
        options = _LAYOUTS[layout] + _PAIRINGS[interleaved]
    except (KeyError, TypeError):  # a list, say, is no key
        raise option_error(layout, interleaved) from None
    if rotary_dim is None:
        rotary_dim = 0  # the core's word for "infer it"
    elif not is_integer(rotary_dim):
        raise TypeError(f"rope: rotary_dim is {rotary_dim!r}, expected an integer or None")
    elif not 0 < rotary_dim < 1 << 32:
        raise ValueError(f"rope: rotary_dim is {rotary_dim}, expected an even number from 2 to head_dim, or None")
    options += rotary_dim
    if inverse:
        options += INVERSE
    if sections is None:
        sections = 0
    else:
        sections = packed_sections(sections)
        if sections_interleaved:
            options += _SECTIONS_INTERLEAVED
    if position_ids is not None:
        check_positions(position_ids, cos)
    call = cos, sin, position_ids, options, sections
    return _rotate_in_place(q, k, call) if inplace else _rotate(q, k, call, ORDER_OF_INPUT)


def _rotate(q, k, call, orders):
    """`call`: the ops' arguments from cos to sections. `orders`: of the outputs' axes (_layout.py), q's in the lower 32
    bits, k's above."""
    if forward_ad._current_level >= 0:
        _check_no_tangents(cos=call[0], sin=call[1])
    apply = recorder(_Rope, q, k)
    if apply is not None:
        if k is q:  # torch.compile loses one of the two gradients of a tensor that a Function takes twice (torch 2.11)
            k = k.view_as(k)
        out = apply(q, k, call, orders)
    elif k is None:
        out = _rope_one(q, *call, _order_of_q(orders))
    else:
        return _rope(q, k, *call, orders)
    return (out, None) if k is None else out


def _order_of_q(orders):
    return orders if orders == ORDER_OF_INPUT else orders & 0xFFFFFFFF


def _check_no_tangents(**tables):
    for name, table in tables.items():
        if forward_ad.unpack_dual(table).tangent is not None:
            raise NotImplementedError(f"rope: {name} has a tangent, and brim.rope has no forward-mode derivatives")


@lean
class _Rope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, call, orders):
        # The gradients' layout: q and k themselves are not kept.
        if k is None:
            _keep(ctx, call, axis_order(q))
            return _rope_one(q, *call, _order_of_q(orders))
        _keep(ctx, call, axis_order(q) + (axis_order(k) << 32))
        outputs = _rope(q, k, *call, orders)
        if q.requires_grad != k.requires_grad:  # else what comes after would compute a gradient for the other one too
            ctx.mark_non_differentiable(outputs[1 if q.requires_grad else 0])
        return outputs

    @staticmethod
    def backward(ctx, dq, dk=None):
        wants = ctx.needs_input_grad
        call, orders = _transposed(ctx)
        if dq is not None and wants[0]:
            dq, dk = _rotate(dq, dk if wants[1] else None, call, orders)
        elif dk is not None and wants[1]:
            dq, (dk, _) = None, _rotate(dk, None, call, orders >> 32)
        else:
            dq = dk = None
        return dq, dk, None, None


def _rotate_in_place(q, k, call):
    if is_compiling():
        raise RuntimeError("rope: inplace=True is for eager mode only; under torch.compile use the out-of-place form")
    if forward_ad._current_level >= 0:
        raise NotImplementedError("rope: inplace=True has no forward-mode derivatives")
    tensors = (q,) if k is None else (q, k)
    if (q.is_inference() or (k is not None and k.is_inference())) and not torch.is_inference_mode_enabled():
        raise RuntimeError("rope: q or k was made in inference mode and cannot be changed in place outside of it")
    apply = recorder(_RotatedInPlace, q, k)
    if apply is None:
        _rope_in_place(q, k, *call)
        torch.autograd.graph.increment_version(tensors)
        return q, k
    for name, x in zip("qk", tensors):
        if x.requires_grad:
            _check_may_change(name, x)
    if k is not None and _buffer(q) is _buffer(k):
        raise RuntimeError(
            "rope: q and k are views of one buffer, and autograd cannot follow two views of it changed in place by one "
            "call; use the out-of-place form, inplace=False"
        )
    # One launch rotates both; then each tensor gets a node of its own, since a node that changes a view in place may
    # have no other output.
    run = (q, k)
    for x in tensors:
        if x.requires_grad:
            apply(x, run, call)
            run = None
    torch.autograd.graph.increment_version([x for x in tensors if not x.requires_grad])
    return q, k


def _check_may_change(name, x):
    """What torch refuses to see changed in place. It would say so by itself, but only after the op has written."""
    if x.is_leaf:
        what = "a leaf Variable that requires grad"
    elif not x._is_view():
        return
    elif x._base.is_leaf and x._base.requires_grad:
        what = "a view of a leaf Variable that requires grad"
    elif _creation_meta(x) != _ORDINARY_VIEW:
        what = "a view made by a function of several outputs (split, chunk, unbind) or out of autograd's sight"
    else:
        return
    raise RuntimeError(f"rope: {name} is {what} and is being used in an in-place operation")


@lean
class _RotatedInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, run, call):
        _keep(ctx, call, axis_order(x))
        if run is not None:  # else the node of q has run the op for k as well
            _rope_in_place(*run, *call)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, dx):
        # Out of place: autograd may have handed the same gradient to another branch.
        if dx is not None:
            dx, _ = _rotate(dx, None, *_transposed(ctx))
        return dx, None, None


def _keep(ctx, call, orders):
    """What backward needs. In eager mode the tables are held with their version counters, which costs a third of
    save_for_backward and serves tensors made in inference mode as well."""
    ctx.set_materialize_grads(False)
    if is_compiling():
        ctx.save_for_backward(*call[:3])
        ctx.kept = None, call[3:], orders
    else:
        ctx.kept = _versions(*call), call, orders


def _versions(cos, sin, position_ids, *_):
    try:
        return cos._version, sin._version, 0 if position_ids is None else position_ids._version
    except RuntimeError:  # inference tensors have none
        return None


def _transposed(ctx):
    """(call, orders) for the transposed rotation."""
    versions, call, orders = ctx.kept
    if len(call) == 2:
        call = *ctx.saved_tensors, *call
    elif versions is not None and versions != _versions(*call):
        raise RuntimeError(
            "rope: cos, sin or position_ids has been modified by an inplace operation since the forward pass, whose "
            "backward needs it as it was; pass a copy to brim.rope"
        )
    cos, sin, position_ids, options, sections = call
    return (cos, sin, position_ids, options ^ INVERSE, sections), orders


def _buffer(x):
    return x._base if x._is_view() else x


@torch.library.register_fake("brim::rope")
def _(q, k, cos, sin, position_ids, options, sections, orders):
    q_order, k_order = (orders, orders) if orders == ORDER_OF_INPUT else (orders & 0xFFFFFFFF, orders >> 32)
    return empty_in_order(q, q_order), empty_in_order(k, k_order)


@torch.library.register_fake("brim::rope_one")
def _(x, cos, sin, position_ids, options, sections, order):
    return empty_in_order(x, order)


@torch.library.register_fake("brim::rope_")
def _(q, k, cos, sin, position_ids, options, sections):
    return None

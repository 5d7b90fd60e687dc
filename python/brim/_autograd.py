"""How brim's autograd Functions are called."""

from types import SimpleNamespace

import torch
from torch._C import _are_functorch_transforms_active as _is_transforming
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling, is_dynamo_compiling


def lean(function):
    """A torch.autograd.Function whose passes, in eager mode, run without most of the Python that torch has around them."""
    # What apply comes to in the end. Before that it looks at every argument for what torch.func's transforms have left
    # behind, which takes as long as an op. No metaclass does this: torch.compile knows torch's own only.
    function._apply = super(torch.autograd.Function, function).apply
    # What the node calls. Torch's finds out each time whether backward or vjp is there.
    function._backward_cls.apply = function.backward
    return function


def op_forms(*names):
    """brim's ops as attributes of two objects: for torch.compile to trace, and as they are called in eager mode, without the
    Python of torch.ops around them."""
    ops = {name: getattr(torch.ops.brim, name).default for name in names}
    return SimpleNamespace(**ops), SimpleNamespace(**{name: getattr(op, "_op", op) for name, op in ops.items()})


def recorder(function, *tensors):
    """function.apply, or what does the same in less time, where autograd is to record a call of these tensors (or None);
    else None.

    It does not call what it finds: torch.compile would take the call out of an eager frame, and compile it alone.
    """
    # Inside a level of forward-mode derivatives the Function says that it has none; an op alone would drop them.
    if forward_ad._current_level < 0:
        if not torch.is_grad_enabled():
            return None
        for x in tensors:
            if x is not None and x.requires_grad:
                break
        else:
            if is_compiling() or not _is_transforming() or not any(map(_requires_grad_within, tensors)):
                return None
    if is_dynamo_compiling():
        return function.apply
    if _is_transforming():
        if is_compiling():  # torch.export without torch.compile's tracer
            return function.apply
        raise NotImplementedError(
            "brim: torch.func's transforms (grad, vjp, jvp, vmap over tensors that require grad) are not supported; "
            "torch.autograd is"
        )
    return function._apply


def _requires_grad_within(x):
    """A tensor that torch.func.vmap maps over does not say itself whether it requires grad."""
    while x is not None and is_functorch_wrapped_tensor(x):
        x = get_unwrapped(x)
        if x.requires_grad:
            return True
    return False

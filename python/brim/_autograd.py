"""How brim's autograd Functions are called."""

import torch
from torch._C import _are_functorch_transforms_active as _is_transforming
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.compiler import is_compiling


class Function(torch.autograd.Function):
    def __init_subclass__(cls):
        # What torch.autograd.Function.apply, which is Python, comes to in the end. Before that it looks at every
        # argument for what torch.func's transforms have left behind, which takes as long as an op.
        cls._apply = super(torch.autograd.Function, cls).apply


def apply_of(function):
    """function.apply, or what does the same in less time.

    No function that calls it as well: torch.compile would take the call out of an eager frame, and compile it alone.
    """
    if is_compiling():
        return function.apply
    if _is_transforming():
        raise NotImplementedError(
            "brim: torch.func's transforms (grad, vjp, jvp, vmap over tensors that require grad) are not supported; "
            "torch.autograd is"
        )
    return function._apply


def is_recorded(*tensors):
    """Whether autograd is to record a call of these tensors (or None)."""
    if not torch.is_grad_enabled():
        return False
    for x in tensors:
        if x is not None and x.requires_grad:
            return True
    if is_compiling() or not _is_transforming():
        return False
    return any(x is not None and _requires_grad_within(x) for x in tensors)


def _requires_grad_within(x):
    """A tensor that torch.func.vmap maps over does not say itself whether it requires grad."""
    while is_functorch_wrapped_tensor(x):
        x = get_unwrapped(x)
        if x.requires_grad:
            return True
    return False

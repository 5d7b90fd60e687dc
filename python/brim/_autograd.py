"""How brim's autograd Functions are called."""

import torch
from torch._C import _are_functorch_transforms_active as _is_transforming
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
    return function.apply if is_compiling() or _is_transforming() else function._apply

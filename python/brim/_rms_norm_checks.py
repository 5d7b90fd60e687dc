"""What brim.rms_norm and brim.add_rms_norm check of their arguments in Python; the core checks the rest."""

import itertools
import numbers

import torch

from ._checks import NARROW, for_the_cpu_only, mix, mixed_types, not_a_float_tensor, type_name

CASTINGS = {"llama": 0, "gemma": 1, "none": 2}

_WIDE = torch.float64
# The types of (x, weight), and of (x, residual, weight), that go together.
TYPES = frozenset((x, w) for x, w in itertools.product(NARROW, (None, *NARROW)) if mix(x, w))
ADD_TYPES = frozenset((x, r, w) for x, w in TYPES for r in (x, torch.float32) if mix(x, r, w))
# For the CPU only.
CPU_TYPES = frozenset((_WIDE, w) for w in (None, _WIDE))
ADD_CPU_TYPES = frozenset((_WIDE, _WIDE, w) for w in (None, _WIDE))


def type_error(op, **tensors):
    if tensors["weight"] is None:
        del tensors["weight"]
    error = not_a_float_tensor(op, tensors) or mixed_types(op, tensors)
    if error:
        return error
    x, residual = tensors["x"], tensors.get("residual")
    if residual is not None and residual.dtype != x.dtype:
        return TypeError(
            f"{op}: residual is {type_name(residual)} and x is {type_name(x)}; expected x's type or float32"
        )
    return for_the_cpu_only(op, "x")


def number(op, **named):
    ((name, value),) = named.items()
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, (torch.SymFloat, torch.SymInt)):
        return value
    raise TypeError(f"{op}: {name} is {value!r}, expected a number")


def casting_error(op, casting):
    return ValueError(f"{op}: casting is {casting!r}, expected 'llama', 'gemma' or 'none'")

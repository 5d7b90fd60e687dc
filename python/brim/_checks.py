"""What several ops check: whether calls on a GPU look at their data first, as the CPU always does; types of options."""

import itertools
import os

import torch

NARROW = (torch.float32, torch.bfloat16, torch.float16)  # the types that every device computes with

enabled = os.environ.get("BRIM_CHECKS", "0") not in ("", "0")


def set_checks(on: bool) -> None:
    """With True, calls on CUDA tensors check positions against the tables and raise IndexError as on the CPU.

    Each such check waits for the GPU, so it is meant for finding a bug, and it cannot run inside a CUDA graph or
    under torch.compile (where it is left out). The environment variable BRIM_CHECKS=1 switches it on from the start.
    Without it a bad position turns the rotated elements of its token into NaN.
    """
    global enabled
    enabled = bool(on)


def is_integer(x) -> bool:
    """Of Python, of numpy, or a size that torch.compile knows by name only."""
    return isinstance(x, (int, torch.SymInt)) or (hasattr(x, "__index__") and not isinstance(x, torch.Tensor))


def mix(*types) -> bool:
    """Whether the types may meet in one call: the two of 16 bits may not, nor float64 and another one."""
    return not (
        {torch.bfloat16, torch.float16} <= set(types) or (torch.float64 in types and len({*types} - {None}) > 1)
    )


def type_name(x) -> str:
    return str(x.dtype).removeprefix("torch.")


def not_a_float_tensor(op, tensors):
    """A TypeError if one of {name: tensor} is something else; None if all is well."""
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            return TypeError(f"{op}: {name} is a {type(x).__name__}, expected a torch.Tensor")
    for name, x in tensors.items():
        if x.dtype not in (*NARROW, torch.float64):
            return TypeError(f"{op}: {name} is {type_name(x)}, expected float32, bfloat16, float16 or float64")
    return None


def mixed_types(op, tensors):
    """A TypeError if two of {name: tensor} have types that do not mix; None if all is well."""
    for a, b in itertools.combinations(tensors, 2):
        if not mix(tensors[a].dtype, tensors[b].dtype):
            return TypeError(
                f"{op}: {a} is {type_name(tensors[a])} and {b} is {type_name(tensors[b])}; these two types do not mix "
                "in one call"
            )
    return None


def for_the_cpu_only(op, name):
    return TypeError(f"{op}: {name} is float64, which is for the CPU only")

"""What several ops check: whether calls on a GPU look at their data first, as the CPU always does; types of options."""

import os

import torch

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

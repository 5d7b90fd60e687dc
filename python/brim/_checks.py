"""Whether calls on a GPU look at their data before they run, as the CPU always does."""

import os

enabled = os.environ.get("BRIM_CHECKS", "0") not in ("", "0")


def set_checks(on: bool) -> None:
    """With True, calls on CUDA tensors check positions against the tables and raise IndexError as on the CPU.

    Each such check waits for the GPU, so it is meant for finding a bug, and it cannot run inside a CUDA graph or
    under torch.compile (where it is left out). The environment variable BRIM_CHECKS=1 switches it on from the start.
    Without it a bad position turns the rotated elements of its token into NaN.
    """
    global enabled
    enabled = bool(on)

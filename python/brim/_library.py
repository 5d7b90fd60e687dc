"""Finds and loads the library that holds the ops, once, when brim is imported."""

import os
from pathlib import Path

import torch


def _find_library() -> Path:
    # BRIM_TORCH_LIBRARY_DIR: a build folder's lib/, for work on brim itself.
    home = Path(os.environ.get("BRIM_TORCH_LIBRARY_DIR") or Path(__file__).parent)
    names = ["libbrim_torch_cpu.so"]
    if torch.version.cuda:
        names.insert(0, "libbrim_torch_cuda.so")  # holds the CPU ops as well
    for name in names:
        if (home / name).is_file():
            return home / name
    raise ImportError(f"brim: none of {', '.join(names)} is in {home}; build and install brim with `pip install .`")


_path = _find_library()
torch.ops.load_library(_path)


def backend_info() -> dict[str, str]:
    """What this installation of brim can do.

    `version`; `library`, the file that was loaded; `cpu`, the instruction set in use; `cuda`, "available" or the
    reason why not.
    """
    ops = torch.ops.brim
    return {"version": ops.version(), "library": str(_path), "cpu": ops.cpu_path(), "cuda": ops.cuda_status()}


__version__ = torch.ops.brim.version()

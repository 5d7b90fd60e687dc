"""The library that holds the ops, as loaded into a process."""

import ctypes
import os
import subprocess
import sys

import brim
import pytest
import torch
from conftest import needs_cuda


def test_backend_info():
    info = brim.backend_info()
    assert set(info) == {"version", "library", "cpu", "cuda"}
    assert info["version"] == brim.__version__
    assert info["cpu"] and " " not in info["cpu"]  # the name of a path, not a sentence why there is none


def test_nothing_of_the_core_is_exported():
    library = ctypes.CDLL(brim.backend_info()["library"])
    for name in ("brim_rope_forward", "brim_rope_tables", "brim_version"):
        assert not hasattr(library, name)


def test_any_number_of_threads_gives_the_same_bits():
    q = torch.randn(2, 16, 300, 64)
    cos, sin = brim.rope_tables(300, 64)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(brim.rope(q, None, cos, sin)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize("value, on", [("0", False), ("1", True)])
def test_the_environment_switches_checks_on(value, on):
    code = f"import brim; assert brim._checks.enabled is {on}"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ | {"BRIM_CHECKS": value}).returncode == 0


@needs_cuda
def test_importing_brim_does_not_start_cuda():
    """A process that has started CUDA cannot fork workers that use it."""
    code = """
import os, torch, brim
child = os.fork()
if child == 0:
    brim.rope(torch.ones(1, 1, 1, 2, device="cuda"), None, *brim.rope_tables(1, 2, device="cuda"))
    torch.cuda.synchronize()
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_importing_brim_imports_no_more_of_torch():
    """Each of these takes as long as torch itself."""
    code = "import sys, torch; before = set(sys.modules); import brim; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch._dynamo", "torch.distributed.tensor", "transformers"} & set(done.stdout.split())

import time

import brim
import pytest
import torch

CUDA = torch.cuda.is_available() and brim.backend_info()["cuda"] == "available"
needs_cuda = pytest.mark.skipif(not CUDA, reason="needs a GPU and a brim built with CUDA")


@pytest.fixture(params=["cpu", "cuda"] if CUDA else ["cpu"])
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def extra_bytes(work):
    """Peak memory of `work` beyond what is held before it, after a first run that loads whatever is loaded once."""
    work()
    torch.cuda.synchronize()
    time.sleep(0.1)  # autograd's thread lets go of the last gradients a little after it has given them away
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_allocated() - before


def nbytes(*tensors):
    return sum(-(-t.numel() * t.element_size() // 512) * 512 for t in tensors)


def free_gibibytes():
    return torch.cuda.mem_get_info()[0] / 2**30 if CUDA else 0

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

"""What brim.rms_norm and brim.add_rms_norm refuse: the exception's type, and a text that names what was found."""

import brim
import pytest
import torch
from conftest import needs_cuda

H = 64


def arguments(device, add):
    x, r = (torch.randn(4, H, device=device) for _ in range(2))
    return dict(x=x) | (dict(residual=r) if add else {}) | dict(weight=torch.randn(H, device=device))


def cast(**types):
    return lambda a: {name: a[name].to(dtype) for name, dtype in types.items()}


BF, HALF, WIDE = torch.bfloat16, torch.float16, torch.float64
REFUSALS = [
    # 95: widths
    (
        lambda a: dict(weight=a["weight"][:63]),
        ValueError,
        "weight has 63 elements, last dimension of x is 64; x has shape (4,64)",
    ),
    (lambda a: dict(weight=a["weight"].new_ones(65)), ValueError, "weight has 65 elements, last dimension of x is 64"),
    (lambda a: dict(weight=a["weight"][None]), ValueError, "weight has shape (1,64), expected (64)"),
    (lambda a: dict(x=a["x"][0, 0]), ValueError, "x has rank 0, expected 1 to 5"),
    (lambda a: dict(x=a["x"][None, None, None, None]), ValueError, "x has rank 6, expected 1 to 5"),
    (dict(eps=-1e-6), ValueError, "eps is -1e-06"),
    (dict(eps=float("nan")), ValueError, "eps is "),
    (dict(offset=float("inf")), ValueError, "offset is inf"),
    (dict(casting="Llama"), ValueError, "casting is 'Llama', expected 'llama', 'gemma' or 'none'"),
    (dict(casting=["llama"]), ValueError, "casting is ['llama']"),
    (dict(eps=None), TypeError, "eps is None, expected a number"),
    (dict(eps="1e-6"), TypeError, "eps is '1e-6', expected a number"),
    (dict(offset=True), TypeError, "offset is True, expected a number"),
    (dict(x=[1.0]), TypeError, "x is a list, expected a torch.Tensor"),
    (dict(weight=1.0), TypeError, "weight is a float, expected a torch.Tensor"),
    (cast(x=torch.int64), TypeError, "x is int64, expected float32, bfloat16, float16 or float64"),
    (cast(weight=torch.int32), TypeError, "weight is int32, expected"),
    (cast(weight=WIDE), TypeError, "x is float32 and weight is float64; these two types do not mix"),
]
NORM_REFUSALS = [
    (cast(x=BF, weight=HALF), TypeError, "x is bfloat16 and weight is float16; these two types do not mix"),
]
ADD_REFUSALS = [
    (lambda a: dict(residual=a["residual"][:3]), ValueError, "residual has shape (3,64), expected that of x, (4,64)"),
    (
        lambda a: dict(residual=a["residual"][:, :32]),
        ValueError,
        "residual has shape (4,32), expected that of x, (4,64)",
    ),
    (dict(residual=None), TypeError, "residual is a NoneType, expected a torch.Tensor"),
    (cast(residual=BF), TypeError, "residual is bfloat16 and x is float32; expected x's type or float32"),
    (cast(x=BF, residual=HALF), TypeError, "x is bfloat16 and residual is float16; these two types do not mix"),
    (cast(x=BF, residual=BF, weight=HALF), TypeError, "x is bfloat16 and weight is float16"),
    (cast(x=BF, weight=HALF), TypeError, "x is bfloat16 and weight is float16"),
    (cast(residual=WIDE), TypeError, "x is float32 and residual is float64"),
]


@pytest.mark.parametrize(
    "add, change, error, text",
    [*((a, *r) for a in (False, True) for r in REFUSALS), *((False, *r) for r in NORM_REFUSALS)]
    + [(True, *r) for r in ADD_REFUSALS],
)
def test_95_refusals(device, add, change, error, text):
    call = arguments(device, add)
    call |= change(call) if callable(change) else change
    if add and isinstance(call["x"], torch.Tensor) and call["x"].dim() != 2:
        call["residual"] = call["x"]
    op = brim.add_rms_norm if add else brim.rms_norm
    kept = {n: x.clone() for n, x in call.items() if isinstance(x, torch.Tensor)}
    with pytest.raises(error) as raised:
        op(**call)
    assert text in str(raised.value) and str(raised.value).startswith(op.__name__)
    for name, x in kept.items():
        assert torch.equal(call[name], x), f"{name} was written"


@pytest.mark.parametrize("eps", [1, 0, pytest.param(torch.finfo(torch.float32).eps, id="finfo")])
def test_numbers_of_other_types(device, eps):
    x = torch.randn(4, H, device=device)
    assert torch.equal(brim.rms_norm(x, eps=eps, offset=1), brim.rms_norm(x, eps=float(eps)))


def test_numbers_of_numpy(device):
    numpy = pytest.importorskip("numpy")
    x = torch.randn(4, H, device=device)
    assert torch.equal(brim.rms_norm(x, eps=numpy.float32(0.5)), brim.rms_norm(x, eps=0.5))


def test_ops_called_by_hand(device):
    """What the Functions never do is refused all the same."""
    ops, x, weight = torch.ops.brim, torch.randn(4, 6, H, device=device), torch.randn(H, device=device)
    rstd = torch.ones(4, 6, device=device)
    for call, text in (
        (lambda: ops.rms_norm_dw(x, x, None, rstd, 0.0), "dweight is wanted without weight"),
        (lambda: ops.add_rms_norm_dx_dr_dw(x, None, x, None, rstd, 0.0), "dweight is wanted without weight"),
        (lambda: ops.rms_norm_dx(x, x, weight, rstd.t().contiguous().t(), 0.0), "rstd is not contiguous"),
        (lambda: ops.rms_norm_dx(x, x, weight, rstd[:3], 0.0), "rstd has shape (18), expected (24)"),
        (lambda: ops.rms_norm_dx(x[:3], x, weight, rstd, 0.0), "dy has shape (3,6,64), expected that of x, (4,6,64)"),
        (lambda: ops.rms_norm(x, weight, 1e-6, 0.0, 7), "casting is 7"),
    ):
        with pytest.raises(ValueError) as raised:
            call()
        assert text in str(raised.value)


@needs_cuda
def test_float64_is_for_the_cpu():
    x = torch.randn(4, H, device="cuda", dtype=torch.float64)
    for call in (lambda: brim.rms_norm(x), lambda: brim.add_rms_norm(x, x)):
        with pytest.raises(TypeError, match="x is float64, which is for the CPU only"):
            call()


@needs_cuda
def test_tensors_on_two_devices():
    x, weight = torch.randn(4, H, device="cuda"), torch.randn(H)
    for call in (lambda: brim.rms_norm(x, weight), lambda: brim.add_rms_norm(x, x, weight)):
        with pytest.raises(RuntimeError, match="must be on one device"):
            call()

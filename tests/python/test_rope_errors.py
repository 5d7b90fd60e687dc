"""What brim.rope refuses: the exception's type, and a text that names argument, expectation and finding."""

import brim
import pytest
import torch
from conftest import needs_cuda

B, S, H, HK, D = 2, 5, 4, 2, 8


def arguments(device, dtype=torch.float32):
    q = torch.randn(B, H, S, D, device=device, dtype=dtype)
    k = torch.randn(B, HK, S, D, device=device, dtype=dtype)
    return dict(q=q, k=k) | dict(zip(("cos", "sin"), brim.rope_tables(S, D, device=device)))


def table(*shape):
    return lambda a: dict(cos=a["cos"].new_ones(shape), sin=a["cos"].new_ones(shape))


def positions(*shape, dtype=torch.int64):
    return lambda a: dict(position_ids=torch.zeros(shape, dtype=dtype, device=a["q"].device))


REFUSALS = [
    # 70, 95: widths and shapes
    (dict(rotary_dim=12), ValueError, "rotary_dim is 12, more than head_dim, 8"),
    (dict(rotary_dim=5), ValueError, "rotary_dim is 5, expected an even number"),
    (dict(rotary_dim=0), ValueError, "rotary_dim is 0, expected an even number from 2"),
    (dict(rotary_dim=-2), ValueError, "rotary_dim is -2"),
    (dict(rotary_dim=6), ValueError, "cos has 8 columns, expected rotary_dim/2 or rotary_dim (3 or 6)"),
    (table(S, 4), ValueError, "cos has 4 columns and head_dim is 8: rotary_dim could be 4 or 8, give it"),
    (dict(interleaved=True, rotary_dim=8), ValueError, "cos[..., :4] (and sin) where the halves repeat"),
    (dict(interleaved=True, rotary_dim=8), ValueError, "cos[..., ::2] where each column stands twice"),
    (dict(interleaved=True), ValueError, "cos[..., :4] (and sin) where the halves repeat"),
    (table(S + 1, D), ValueError, "cos has 6 rows, q has 5 tokens in a sequence; pass position_ids"),
    (table(S - 1, D), ValueError, "cos has 4 rows, q has 5 tokens"),
    (table(3, S, D), ValueError, "cos has shape (3,5,8), expected (5,width), (1,5,width) or (2,5,width)"),
    (lambda a: dict(sin=a["sin"][:, :4]), ValueError, "sin has shape (5,4), expected that of cos, (5,8)"),
    (lambda a: dict(k=a["k"][:1]), ValueError, "k has shape (1,2,5,8), q has (2,4,5,8)"),
    (lambda a: dict(k=a["k"][..., :6]), ValueError, "k has shape (2,2,5,6)"),
    (lambda a: dict(q=a["q"][0]), ValueError, "q has shape (4,5,8), layout bhsd expects rank 4"),
    (dict(layout="thd"), ValueError, "layout thd expects rank 3"),
    (lambda a: dict(q=a["q"][None, None]), ValueError, "q has rank 6, expected 1 to 5"),
    (positions(S - 1), ValueError, "position_ids has shape (4), expected (5), (1,5) or (2,5)"),
    (positions(3, S), ValueError, "position_ids has shape (3,5)"),
    (lambda a: table(B, S, D)(a) | positions(S)(a), ValueError, "with position_ids expected a table (rows,width)"),
    (dict(sections=[2, 2]), ValueError, "sections needs 3 entries"),
    (lambda a: table(3, B, S, D)(a) | dict(sections=[2, 2, 2]), ValueError, "sections (2,2,2) sum to 6, expected"),
    (dict(sections=[2, 1, 1]), ValueError, "with sections expected (3,2,5,width)"),
    (dict(sections=[0, 0, 0]), ValueError, "sections are all 0, expected 3 numbers that sum to rotary_dim/2"),
    # options
    (dict(layout="sbhd"), ValueError, "layout is 'sbhd', expected 'bhsd', 'bshd' or 'thd'"),
    (dict(interleaved="half"), ValueError, "interleaved is 'half', expected False, True or 'to_half'"),
    (lambda a: table(S, 4)(a) | dict(interleaved="to_half", inplace=True), ValueError, "to_half cannot run in place"),
    (lambda a: dict(cos=a["cos"].requires_grad_()), ValueError, "cos requires grad"),
    (lambda a: dict(sin=a["sin"].requires_grad_()), ValueError, "sin requires grad"),
    # types
    (lambda a: dict(q=a["q"].bfloat16(), k=a["k"].half()), TypeError, "q is bfloat16 and k is float16"),
    (
        lambda a: dict(q=a["q"].half(), cos=a["cos"].bfloat16(), sin=a["sin"].bfloat16()),
        TypeError,
        "q is float16 and cos is bfloat16",
    ),
    (lambda a: dict(k=a["k"].double()), TypeError, "q is float32 and k is float64"),
    (lambda a: dict(sin=a["sin"].half()), TypeError, "sin is float16, cos is float32; they must have one type"),
    (lambda a: dict(q=a["q"].long()), TypeError, "q is int64, expected float32, bfloat16, float16 or float64"),
    (dict(q=[1.0]), TypeError, "q is a list, expected a torch.Tensor"),
    (lambda a: dict(cos=a["cos"].cpu().numpy()), TypeError, "cos is a ndarray, expected a torch.Tensor"),
    (lambda a: positions(S, dtype=torch.float32)(a), TypeError, "position_ids is float32, expected int32 or int64"),
    (dict(rotary_dim=8.0), TypeError, "rotary_dim is 8.0, expected an integer or None"),
    (dict(sections=[2.0, 1.0, 1.0]), TypeError, "sections is [2.0, 1.0, 1.0], expected a list of 3 integers"),
    (dict(sections=4), TypeError, "sections is 4, expected a list of 3 integers"),
    (dict(position_ids=[0, 1, 2, 3, 4]), TypeError, "position_ids is a list"),
]


@pytest.mark.parametrize("change, error, text", REFUSALS)
def test_refusals(device, change, error, text):
    call = arguments(device)
    call |= change(call) if callable(change) else change
    kept = {n: x.clone() for n, x in call.items() if isinstance(x, torch.Tensor)}
    with pytest.raises(error) as raised:
        brim.rope(**call)
    assert text in str(raised.value) and str(raised.value).startswith("rope")
    for name, x in kept.items():
        assert torch.equal(call[name], x), f"{name} was written"


def test_70_the_same_refusal_at_every_entry(device):
    a = arguments(device)
    for options in (dict(), dict(inplace=True), dict(inverse=True)):
        with pytest.raises(ValueError, match="rotary_dim is 12, more than head_dim, 8"):
            brim.rope(**a, rotary_dim=12, **options)
    a["q"].requires_grad_()
    with pytest.raises(ValueError, match="rotary_dim is 12, more than head_dim, 8"):
        brim.rope(**a, rotary_dim=12)


def test_an_output_that_overlaps_itself_is_refused(device):
    a = arguments(device)
    a["q"] = a["q"][:, :1].expand(B, H, S, D)
    with pytest.raises(ValueError, match="output q_out .* overlaps itself"):
        brim.rope(**a, inplace=True)
    a = arguments(device)
    with pytest.raises(ValueError, match="overlaps"):
        brim.rope(a["q"], a["q"], a["cos"], a["sin"], inplace=True)


@pytest.mark.parametrize("bad", [16, -1, 2**31 + 3])
@pytest.mark.parametrize("inplace", [False, True])
def test_62_a_position_outside_the_table_on_the_cpu(bad, inplace):
    q = torch.randn(2, 3, 4, D)
    kept = q.clone()
    cos, sin = brim.rope_tables(16, D)
    position_ids = torch.tensor([[0, 1, 2, 3], [4, 15, bad, 0]])
    with pytest.raises(IndexError, match=rf"position_ids\[6\] is {bad}, table has 16 rows"):
        brim.rope(q, None, cos, sin, position_ids=position_ids, inplace=inplace)
    assert torch.equal(q, kept)


@needs_cuda
@pytest.mark.parametrize("bad", [16, -1, 2**31 + 3])
def test_62_a_position_outside_the_table_on_a_gpu_poisons_its_token(bad):
    q, k = torch.randn(2, 3, 4, D + 2, device="cuda"), torch.randn(2, 1, 4, D + 2, device="cuda")
    cos, sin = brim.rope_tables(16, D, device="cuda")
    position_ids = torch.tensor([[0, 1, 2, 3], [4, 15, bad, 0]], device="cuda")
    good = position_ids.clone()
    good[1, 2] = 0
    want = brim.rope(q, k, cos, sin, position_ids=good, rotary_dim=D)
    q.requires_grad_()
    k.requires_grad_()
    got = brim.rope(q, k, cos, sin, position_ids=position_ids, rotary_dim=D)
    torch.autograd.backward(got, [torch.ones_like(y) for y in got])
    for y, w, g in zip(got, want, (q.grad, k.grad)):
        for t in (y, g):
            assert t[1, :, 2, :D].isnan().all() and not t[1, :, 2, D:].isnan().any()
            assert t.isnan().sum() == t[1, :, 2, :D].numel()
        others = torch.ones(2, 4, dtype=torch.bool, device="cuda")
        others[1, 2] = False
        assert torch.equal(y.transpose(1, 2)[others], w.transpose(1, 2)[others])
    brim.set_checks(True)
    try:
        with pytest.raises(IndexError, match=rf"position_ids\[6\] is {bad}, table has 16 rows"):
            brim.rope(q, k, cos, sin, position_ids=position_ids, rotary_dim=D)
        brim.rope(q, k, cos, sin, position_ids=good, rotary_dim=D)
    finally:
        brim.set_checks(False)


@needs_cuda
def test_tensors_on_different_devices():
    a = arguments("cuda")
    for name in ("q", "k", "cos", "sin"):
        with pytest.raises(RuntimeError, match="must be on one device"):
            brim.rope(**a | {name: a[name].cpu()})
    with pytest.raises(RuntimeError, match="must be on one device"):
        brim.rope(**a, position_ids=torch.arange(S))


@needs_cuda
def test_float64_is_for_the_cpu_only():
    a = {name: x.double() for name, x in arguments("cuda").items()}
    with pytest.raises(TypeError, match="q is float64, which is for the CPU only"):
        brim.rope(**a)

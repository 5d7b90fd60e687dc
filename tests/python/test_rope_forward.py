"""brim.rope's values: every option against the formula in float64, and the cases from the field."""

import itertools

import brim
import oracle
import pytest
import torch
from oracle import LAYOUTS, PAIRINGS

B, S, H, HK, D = 2, 5, 3, 2, 12


def make(device, dtype, layout="bhsd", h=H, hk=HK, d=D):
    shape = {"bhsd": lambda n: (B, n, S, d), "bshd": lambda n: (B, S, n, d), "thd": lambda n: (S, n, d)}[layout]
    return torch.randn(shape(h), device=device).to(dtype), torch.randn(shape(hk), device=device).to(dtype)


def check(got, x, cos, sin, **options):
    """Within one rounding of float64: half an ulp of the result, and of the terms where they cancel (float32 fma)."""
    want = oracle.rope(x, cos, sin, **options)
    assert got.dtype == x.dtype and got.shape == x.shape and got.device == x.device
    both_signs = [oracle.rope(x.abs(), cos.abs(), sign * sin.abs(), **options).abs() for sign in (1, -1)]
    terms = torch.maximum(*both_signs)  # |x1 c| + |x2 s| of each element
    eps = torch.finfo(x.dtype).eps
    arithmetic = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    bound = want.abs() * eps / 2 + terms * arithmetic + torch.finfo(x.dtype).smallest_normal * eps
    assert ((got.double() - want).abs() <= bound).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize("r", [D, 8, 2])
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_pairing_layout_and_width(device, layout, interleaved, r, inverse, dtype):
    q, k = make(device, dtype, layout)
    cos, sin = (t.to(device, torch.float32) for t in oracle.tables(S, r, first=1000))
    options = dict(layout=layout, interleaved=interleaved, inverse=inverse)
    gq, gk = brim.rope(q, k, cos, sin, rotary_dim=r, **options)
    check(gq, q, cos, sin, r=r, **options)
    check(gk, k, cos, sin, r=r, **options)
    assert torch.equal(gq[..., r:], q[..., r:]) and torch.equal(gk[..., r:], k[..., r:])


def test_float64_on_the_cpu():
    q, k = make("cpu", torch.float64)
    cos, sin = oracle.tables(S, D)
    for got, x in zip(brim.rope(q, k, cos, sin, rotary_dim=D), (q, k)):
        check(got, x, cos, sin, r=D)


@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_63_every_form_of_tables_and_positions(device, interleaved, index):
    q, k = make(device, torch.float32)
    rows = 40
    table = [t.to(device, torch.float32) for t in oracle.tables(rows, D)]
    one, per_batch = torch.randperm(rows)[:S], torch.randint(rows, (B, S))
    forms = [(one, None), (one[None], None), (per_batch, None)]
    forms += [(None, [t[one] for t in table]), (None, [t[one][None] for t in table]), (None, [t[per_batch] for t in table])]
    for positions, tables in forms:
        positions = None if positions is None else positions.to(device, index)
        cos, sin = tables or table
        got = brim.rope(q, k, cos, sin, position_ids=positions, rotary_dim=D, interleaved=interleaved)
        for y, x in zip(got, (q, k)):
            check(y, x, cos, sin, r=D, interleaved=interleaved, position_ids=positions)


def test_63_each_batch_row_has_its_own_positions(device):
    x = torch.tensor([1.0, 0, 0, 0], device=device).expand(2, 1, 4, 4)
    cos, sin = brim.rope_tables(4, 4, device=device)
    positions = torch.tensor([[0, 1, 2, 3], [3, 3, 3, 3]], device=device)
    y, none = brim.rope(x, None, cos, sin, position_ids=positions)
    assert none is None
    want = torch.tensor([-0.989992, 0, 0.141120, 0], device=device)
    torch.testing.assert_close(y[1, 0], want.expand(4, 4), atol=1e-6, rtol=0)
    assert torch.equal(y[0, 0, 0], x[0, 0, 0])


@pytest.mark.parametrize("width", ["half", "full"])
def test_both_table_widths_of_half_pairing(device, width):
    q, k = make(device, torch.float32)
    cos, sin = (t.to(device, torch.float32) for t in oracle.tables(S, 8))
    wide = [torch.cat((t, t), -1) if width == "full" else t for t in (cos, sin)]
    for got, x in zip(brim.rope(q, k, *wide, rotary_dim=8), (q, k)):
        check(got, x, cos, sin, r=8)


def test_rotary_dim_is_inferred_where_it_is_certain(device):
    q, k = make(device, torch.float32)
    full = brim.rope_tables(S, D, device=device)
    narrow = brim.rope_tables(S, 8, interleaved=True, device=device)
    assert torch.equal(brim.rope(q, k, *full)[0], brim.rope(q, k, *full, rotary_dim=D)[0])
    for interleaved in (True, "to_half"):
        a, b = (brim.rope(q, k, *narrow, interleaved=interleaved, rotary_dim=r)[0] for r in (None, 8))
        assert torch.equal(a, b)


def test_an_inner_stride_of_the_tables_is_served(device):
    q, k = make(device, torch.float32)
    cos, sin = (t.to(device, torch.float32) for t in oracle.tables(S, D))
    twice = [t.repeat_interleave(2, -1)[..., ::2] for t in (cos, sin)]
    assert twice[0].stride(-1) == 2
    a, b = brim.rope(q, k, *twice, interleaved=True), brim.rope(q, k, cos, sin, interleaved=True)
    assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


@pytest.mark.parametrize("interleaved_sections", [False, True])
@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize("batch", [1, B])
def test_67_sections(device, interleaved_sections, interleaved, batch):
    q, k = make(device, torch.float32)
    sections = [2, 3, 1] if not interleaved_sections else [3, 2, 1]
    cos, sin = oracle.tables(50, D)
    positions = torch.randint(50, (3, batch, S))
    cos, sin = (t[positions].to(device, torch.float32) for t in (cos, sin))
    options = dict(sections=sections, sections_interleaved=interleaved_sections, interleaved=interleaved)
    for got, x in zip(brim.rope(q, k, cos, sin, rotary_dim=D, **options), (q, k)):
        check(got, x, cos, sin, r=D, **options)


def strided_inputs(device, dtype):
    """q and k as models pass them, and as they do not: (name, q, k)."""
    packed = torch.randn(B, S, (H + HK + HK) * D, device=device).to(dtype)
    q, k, _ = packed.split([H * D, HK * D, HK * D], -1)
    yield "packed", q.unflatten(-1, (H, D)).transpose(1, 2), k.unflatten(-1, (HK, D)).transpose(1, 2)
    q, k = make(device, dtype, "bshd")
    yield "transposed", q.transpose(1, 2), k.transpose(1, 2)
    q, k = make(device, dtype, d=2 * D)
    yield "inner stride 2", q[..., ::2], k[..., 1::2]
    q, k = make(device, dtype, d=D + 1)
    yield "odd rows", q[..., 1:], k[..., :D]
    q, k = make(device, dtype)
    yield "expanded", q[:, :1].expand(B, H, S, D), k[:1].expand(B, HK, S, D)
    flat = torch.randn(1 + B * H * S * D, device=device).to(dtype)
    yield "unaligned", flat[1:].view(B, H, S, D), k
    q = torch.randn(D, S, H, B, device=device).to(dtype).permute(3, 2, 1, 0)
    yield "reversed", q, k


@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize("r", [D, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_give_the_bits_of_contiguous_tensors(device, interleaved, r, dtype):
    cos, sin = brim.rope_tables(S, r, interleaved=True, device=device)
    for name, q, k in strided_inputs(device, dtype):
        copies = q.clone(), k.clone()
        want = brim.rope(q.contiguous(), k.contiguous(), cos, sin, rotary_dim=r, interleaved=interleaved)
        got = brim.rope(q, k, cos, sin, rotary_dim=r, interleaved=interleaved)
        assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1]), name
        assert torch.equal(q, copies[0]) and torch.equal(k, copies[1]), f"{name}: an input was written"


def test_30_partial_rotation_of_a_strided_source(device):
    wide = torch.full((1, 1, 3, 20), 100.0, device=device)
    wide[0, 0, :, 5:13] = torch.arange(1.0, 9, device=device)
    cos, sin = brim.rope_tables(3, 4, device=device)
    y, _ = brim.rope(wide[..., 5:13], None, cos, sin, rotary_dim=4)
    want = torch.tensor([-1.984111, 1.959901, 2.462378, 4.019800], device=device)
    torch.testing.assert_close(y[0, 0, 1, :4], want, atol=1e-6, rtol=0)
    assert torch.equal(y[0, 0, :, 4:], wide[0, 0, :, 9:13])


def test_66_positions_never_decide_how_much_is_written(device):
    guard = 256
    buffer = torch.full((guard + B * S * (H + HK) * D + guard,), 7.0, device=device)
    q = buffer[guard : guard + B * S * H * D].view(B, S, H, D)
    k = buffer[guard + B * S * H * D : -guard].view(B, S, HK, D)
    cos, sin = brim.rope_tables(64, D, device=device)
    positions = torch.randint(64, (B, S), device=device)
    want = brim.rope(q.clone(), k.clone(), cos, sin, position_ids=positions, layout="bshd")
    brim.rope(q, k, cos, sin, position_ids=positions, layout="bshd", inplace=True)
    assert torch.equal(q, want[0]) and torch.equal(k, want[1])
    assert (buffer[:guard] == 7).all() and (buffer[-guard:] == 7).all()
    x = torch.randn(S, H, D, device=device)
    with pytest.raises(ValueError, match="position_ids has shape"):
        brim.rope(x, None, cos, sin, position_ids=torch.zeros(3, S, dtype=torch.int64, device=device), layout="thd")


def test_68_the_two_pairings(device):
    x = torch.tensor([1.0, 2, 3, 4], device=device).view(1, 1, 1, 4)
    cos, sin = (t[1:] for t in brim.rope_tables(2, 4, interleaved=True, device=device))
    for interleaved, want in (
        (False, [-1.984111, 1.959901, 2.462378, 4.019800]),
        (True, [-1.142640, 1.922076, 2.959851, 4.029800]),
        ("to_half", [-1.142640, 2.959851, 1.922076, 4.029800]),
    ):
        y, _ = brim.rope(x, None, cos, sin, rotary_dim=4, interleaved=interleaved)
        torch.testing.assert_close(y.flatten(), torch.tensor(want, device=device), atol=1e-6, rtol=0)


def test_69_frequencies_come_from_the_rotary_width(device):
    x = torch.arange(1.0, 9, device=device).view(1, 1, 1, 8)
    cos, sin = (t[1:] for t in brim.rope_tables(2, 4, device=device))
    y, _ = brim.rope(x, None, cos, sin, rotary_dim=4)
    want = torch.tensor([-1.984111, 1.959901, 2.462378, 4.019800, 5, 6, 7, 8], device=device)
    torch.testing.assert_close(y.flatten(), want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("heads", [(2, 1), (1, 1), (3, 1), (5, 5), (16, 4), (64, 8), (1, 3)])
def test_72_every_head_is_rotated(device, heads):
    h, hk = heads
    q, k = make(device, torch.float32, h=h, hk=hk)
    cos, sin = brim.rope_tables(S, D, device=device)
    for got, x in zip(brim.rope(q, k, cos, sin), (q, k)):
        for i in range(x.shape[1]):
            assert torch.equal(got[:, i : i + 1], brim.rope(x[:, i : i + 1], None, cos, sin)[0])
    ones = [torch.ones(1, n, 1, 2, device=device) for n in heads]
    for y in brim.rope(*ones, *(t[1:] for t in brim.rope_tables(2, 2, device=device))):
        want = torch.tensor([-0.301169, 1.381773], device=device).expand_as(y)
        torch.testing.assert_close(y, want, atol=1e-6, rtol=0)


def test_74_a_far_position_in_bfloat16(device):
    x = torch.tensor([1.0, 0], device=device, dtype=torch.bfloat16).view(1, 1, 1, 2)
    cos, sin = (t[1001:] for t in brim.rope_tables(1002, 2, device=device))
    y, _ = brim.rope(x, None, cos, sin)
    assert y.flatten().tolist() == [-0.392578125, 0.921875]


DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("q_type, k_type, table_type", list(itertools.product(DTYPES, repeat=3)))
def test_75_mixed_types(device, q_type, k_type, table_type):
    q, k = (x.to(t) for x, t in zip(make(device, torch.float32), (q_type, k_type)))
    cos, sin = brim.rope_tables(S, D, device=device, dtype=table_type)
    if {torch.bfloat16, torch.float16} <= {q_type, k_type, table_type}:
        with pytest.raises(TypeError, match="bfloat16.*float16|float16.*bfloat16"):
            brim.rope(q, k, cos, sin)
        return
    for got, x in zip(brim.rope(q, k, cos, sin), (q, k)):
        assert got.dtype == x.dtype
        want = brim.rope(x.float(), None, cos.float(), sin.float())[0].to(x.dtype)
        assert torch.equal(got, want)  # one rounding of what float32 gives


def test_autocast_keeps_the_types(device):
    q, k = make(device, torch.float32)
    cos, sin = brim.rope_tables(S, D, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        a, b = brim.rope(q, k.bfloat16(), cos, sin)
    assert a.dtype == torch.float32 and b.dtype == torch.bfloat16


@pytest.mark.parametrize("shape", [(2, 0, 4, 64), (2, 4, 0, 64), (0, 4, 3, 64), (2, 4, 3, 0)])
@pytest.mark.parametrize("interleaved", PAIRINGS)
def test_93_empty_tensors(device, shape, interleaved):
    q = torch.empty(shape, device=device, requires_grad=True)
    k = torch.empty(shape, device=device, requires_grad=True)
    cos, sin = brim.rope_tables(max(shape[2], 1), 64, interleaved=True, device=device)
    cos, sin = (t[: shape[2], : shape[3] // 2] for t in (cos, sin))
    a, b = brim.rope(q, k, cos, sin, interleaved=interleaved, rotary_dim=shape[3] or None)
    assert a.shape == b.shape == shape
    (a.sum() + b.sum()).backward()
    assert q.grad.shape == k.grad.shape == shape
    if device == "cuda":
        torch.cuda.synchronize()


def test_97_k_absent_equals_k_present(device):
    q, k = make(device, torch.float32)
    cos, sin = brim.rope_tables(S, D, device=device)
    alone, none = brim.rope(q, None, cos, sin)
    assert none is None and torch.equal(alone, brim.rope(q, k, cos, sin)[0])

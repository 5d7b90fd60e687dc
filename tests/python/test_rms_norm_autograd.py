"""The gradients of brim.rms_norm and brim.add_rms_norm."""

import itertools

import brim
import oracle
import pytest
import torch
from oracle import CASTINGS, NARROW, assert_near, leaves

H = 48


@pytest.mark.parametrize("shape", [(3, 5), (2, 1, 4), (6,), (1, 1)])
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("weighted", [True, False])
def test_gradcheck(shape, offset, weighted):
    x, r = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weight = [torch.randn(shape[-1], dtype=torch.float64, requires_grad=True)] * weighted
    options = dict(eps=1e-3, offset=offset, casting="gemma")
    norm = lambda x, *w: brim.rms_norm(x, *w, **options)
    add = lambda x, r, *w: brim.add_rms_norm(x, r, *w, **options)
    for f, inputs in ((norm, (x, *weight)), (add, (x, r, *weight))):
        assert torch.autograd.gradcheck(f, inputs)
        assert torch.autograd.gradgradcheck(f, inputs)


@pytest.mark.parametrize("casting", CASTINGS)
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("wide_weight", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_gradients(device, dtype, casting, wide_weight, offset):
    for rows, hidden in ((1, 1), (7, 33), (40, 256), (3, 4097)):
        (x,) = leaves((rows, hidden), device=device, dtype=dtype)
        (weight,) = leaves(hidden, device=device, dtype=torch.float32 if wide_weight else dtype)
        dy = torch.randn_like(x)
        y = brim.rms_norm(x, weight, offset=offset, casting=casting)
        dx, dw = torch.autograd.grad(y, (x, weight), dy)
        assert dx.dtype == x.dtype and dw.dtype == weight.dtype
        want_dx, want_dw = oracle.rms_norm_gradients(x, weight, dy, offset=offset)
        if hidden > 1:  # that of a single column is 0 but for eps: nothing is left of it in float32
            assert_near(dx, want_dx, 2)
        assert_near(dw, want_dw, 4)


@pytest.mark.parametrize("dtype, residual_dtype", [(d, r) for d in NARROW for r in dict.fromkeys((d, torch.float32))])
@pytest.mark.parametrize(
    "with_dy, with_dsum, wanted",
    [
        (dy, ds, w)
        for dy, ds in ((True, True), (True, False), (False, True))
        for n in (1, 2, 3)
        for w in itertools.combinations("xrw", n)
        if dy or w != ("w",)
    ],
)
def test_gradients_of_the_add(device, dtype, residual_dtype, with_dy, with_dsum, wanted):
    x, r = torch.randn(9, H, device=device).to(dtype), torch.randn(9, H, device=device).to(residual_dtype)
    named = dict(x=x, r=r, w=torch.randn(H, device=device).to(dtype))
    for name in wanted:
        named[name].requires_grad_()
    y, total = brim.add_rms_norm(*named.values())
    assert total.requires_grad == (wanted != ("w",))  # or what comes after would compute a gradient for it
    dy, ds = torch.randn_like(y), torch.randn_like(total)
    outputs = [(y, dy)] * with_dy + [(total, ds)] * (with_dsum and total.requires_grad)
    # A weight that dy does not reach has zeros, so that ranks which sum gradients stay in step.
    got = torch.autograd.grad([o for o, _ in outputs], [named[n] for n in wanted], [g for _, g in outputs])
    want_dx, want_dw = oracle.rms_norm_gradients(total, named["w"], dy if with_dy else torch.zeros_like(dy))
    if with_dsum and total.requires_grad:
        want_dx = want_dx + ds.double()
    for name, g in zip(wanted, got):
        assert g.dtype == named[name].dtype
        assert_near(g, want_dw if name == "w" else want_dx, 4 if name == "w" else 2)


def test_87_the_residual_gradient_comes_after_the_jacobian(device):
    x = torch.tensor([0.25, 0.5], device=device, requires_grad=True)
    r = torch.tensor([0.75, 1.5], device=device, requires_grad=True)
    outputs = brim.add_rms_norm(x, r, torch.ones(2, device=device), 0.0)
    upstream = torch.tensor([[1.0, 0.0], [0.5, 0.25]], device=device).unbind()
    for g in torch.autograd.grad(outputs, (x, r), upstream):
        torch.testing.assert_close(g, torch.tensor([1.005964, -0.002982], device=device), atol=1e-6, rtol=0)


def gradient_views(like):
    rows, hidden = like.shape[-2:]
    make = lambda *shape: torch.randn(shape, device=like.device).to(like.dtype)
    yield "one number", make(1, 1, 1).expand_as(like)
    yield "expanded rows", make(1, 1, hidden).expand_as(like)
    yield "transposed", make(*like.transpose(0, 1).shape).transpose(0, 1)
    yield "inner stride 2", make(*like.shape[:-1], 2 * hidden)[..., ::2]
    yield "last axis not innermost", make(*like.transpose(1, 2).shape).transpose(1, 2)


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", NARROW)
def test_24_gradients_of_any_strides_are_served_and_not_written(device, rows, dtype):
    x, r, weight = leaves((4, rows, 64), (4, rows, 64), 64, device=device, dtype=dtype)
    for name, dy in gradient_views(x):
        kept = dy.clone()
        torch.full((1 << 16,), float("nan"), device=device)  # what an allocator may hand out next
        got = torch.autograd.grad(brim.rms_norm(x, weight), (x, weight), dy)
        want = torch.autograd.grad(brim.rms_norm(x, weight), (x, weight), dy.contiguous())
        added = torch.autograd.grad(brim.add_rms_norm(x, r, weight), (x, r, weight), (dy, dy))
        want_added = torch.autograd.grad(brim.add_rms_norm(x, r, weight), (x, r, weight), (kept, kept))
        for a, b in zip((*got, *added), (*want, *want_added)):
            assert a.isfinite().all(), name
            assert_near(a, b, 2)
        assert torch.equal(dy, kept), f"{name}: the incoming gradient was written"


@pytest.mark.parametrize("which", ["x", "dy", "weight", "all"])
@pytest.mark.parametrize("dtype", NARROW)
def test_16_misaligned_views(device, which, dtype):
    given = {n: torch.randn(s, device=device).to(dtype) for n, s in dict(x=(5, 96), dy=(5, 96), weight=(96,)).items()}

    def moved(name):
        t = given[name]
        buffer = torch.empty(t.numel() + 1, device=device, dtype=dtype)
        return buffer[1:].view(t.shape).copy_(t) if which in (name, "all") else t

    results = []
    for make in (given.get, moved):
        x, dy, weight = make("x").requires_grad_(), make("dy"), make("weight").requires_grad_()
        results.append(torch.autograd.grad(brim.rms_norm(x, weight), (x, weight), dy))
    for got, want in zip(*results):
        assert_near(got, want, 2)


def test_35_the_weight_gradient_is_summed_in_float32(device):
    x = torch.ones(32832, 128, device=device, dtype=torch.bfloat16)
    weight = torch.ones(128, device=device, dtype=torch.bfloat16, requires_grad=True)
    (dw,) = torch.autograd.grad(brim.rms_norm(x, weight, 0.0), weight, x)
    assert (dw == 32768).all()
    x, dy = (torch.randn_like(x) for _ in range(2))
    (dw,) = torch.autograd.grad(brim.rms_norm(x, weight), weight, dy)
    _, want = oracle.rms_norm_gradients(x, weight, dy)
    assert ((dw.double() - want).abs() / want.abs().clamp_min(1)).max() < 2**-8


def test_84_norms_before_and_after_a_block(device):
    """The post-norm's incoming gradient is the residual branch's too: written over, it would be wrong there."""
    x, w1, w2, matrix = leaves((6, H), H, H, (H, H), device=device)

    def block(x, norm):
        return norm((norm(x, w1) @ matrix).tanh(), w2) + x

    theirs = lambda x, w: torch.nn.functional.rms_norm(x, (H,), w, 1e-6)
    results = []
    for norm in (lambda x, w: brim.rms_norm(x, w), theirs):
        y = block(x, norm)
        results.append(torch.autograd.grad(y, (x, w1, w2), torch.ones_like(y)))
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_84_two_norms_share_one_gradient_buffer(device):
    a, b, w1, w2, r = leaves((6, H), (6, H), H, H, (6, H), device=device)
    upstream = torch.randn(6, H, device=device)
    y = brim.rms_norm(a, w1) + brim.rms_norm(b, w2) + brim.add_rms_norm(a, r, w1)[0]
    kept = upstream.clone()
    got = torch.autograd.grad(y, (a, b, w1, w2, r), upstream)
    assert torch.equal(upstream, kept)
    da, dw1 = oracle.rms_norm_gradients(a, w1, upstream)
    db, dw2 = oracle.rms_norm_gradients(b, w2, upstream)
    dr, dw3 = oracle.rms_norm_gradients(a + r, w1, upstream)
    for g, want in zip(got, (da + dr, db, dw1 + dw3, dw2, dr)):
        assert_near(g, want, 4)


def test_84_the_gradient_of_x_and_residual_is_not_shared_memory(device):
    """.grad of both leaves is changed in place by whoever accumulates next."""
    x, r, weight = leaves((4, H), (4, H), H, device=device)
    for _ in range(2):
        y, total = brim.add_rms_norm(x, r, weight)
        torch.autograd.backward((y, total), (torch.ones_like(y), torch.ones_like(y)))
    x.grad.zero_()
    assert r.grad.abs().sum() > 0
    y, total = brim.add_rms_norm(x, r, weight)
    x.grad = r.grad = None
    ds = torch.randn_like(total)
    total.backward(ds)  # no gradient of y: that of the sum goes to both
    x.grad.zero_()
    assert torch.equal(r.grad, ds) and ds.abs().sum() > 0


def test_94_a_row_of_zeros(device):
    x = torch.zeros(4, device=device, requires_grad=True)
    weight = torch.ones(4, device=device, requires_grad=True)
    for _ in range(10):
        y = brim.rms_norm(x, weight, 1e-5)
        dx, dw = torch.autograd.grad(y, (x, weight), -torch.ones_like(y))
        assert (y == 0).all() and (dw == 0).all()
        torch.testing.assert_close(dx, torch.full_like(dx, -316.2278), atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_108_the_same_bits_every_time(device, dtype):
    shape = (8192, 4096) if device == "cuda" else (512, 1024)
    x, weight = leaves(shape, shape[1], device=device, dtype=dtype)
    dy = torch.randn_like(x)
    runs = [
        torch.autograd.grad(brim.rms_norm(x, weight), (x, weight), dy) for _ in range(20 if device == "cuda" else 5)
    ]
    for run in runs[1:]:
        assert all(map(torch.equal, runs[0], run))


def test_one_tensor_as_x_and_residual(device):
    x, weight = leaves((5, H), H, device=device)
    y, total = brim.add_rms_norm(x, x, weight)
    (got,) = torch.autograd.grad((y, total), x, (torch.ones_like(y), torch.ones_like(y)))
    want, _ = oracle.rms_norm_gradients(2 * x, weight, torch.ones_like(y))
    assert_near(got, 2 * (want + 1), 3)


def test_backward_twice_adds_up(device):
    x, weight = leaves((5, H), H, device=device)
    y = brim.rms_norm(x, weight).sin().sum()
    y.backward(retain_graph=True)
    once = x.grad.clone(), weight.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * once[0]) and torch.equal(weight.grad, 2 * once[1])


def test_gradient_of_the_gradient(device):
    x, weight = leaves((5, H), H, device=device)
    results = []
    for norm in (lambda: brim.rms_norm(x, weight), lambda: oracle.rms_norm(x, weight)):
        (first,) = torch.autograd.grad(norm().pow(3).sum(), x, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), (x, weight)))
    for got, want in zip(*results):
        assert_near(got, want, 64)


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_gradients_are_laid_out_like_x(device, axes):
    back = [axes.index(i) for i in range(3)]
    sizes = (3, 4, H)
    x = torch.randn([sizes[a] for a in axes], device=device).permute(back).requires_grad_()
    weight = torch.ones(H, device=device, requires_grad=True)
    (dx,) = torch.autograd.grad(brim.rms_norm(x, weight), x, torch.ones(sizes, device=device))
    assert dx.stride() == x.stride()

"""brim.rms_norm and brim.add_rms_norm, forward: against torch's F.rms_norm in float64, and the cases from the field."""

import brim
import oracle
import pytest
import torch
from oracle import CASTINGS, NARROW, assert_near, ulps

LIMIT = {"llama": 2, "gemma": 1, "none": 1}  # ulps in 16 bits; llama rounds x * rstd as well
WIDTHS = (1, 2, 7, 33, 64, 100, 1024, 1536, 4097)


def limit(dtype, casting):
    # In float32 the sum over a row and the root are off by an ulp or two before the last rounding.
    return 4 if dtype == torch.float32 else LIMIT[casting]


@pytest.mark.parametrize("casting", CASTINGS)
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("wide_weight", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_44_accuracy(device, dtype, casting, wide_weight, offset):
    for hidden in WIDTHS:
        x = (torch.randn(5, hidden, device=device) * 3).to(dtype)
        weight = torch.randn(hidden, device=device).to(torch.float32 if wide_weight else dtype)
        y = brim.rms_norm(x, weight, 1e-5, offset=offset, casting=casting)
        assert y.dtype == dtype and y.shape == x.shape
        want = oracle.rms_norm(x, weight, 1e-5, offset).to(dtype)
        # Where offset + weight nearly cancels, float32 has lost some of its digits.
        far = ulps(y, want)[:, (weight + offset).abs() > 0.1]
        assert not far.numel() or far.max() <= limit(dtype, casting), hidden
        assert_near(y, want, 2)


@pytest.mark.parametrize("hidden", [1536, 2560, 2880, 3072, 3584, 5120, 6656, 7168])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_15_hidden_sizes_of_models(device, hidden, dtype):
    x, r, weight = (torch.randn(n, hidden, device=device).to(dtype) for n in (3, 3, 1))
    y, total = brim.add_rms_norm(x, r, weight[0], casting="gemma")
    assert torch.equal(total, x + r)
    assert ulps(y, oracle.rms_norm(total, weight[0]).to(dtype)).max() <= 1


@pytest.mark.parametrize("dtype", NARROW)
def test_the_weight_in_16_bits_beside_float32(device, dtype):
    x, weight = torch.randn(4, 96, device=device), torch.randn(96, device=device).to(dtype)
    assert_near(brim.rms_norm(x, weight), oracle.rms_norm(x, weight), 2)


@pytest.mark.parametrize("casting", CASTINGS)
@pytest.mark.parametrize("dtype", NARROW)
def test_without_a_weight_the_factor_is_1(device, dtype, casting):
    x = torch.randn(4, 96, device=device).to(dtype)
    y = brim.rms_norm(x, offset=3.0, casting=casting)
    assert ulps(y, oracle.rms_norm(x).to(dtype)).max() <= (4 if dtype == torch.float32 else 1)


@pytest.mark.parametrize("axes", [(0,), (1, 0), (2, 0, 1), (0, 1, 2), (3, 1, 0, 2), (0, 2, 1, 3, 4)])
def test_94_ranks_and_layouts(device, axes):
    sizes = (3, 4, 2, 5, 6)[: len(axes)]
    back = [axes.index(i) for i in range(len(axes))]
    x = torch.randn([sizes[a] for a in axes], device=device).permute(back)
    weight = torch.randn(x.shape[-1], device=device)
    y = brim.rms_norm(x, weight)
    assert_near(y, oracle.rms_norm(x, weight), 3)
    assert y.stride() == x.stride()
    y, total = brim.add_rms_norm(x, torch.ones_like(x).contiguous(), weight)
    assert torch.equal(total, x + 1) and total.is_contiguous() and y.stride() == x.stride()
    assert_near(y, oracle.rms_norm(x + 1, weight), 3)


def views(device, dtype):
    base = torch.randn(6, 4, 3 * 64, device=device).to(dtype)
    yield "expanded rows", torch.randn(1, 1, 64, device=device).to(dtype).expand(6, 4, 64)
    yield "expanded columns", torch.randn(6, 4, 1, device=device).to(dtype).expand(6, 4, 64)
    yield "one number", torch.randn((), device=device).to(dtype).expand(6, 4, 64)
    yield "last axis not innermost", torch.randn(6, 64, 4, device=device).to(dtype).transpose(1, 2)
    yield "inner stride 3", base[..., ::3]
    yield "28: a slice of a projection", base[..., 64:128]
    yield "28: transposed", base.transpose(0, 1)[..., 64:128]
    yield "size-1 axis with a strange stride", base.flatten().as_strided((6, 1, 64), (64, 7, 1))


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", [n for n, _ in views("cpu", torch.float32)])
def test_28_strides(device, name, dtype):
    x = dict(views(device, dtype))[name]
    weight = torch.randn(128, device=device).to(dtype)[::2]
    kept = x.clone()
    # A row may be summed in another order: by up to 18 roundings against 7, of which rstd feels half; then two more.
    far = 6 if dtype == torch.float32 else 2
    assert ulps(brim.rms_norm(x, weight), brim.rms_norm(x.contiguous(), weight.contiguous())).max() <= far
    y, total = brim.add_rms_norm(x, x, weight)
    assert torch.equal(total, x + x)
    assert ulps(y, brim.rms_norm(total.contiguous(), weight.contiguous())).max() <= far
    assert torch.equal(x, kept)


def test_25_a_transposed_matrix(device):
    x = torch.arange(1.0, 9, device=device)[:, None].expand(8, 4).contiguous().t()
    y = brim.rms_norm(x, torch.ones(8, device=device), 0.0)
    want = torch.arange(1, 9, dtype=torch.float64, device=device) / 5.049752
    torch.testing.assert_close(y.double(), want.expand(4, 8), atol=1e-6, rtol=0)


@pytest.mark.parametrize("which", ["x", "residual", "weight", "all"])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("hidden", [33, 256])
def test_16_18_misaligned_views(device, which, dtype, hidden):
    given = {n: torch.randn(s, device=device).to(dtype) for n, s in dict(x=(5, hidden), residual=(5, hidden)).items()}
    given["weight"] = torch.randn(hidden, device=device).to(dtype)
    moved = {}
    for name, t in given.items():
        buffer = torch.empty(t.numel() + 1, device=device, dtype=dtype)
        moved[name] = buffer[1:].view(t.shape).copy_(t) if which in (name, "all") else t
    far = 3 if dtype == torch.float32 else 2  # a row may be summed in another order
    norm = lambda t: (brim.rms_norm(t["x"], t["weight"]), *brim.add_rms_norm(**t))
    for got, want in zip(norm(moved), norm(given)):
        assert ulps(got, want).max() <= far


def test_33_eps_is_added_in_float32(device):
    x = torch.full((1, 32), 0.0625, device=device, dtype=torch.bfloat16)
    ones = torch.ones(32, device=device, dtype=torch.bfloat16)
    assert brim.rms_norm(x, ones)[0, 0].item() == 1.0
    assert brim.rms_norm(x.float(), ones)[0, 0].item() == pytest.approx(0.999872, abs=1e-6)
    assert brim.rms_norm(x.float(), ones, 0.0078125)[0, 0].item() == pytest.approx(0.577350, abs=1e-6)


def test_34_float16_does_not_overflow(device):
    ones = torch.ones(64, device=device, dtype=torch.float16)
    x = torch.tensor([[300.0], [60000.0], [6e-8]], device=device, dtype=torch.float16).expand(3, 64).contiguous()
    y = brim.rms_norm(x, ones)
    assert (y[:2] == 1).all()
    assert y[2].isfinite().all() and y[2, 0].item() == pytest.approx(6e-5, rel=0.01)
    leaf = x.requires_grad_()
    (dx,) = torch.autograd.grad(brim.rms_norm(leaf, ones), leaf, torch.ones_like(x) * 0.01)
    assert dx.isfinite().all()
    big = torch.full((2, 64), 40000.0, device=device, dtype=torch.float16)
    big[1] = 1
    y, total = brim.add_rms_norm(big, big, ones)
    assert total[0].isinf().all() and (y[1] == 1).all()


def test_36_the_two_orders_of_rounding(device):
    bf = lambda *v: torch.tensor(v, device=device, dtype=torch.bfloat16)
    x, w = bf(3, 5), bf(1.0078125, 1.0078125)
    for casting, want in (
        ("gemma", (0.734375, 1.21875)),
        ("none", (0.734375, 1.21875)),
        ("llama", (0.73046875, 1.21875)),
    ):
        assert torch.equal(brim.rms_norm(x, w, 0.0, casting=casting), bf(*want))
        assert torch.equal(brim.add_rms_norm(x, bf(0, 0), w, 0.0, casting=casting)[0], bf(*want))
    x = bf(1.5, 1.75, 1.25, 0.75, 0.75, 0, 0, 0)
    y = brim.rms_norm(x, bf(15.8125).expand(8), 0.0, offset=1.0, casting="gemma")
    assert torch.equal(y, bf(25.25, 29.375, 21, 12.625, 12.625, 0, 0, 0))


def test_37_a_float32_weight_beside_bfloat16(device):
    x = torch.full((2, 64), 1.0, device=device, dtype=torch.bfloat16)
    weight = torch.full((64,), 1.00390625, device=device, requires_grad=True)
    y = brim.rms_norm(x * 64, weight, 0.0, casting="gemma")
    assert y.dtype == torch.bfloat16 and ulps(y, torch.full_like(y, 1.00390625)).max() == 0
    assert brim.rms_norm(x, weight * 1.5, 0.0)[0, 0].item() == 1.5078125  # 1.505859 rounded; of a rounded weight: 1.5
    assert torch.autograd.grad(y.sum(), weight)[0].dtype == torch.float32
    plan = torch.ops.brim._rms_norm_plan(x, None, weight, False)
    assert plan.split()[0] == torch.ops.brim._rms_norm_plan(x, None, weight.bfloat16(), False).split()[0]


def test_40_the_norm_of_the_rounded_sum(device):
    bf = lambda *v: torch.tensor(v, device=device, dtype=torch.bfloat16)
    x = bf(-1.4609375, 1.390625, 1.0546875, -0.98046875)
    r = bf(-0.00018215179443359375, -0.00201416015625, 0.006072998046875, 0.01153564453125)
    y, total = brim.add_rms_norm(x, r, torch.ones_like(x), 1e-6)
    assert torch.equal(total, bf(-1.4609375, 1.390625, 1.0625, -0.96875))
    assert y[2].item() == 0.859375


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("casting", CASTINGS)
@pytest.mark.parametrize("offset, eps", [(0.0, 1e-6), (1.0, 1e-3)])
@pytest.mark.parametrize("weighted", [True, False])
def test_43_adding_nothing_changes_nothing(device, dtype, casting, offset, eps, weighted):
    x = torch.randn(5, 200, device=device).to(dtype)
    weight = torch.randn(200, device=device).to(dtype) if weighted else None
    options = dict(eps=eps, offset=offset, casting=casting)
    y, total = brim.add_rms_norm(x, torch.zeros_like(x), weight, **options)
    assert torch.equal(total, x) and torch.equal(y, brim.rms_norm(x, weight, **options))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("casting", CASTINGS)
def test_a_float32_residual_stream(device, dtype, casting):
    x, r = torch.randn(5, 200, device=device).to(dtype), torch.randn(5, 200, device=device)
    weight = torch.randn(200, device=device).to(dtype)
    y, total = brim.add_rms_norm(x, r, weight, casting=casting)
    assert total.dtype == torch.float32 and torch.equal(total, x.float() + r)
    assert y.dtype == dtype and ulps(y, oracle.rms_norm(total, weight).to(dtype)).max() <= 1


@pytest.mark.parametrize("shape", [(65536, 1, 128), (1, 65536, 128), (70000, 2, 64)])
def test_10_an_axis_beyond_a_launch_grid(device, shape):
    x, weight = torch.randn(shape, device=device).bfloat16(), torch.randn(shape[-1], device=device).bfloat16()
    y = brim.rms_norm(x, weight)
    assert ulps(y, oracle.rms_norm(x, weight).bfloat16()).max() <= 2
    part = x.reshape(-1, shape[-1])[-17:]
    assert torch.equal(brim.rms_norm(part, weight), y.reshape(-1, shape[-1])[-17:])


@pytest.mark.parametrize("hidden", [8192, 12288, 16384, 18432, 32768, 65536, 131072])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_11_long_rows(device, hidden, dtype):
    x, r, dy, ds = (torch.randn(3, hidden, device=device).to(dtype) for _ in range(4))
    weight = torch.randn(hidden, device=device).to(dtype).requires_grad_()
    x.requires_grad_()
    y, total = brim.add_rms_norm(x, r, weight)
    assert_near(y.detach(), oracle.rms_norm(total, weight).detach(), 2)
    dx, dw = torch.autograd.grad((y, total), (x, weight), (dy, ds))
    want_dx, want_dw = oracle.rms_norm_gradients(total, weight, dy)
    assert_near(dx, want_dx + ds.double(), 2)
    assert_near(dw, want_dw, 4)


@pytest.mark.parametrize("shape", [(3, 0, 2520), (0, 64), (0,), (4, 0)])
@pytest.mark.parametrize("dtype", NARROW)
def test_93_empty_tensors(device, shape, dtype):
    x = torch.randn(shape, device=device).to(dtype).requires_grad_()
    weight = torch.randn(shape[-1], device=device).to(dtype).requires_grad_()
    y = brim.rms_norm(x, weight)
    assert y.shape == shape
    dx, dw = torch.autograd.grad(y, (x, weight), torch.ones_like(y))
    assert dx.shape == shape and torch.equal(dw, torch.zeros_like(weight))
    outputs = brim.add_rms_norm(x, x, weight)
    assert [t.shape for t in outputs] == [shape, shape]
    dx, dw = torch.autograd.grad(outputs, (x, weight), [torch.ones_like(y)] * 2)
    assert dx.shape == shape and torch.equal(dw, torch.zeros_like(weight))


def test_a_row_does_not_depend_on_the_others(device):
    x, weight = torch.randn(300, 1000, device=device).bfloat16(), torch.randn(1000, device=device)
    y = brim.rms_norm(x, weight)
    for rows in (1, 2, 3, 64, 255):
        assert torch.equal(brim.rms_norm(x[:rows].clone(), weight), y[:rows])


def test_any_number_of_threads_gives_the_same_bits():
    x, weight, dy = (torch.randn(n, 1000) for n in (300, 1, 300))
    x, weight = x.requires_grad_(), weight[0].clone().requires_grad_()
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = brim.rms_norm(x, weight)
            results.append((y, *torch.autograd.grad(y, (x, weight), dy)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.parametrize("dtype", NARROW)
def test_37_autocast_changes_no_type(device, dtype):
    x, r, weight = (
        torch.randn(4, 64, device=device).to(dtype),
        torch.randn(4, 64, device=device),
        torch.ones(64, device=device),
    )
    with torch.autocast(device, dtype=torch.bfloat16):
        assert torch.equal(brim.rms_norm(x, weight), brim.rms_norm(x.clone(), weight))
        assert brim.rms_norm(x, weight).dtype == dtype
        y, total = brim.add_rms_norm(x, r, weight)
        assert (y.dtype, total.dtype) == (dtype, torch.float32)
        leaf = x.clone().requires_grad_()
        brim.rms_norm(leaf, weight).sum().backward()
        assert leaf.grad.dtype == dtype

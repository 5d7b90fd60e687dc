"""brim.rms_norm and brim.add_rms_norm under torch.compile, their ops' schemas and fakes."""

import brim
import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode

H = 16
ops = torch.ops.brim


def op_calls(x, residual, weight):
    """(op, arguments) of every op for these rows."""
    options = weight, 1e-6, 0.5, 0
    y, rstd = ops.rms_norm_rstd(x, *options)
    dy, ds = torch.randn(x.shape, device=x.device).to(x.dtype), torch.randn(x.shape, device=x.device).to(residual.dtype)
    yield ops.rms_norm, (x, *options)
    yield ops.rms_norm_rstd, (x, *options)
    yield ops.add_rms_norm, (x, residual, *options)
    yield ops.add_rms_norm_rstd, (x, residual, *options)
    weighted = ("dw", "dx_dw") if weight is not None else ()
    for name in ("dx", *weighted):
        yield getattr(ops, f"rms_norm_{name}"), (dy, x, weight, rstd, 0.5)
    weighted = ("dw", "dx_dw", "dx_dr_dw") if weight is not None else ()
    for name in ("dx", "dx_dr", *weighted):
        for dsum in (ds, None):
            yield getattr(ops, f"add_rms_norm_{name}"), (dy, dsum, residual, weight, rstd, 0.5)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("residual_dtype", [torch.bfloat16, torch.float32])
def test_97_opcheck(device, weighted, residual_dtype):
    x = torch.randn(3, 5, H, device=device).bfloat16()
    weight = torch.randn(H, device=device) if weighted else None
    for op, arguments in op_calls(x.transpose(0, 1), torch.randn_like(x).to(residual_dtype).transpose(0, 1), weight):
        torch.library.opcheck(op, arguments)


def layouts(device):
    x = torch.randn(4, 5, 3 * H, device=device)
    yield "contiguous", x
    yield "transposed", x.transpose(0, 1)
    yield "sliced", x[..., H : 2 * H]
    yield "sliced and transposed", x[..., H : 2 * H].transpose(0, 1)
    yield "inner stride 3", x[..., ::3]
    yield "last axis not innermost", x.transpose(1, 2)
    yield "expanded", torch.randn(1, 5, H, device=device).expand(4, 5, H)
    yield "expanded columns", torch.randn(4, 5, 1, device=device).expand(4, 5, H)
    yield "one row", torch.randn(H, device=device)
    yield "no row", torch.randn(4, 0, H, device=device)
    yield "rows of nothing", torch.randn(4, 5, 0, device=device)
    yield "size 1", torch.randn(4, 1, H, device=device).transpose(0, 1)
    yield "one column", torch.randn(4, 5, 1, device=device)
    yield "five axes", torch.randn(2, 3, 1, 2, H, device=device).permute(2, 0, 3, 1, 4)
    yield "strange strides of size-1 axes", torch.randn(5 * H, device=device).as_strided((1, 5, H), (3, H, 1))


def facts(results):
    results = results if isinstance(results, tuple) else (results,)
    return [(r.shape, r.stride(), r.dtype, r.device) for r in results]


@pytest.mark.parametrize("residual_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [n for n, _ in layouts("cpu")])
def test_98_fakes_have_the_strides_of_the_real_outputs(device, name, residual_dtype):
    x = dict(layouts(device))[name]
    if residual_dtype == torch.float32:  # a type of its own beside x's 16 bits
        x, residual = x.bfloat16(), x
    elif device == "cuda":
        pytest.skip("float64 is for the CPU only")
    else:
        x = residual = x.double()
    weight = torch.ones(2 * x.shape[-1], device=device, dtype=residual_dtype)[::2]
    for op, arguments in op_calls(x, residual, weight):
        real = op(*arguments)
        with FakeTensorMode() as mode:
            fake = op(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments))
            assert facts(fake) == facts(real), op


def inputs(device, b, s, dtype=torch.float32):
    x, r = (torch.randn(b, s, H, device=device).to(dtype).requires_grad_() for _ in range(2))
    return x, r, torch.randn(H, device=device, requires_grad=True)


@pytest.mark.parametrize("casting", ["llama", "gemma"])
@pytest.mark.parametrize("weighted", [True, False])
def test_97_compile_with_dynamic_batch_and_sequence(device, casting, weighted):
    torch._dynamo.reset()
    counter = CompileCounter()

    def step(x, r, weight):
        weight = weight if weighted else None
        y = brim.rms_norm(x * 2, weight, casting=casting)
        y, r = brim.add_rms_norm(y, r, weight, 1e-5, offset=1.0, casting=casting)
        return y * 2, r + y

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=counter)
    for b, s in ((6, 7), (3, 2), (2, 128), (5, 7), (1, 1), (1, 7), (2, 1), (4, 128)):
        arguments = inputs(device, b, s, torch.bfloat16)
        arguments = (arguments[0], arguments[1], arguments[2].detach().bfloat16())
        for got, want in zip(compiled(*arguments), step(*arguments)):
            assert torch.equal(got, want) and got.stride() == want.stride()
    assert counter.frame_count <= 4  # once for sizes in general, and for axes of size 1


@pytest.mark.parametrize(
    "backend, wanted", [("inductor", "xrw"), *(("aot_eager", w) for w in ("xrw", "xr", "w", "x", "r", "rw"))]
)
def test_97_compiled_training_step(device, backend, wanted):
    torch._dynamo.reset()

    def step(x, r, weight):
        y = brim.rms_norm(x, weight)
        a, b = brim.add_rms_norm(y, r, weight)
        return a.sin() * 2, b.cos()

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=backend)
    for s in (7, 2, 128, 1):
        named = dict(zip("xrw", inputs(device, 2, s)))
        for name, t in named.items():
            t.requires_grad_(name in wanted)
        results = []
        for f in (step, compiled):
            outputs = f(*named.values())
            upstream = [torch.linspace(-1, 1, y.numel(), device=device).view_as(y) for y in outputs]
            recorded = [(y, g) for y, g in zip(outputs, upstream) if y.requires_grad]
            gradients = torch.autograd.grad(
                [y for y, _ in recorded], [named[n] for n in wanted], [g for _, g in recorded]
            )
            results.append([*outputs, *gradients])
        for got, want in zip(*reversed(results)):
            torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
            assert got.stride() == want.stride()


@pytest.mark.parametrize("used", ["y", "residual"])
def test_97_compiled_with_one_result_used(device, used):
    torch._dynamo.reset()
    x, r, weight = inputs(device, 2, 3)

    def step(x, r, weight):
        y, total = brim.add_rms_norm(x, r, weight)
        return (y if used == "y" else total).square().sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    results = [torch.autograd.grad(f(x, r, weight), (x, r, weight), materialize_grads=True) for f in (compiled, step)]
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_97_compiled_with_a_float32_residual(device):
    torch._dynamo.reset()
    x, r, weight = inputs(device, 2, 3)
    x = x.detach().bfloat16().requires_grad_()

    def step(x, r, weight):
        y, total = brim.add_rms_norm(x, r, weight)
        return y.float().sin().sum() + total.cos().sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    results = [torch.autograd.grad(f(x, r, weight), (x, r, weight)) for f in (compiled, step)]
    for got, want in zip(*results):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, atol=1e-2 if got.dtype == torch.bfloat16 else 1e-5, rtol=1e-2)


def test_97_compiled_with_one_tensor_as_x_and_residual(device):
    torch._dynamo.reset()
    x, _, weight = inputs(device, 2, 3)

    def step(x):
        y, total = brim.add_rms_norm(x, x, weight)
        return (2 * y + 3 * total).square().sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    got, want = (torch.autograd.grad(f(x), x)[0] for f in (compiled, step))
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-5)


def test_97_compiled_modules(device):
    torch._dynamo.reset()
    norm, add = brim.RMSNorm(H, device=device), brim.AddRMSNorm(H, offset=1.0, casting="gemma", device=device)
    plain = brim.RMSNorm(H, elementwise_affine=False)

    def step(x):
        y, r = add(norm(x), x)
        return plain(y) + r

    x = torch.randn(2, 3, H, device=device, requires_grad=True)
    parameters = x, norm.weight, add.weight
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    results = [(f(x), *torch.autograd.grad(f(x).sin().sum(), parameters)) for f in (compiled, step)]
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_97_exported(device):
    norm = brim.RMSNorm(H, device=device)
    x = torch.randn(2, 3, H, device=device)
    program = torch.export.export(norm, (x,))
    assert torch.equal(program.module()(x), norm(x))


def test_98_meta_tensors():
    norm = brim.AddRMSNorm(H, device="meta")
    x = torch.randn(2, 3, H, device="meta", requires_grad=True)
    y, total = norm(x, x)
    assert y.shape == total.shape == x.shape and y.device.type == "meta"
    (y.sum() + total.sum()).backward()
    assert x.grad.shape == x.shape and norm.weight.grad.shape == (H,)

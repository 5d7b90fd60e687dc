"""brim.rope under torch.compile, its ops' schemas and fakes."""

import brim
import pytest
import torch
from oracle import PAIRINGS
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode

D = 8


def inputs(device, s=5, b=2, h=4, hk=2, grad=False):
    q = torch.randn(b, s, h, D, device=device, requires_grad=grad)
    k = torch.randn(b, s, hk, D, device=device, requires_grad=grad)
    return q, k, *brim.rope_tables(s, D, device=device)


def op_arguments(device, positions=False, sections=None, pairing=0):
    q, k, cos, sin = inputs(device)
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    if pairing:
        cos, sin = cos[:, : D // 2], sin[:, : D // 2]
    if sections:
        cos, sin = (t.expand(3, 1, *t.shape).contiguous() for t in (cos, sin))
    ids = torch.arange(5, device=device).flip(0) if positions else None
    packed = sum(n << 21 * i for i, n in enumerate(sections or []))
    return q, k, (cos, sin, ids, D + (pairing << 34), packed)


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("sections", [None, [2, 1, 1]])
@pytest.mark.parametrize("pairing", [0, 1, 2])
def test_97_opcheck(device, positions, sections, pairing):
    if positions and sections:
        positions = False
    q, k, options = op_arguments(device, positions, sections, pairing)
    torch.library.opcheck(torch.ops.brim.rope, (q, k, *options, -1))
    torch.library.opcheck(torch.ops.brim.rope, (q, k, *options, 0o3210 + (0o0123 << 32)))
    torch.library.opcheck(torch.ops.brim.rope_one, (q, *options, -1))
    if pairing != 2:
        torch.library.opcheck(torch.ops.brim.rope_, (q.clone(), k.clone(), *options))
        torch.library.opcheck(torch.ops.brim.rope_, (q.clone(), None, *options))


def test_97_opcheck_of_the_tables():
    numbers = dict(factor=2.0, max_position_embeddings=0, original_max_position_embeddings=0, attention_factor=0.0)
    numbers |= dict(beta_fast=0.0, beta_slow=0.0, mscale=0.0, mscale_all_dim=0.0, truncate=True)
    numbers |= dict(low_freq_factor=0.0, high_freq_factor=0.0, short_factor=None, long_factor=None)
    options = dict(halves_repeated=True, base=1e4, seq_len=0, rule=1, dtype=torch.bfloat16)
    torch.library.opcheck(torch.ops.brim.rope_tables, (6, D), options | numbers)


@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("with_k", [True, False])
def test_97_compile_with_dynamic_batch_and_sequence(device, interleaved, positions, with_k):
    torch._dynamo.reset()
    counter = CompileCounter()

    def step(q, k, cos, sin, ids):
        a, b = brim.rope(
            q.transpose(1, 2),
            k.transpose(1, 2) if with_k else None,
            cos,
            sin,
            position_ids=ids,
            interleaved=interleaved,
        )
        return (a * 2, b * 2) if with_k else (a * 2,)

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=counter)
    for b, s in ((6, 7), (3, 2), (2, 128), (5, 7), (1, 1), (1, 7), (2, 1), (4, 128)):
        q, k, cos, sin = inputs(device, s, b, grad=True)
        if interleaved:
            cos, sin = cos[:, : D // 2], sin[:, : D // 2]
        ids = torch.arange(s, device=device).flip(0) if positions else None
        want = step(q, k, cos, sin, ids)
        got = compiled(q, k, cos, sin, ids)
        for x, y in zip(got, want):
            assert torch.equal(x, y) and x.stride() == y.stride()
    # Once for sizes in general; torch makes a case of its own of each axis of size 1.
    assert counter.frame_count <= 4


@pytest.mark.parametrize("backend, interleaved", [("inductor", False), *(("aot_eager", p) for p in PAIRINGS)])
def test_97_compiled_training_step(device, backend, interleaved):
    torch._dynamo.reset()

    def step(q, k, cos, sin):
        a, b = brim.rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin, interleaved=interleaved)
        return a.sin() * 2, b.cos()

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=backend)
    for s in (7, 2, 128, 1):
        q, k, cos, sin = inputs(device, s, grad=True)
        if interleaved:
            cos, sin = cos[:, : D // 2], sin[:, : D // 2]
        gradients = []
        for f in (step, compiled):
            outputs = f(q, k, cos, sin)
            upstream = [torch.linspace(-1, 1, y.numel(), device=device).view_as(y) for y in outputs]
            gradients.append([*outputs, *torch.autograd.grad(outputs, (q, k), upstream)])
        for got, want in zip(*reversed(gradients)):
            torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)
            assert got.stride() == want.stride()


@pytest.mark.parametrize("wanted", [("q",), ("k",), ("q", "k")])
def test_97_compiled_with_some_gradients_wanted(device, wanted):
    torch._dynamo.reset()
    q, k, cos, sin = inputs(device)
    leaves = [x.requires_grad_() for name, x in (("q", q), ("k", k)) if name in wanted]

    def step(q, k):
        a, b = brim.rope(q, k, cos, sin, layout="bshd")
        return a, b, a.sin().sum() + b.cos().sum()

    results = []
    for f in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        a, b, loss = f(q, k)
        results.append([a, b, *torch.autograd.grad(loss, leaves)])
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("sections_interleaved", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
def test_97_compiled_with_sections_and_partial_rotary(device, sections_interleaved, inverse):
    torch._dynamo.reset()
    options = dict(layout="bshd", rotary_dim=6, sections=[1, 1, 1], sections_interleaved=sections_interleaved)

    def step(q, k, cos, sin):
        return brim.rope(q, k, cos, sin, inverse=inverse, **options)

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for s in (7, 2):
        q, k, cos, sin = inputs(device, s, grad=True)
        cos, sin = (torch.stack((t, t.flip(0), -t))[:, None, :, :3] for t in (cos, sin))
        results = []
        for f in (step, compiled):
            outputs = f(q, k, cos, sin)
            results.append([*outputs, *torch.autograd.grad(outputs, (q, k), [y.detach() for y in outputs])])
        for got, want in zip(*results):
            assert torch.equal(got, want)


def test_97_compiled_with_one_tensor_as_q_and_k(device):
    torch._dynamo.reset()
    x, _, cos, sin = inputs(device, grad=True)

    def step(x):
        a, b = brim.rope(x, x, cos, sin, layout="bshd")
        return (2 * a + 3 * b).square().sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    got, want = (torch.autograd.grad(f(x), x)[0] for f in (compiled, step))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(want, 50 * x.detach(), atol=1e-4, rtol=1e-5)


def test_97_in_place_breaks_the_graph_and_runs_eagerly(device):
    torch._dynamo.reset()

    def step(q, k, cos, sin):
        q, k = q * 1, k * 1
        brim.rope(q, k, cos, sin, layout="bshd", inplace=True)
        return q * 2, k * 2

    arguments = inputs(device, grad=True)
    want = step(*arguments)
    got = torch.compile(step, backend="aot_eager")(*arguments)
    for x, y in zip(got, want):
        assert torch.equal(x, y)
    gradients = [
        torch.autograd.grad([y.sin() for y in ys], arguments[:2], [torch.ones_like(y) for y in ys])
        for ys in (got, want)
    ]
    for x, y in zip(*gradients):
        assert torch.equal(x, y)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="out-of-place form"):
        torch.compile(step, fullgraph=True, backend="aot_eager")(*arguments)


def layouts(device):
    x = torch.randn(2, 5, 4, D, device=device)
    yield "contiguous", x.transpose(1, 2).contiguous()
    yield "transposed", x.transpose(1, 2)
    yield "permuted", x.permute(3, 0, 2, 1).contiguous().permute(1, 2, 3, 0)
    yield "sliced", torch.randn(2, 4, 5, 3 * D, device=device)[..., D : 2 * D]
    yield "sliced and transposed", torch.randn(2, 5, 12, D, device=device)[:, :, 3:7].transpose(1, 2)
    yield "inner stride 2", torch.randn(2, 4, 5, 2 * D, device=device)[..., ::2]
    yield "expanded", torch.randn(2, 1, 5, D, device=device).expand(2, 4, 5, D)
    yield "expanded twice", torch.randn(1, 1, 5, D, device=device).expand(2, 4, 5, D)
    yield "no head", torch.randn(2, 5, 0, D, device=device).transpose(1, 2)
    yield "no batch", torch.randn(0, 4, 5, D, device=device)
    for axis in range(4):
        shape = [2, 5, 4, D]
        if axis < 3:
            shape[axis] = 1
            yield f"size 1 on axis {axis}", torch.randn(shape, device=device).transpose(1, 2)
            yield f"sliced to size 1 on axis {axis}", x.narrow(axis, 1, 1).transpose(1, 2)
    yield "all sizes 1 but one", torch.randn(1, 1, 1, D, device=device)
    yield "strange strides of size-1 axes", torch.randn(5 * D, device=device).as_strided((1, 1, 5, D), (3, 99, D, 1))


@pytest.mark.parametrize("name", [n for n, _ in layouts("cpu")])
def test_98_fakes_have_the_strides_of_the_real_outputs(device, name):
    x = dict(layouts(device))[name]
    s = x.shape[2]
    options = (*brim.rope_tables(max(s, 1), D, device=device), None, D, 0)
    for order in (-1, 0o3210, 0o3120, 0o0123):
        k = x[:, :1]
        orders = order if order < 0 else order + (order << 32)
        real = torch.ops.brim.rope(x, k, *options, orders), torch.ops.brim.rope_one(x, *options, order)
        with FakeTensorMode() as mode:
            fake_options = [mode.from_tensor(o) if isinstance(o, torch.Tensor) else o for o in options]
            fake_x, fake_k = mode.from_tensor(x), mode.from_tensor(k)
            fake = (
                torch.ops.brim.rope(fake_x, fake_k, *fake_options, orders),
                torch.ops.brim.rope_one(fake_x, *fake_options, order),
            )
        for r, f in zip((*real[0], real[1]), (*fake[0], fake[1])):
            assert (f.shape, f.stride(), f.dtype, f.device) == (r.shape, r.stride(), r.dtype, r.device)


@pytest.mark.parametrize("name", [n for n, _ in layouts("cpu")])
def test_98_outputs_are_laid_out_like_their_inputs(device, name):
    """As torch.empty_like would, where that has a say: axes of one element or of stride 0 have no place of their own."""
    x = dict(layouts(device))[name]
    y, _ = brim.rope(x, None, *brim.rope_tables(max(x.shape[2], 1), D, device=device))
    like = torch.empty_like(x)
    assert [s for s, n in zip(y.stride(), y.shape) if n > 1] == [s for s, n in zip(like.stride(), y.shape) if n > 1]
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, c, s: brim.rope(x, None, c, s)[0], fullgraph=True, backend="aot_eager")
    assert compiled(x, *brim.rope_tables(max(x.shape[2], 1), D, device=device)).stride() == y.stride()

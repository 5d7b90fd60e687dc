"""What only a GPU shows: memory, CUDA graphs, streams, devices, sizes beyond 32 bits."""

import brim
import pytest
import torch
from conftest import CUDA, extra_bytes, free_gibibytes, nbytes, needs_cuda
from oracle import MODES, PAIRINGS

pytestmark = needs_cuda

B, S, H, HK, D = 2, 512, 8, 2, 128


def inputs(dtype=torch.bfloat16, grad=False, s=S, device="cuda"):
    q = torch.randn(B, s, H, D, device=device, dtype=dtype).transpose(1, 2)
    k = torch.randn(B, s, HK, D, device=device, dtype=dtype).transpose(1, 2)
    return q.requires_grad_(grad), k.requires_grad_(grad), *brim.rope_tables(s, D, device=device)


def test_memory_out_of_place_is_the_outputs():
    q, k, cos, sin = inputs(grad=True)
    gradients = torch.randn_like(q), torch.randn_like(k)
    with torch.no_grad():
        assert extra_bytes(lambda: brim.rope(q, k, cos, sin)) == nbytes(q, k)
    outputs = brim.rope(q, k, cos, sin)
    backward = lambda: torch.autograd.grad(outputs, (q, k), gradients, retain_graph=True)
    assert extra_bytes(backward) == nbytes(q, k)


def test_memory_in_place_is_nothing_and_in_backward_the_gradients():
    q, k, cos, sin = inputs()
    assert extra_bytes(lambda: brim.rope(q, k, cos, sin, inplace=True)) == 0
    q, k = (x.requires_grad_() * 1 for x in (q, k))
    assert extra_bytes(lambda: brim.rope(q, k, cos, sin, inplace=True)) == 0
    leaves = [torch.randn_like(x).requires_grad_() for x in inputs()[:2]]
    outputs = brim.rope(*(x * 1 for x in leaves), cos, sin, inplace=True)
    gradients = [torch.randn_like(y) for y in outputs]
    backward = lambda: [y.grad_fn.apply(g) for y, g in zip(outputs, gradients)]
    assert extra_bytes(backward) == nbytes(*leaves)


def test_a_strided_input_is_never_copied():
    packed = torch.randn(B, S, (H + 2 * HK) * D, device="cuda", dtype=torch.bfloat16)
    q, k, _ = packed.split([H * D, HK * D, HK * D], -1)
    q, k = q.unflatten(-1, (H, D)).transpose(1, 2), k.unflatten(-1, (HK, D)).transpose(1, 2)
    cos, sin = brim.rope_tables(S, D, device="cuda")
    assert extra_bytes(lambda: brim.rope(q, k, cos, sin)) == nbytes(q, k)


def step(q, k, cos, sin, position_ids, upstream, inplace, interleaved):
    tensors = (q * 1, k * 1) if inplace else (q, k)
    options = dict(position_ids=position_ids, inplace=inplace, interleaved=interleaved, rotary_dim=D)
    outputs = brim.rope(*tensors, cos, sin, **options)
    return [*outputs, *torch.autograd.grad(outputs, (q, k), upstream)]


@pytest.mark.parametrize("interleaved, inplace", MODES)
@pytest.mark.parametrize("positions", [False, True])
def test_99_graph_capture_and_replay_with_new_contents(interleaved, positions, inplace):
    q, k, cos, sin = inputs(grad=True)
    if interleaved:
        cos, sin = cos[:, : D // 2].contiguous(), sin[:, : D // 2].contiguous()
    ids = torch.randint(S, (B, S), device="cuda") if positions else None
    upstream = [torch.randn_like(x) for x in (q, k)]
    arguments = (q, k, cos, sin, ids, upstream, inplace, interleaved)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(*arguments)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(*arguments)
    for _ in range(3):
        with torch.no_grad():
            for x in (q, k, *upstream):
                x.copy_(torch.randn_like(x))
            if positions:
                ids.copy_(torch.randint(S, (B, S), device="cuda"))
        graph.replay()
        for got, want in zip(captured, step(*arguments)):
            assert torch.equal(got, want)


@pytest.mark.parametrize("inplace", [False, True])
def test_99_nothing_waits_for_the_gpu(inplace):
    q, k, cos, sin = inputs(grad=True)
    ids = torch.randint(S, (B, S), device="cuda")
    upstream = [torch.randn_like(x) for x in (q, k)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(q, k, cos, sin, ids, upstream, inplace, False)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("inplace", [False, True])
def test_100_work_goes_to_the_current_stream(inplace):
    q, k, cos, sin = inputs(torch.float32)
    ones = torch.ones_like(q), torch.ones_like(k)
    want = brim.rope(*ones, cos, sin)
    side, default = torch.cuda.Stream(), torch.cuda.default_stream()
    torch.cuda.synchronize()
    for _ in range(50):
        q.zero_()
        k.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(100_000_000)
            q.fill_(1)
            k.fill_(1)
            got = brim.rope(q, k, cos, sin, inplace=inplace)
            assert default.query()  # nothing was queued there, while `side` still sleeps
            assert not side.query()
        side.synchronize()
        assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


def test_100_backward_runs_on_the_stream_of_its_forward():
    q, k, cos, sin = inputs(torch.float32, grad=True)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        a, b = brim.rope(q, k, cos, sin)
        upstream = torch.zeros_like(a), torch.zeros_like(b)
        torch.cuda._sleep(100_000_000)
        for g in upstream:
            g.fill_(1)
        got = torch.autograd.grad((a, b), (q, k), upstream)
    side.synchronize()
    want = torch.autograd.grad(brim.rope(q, k, cos, sin), (q, k), [torch.ones_like(x) for x in (q, k)])
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


@pytest.mark.skipif(not CUDA or torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("inplace", [False, True])
def test_101_tensors_on_another_than_the_current_device(inplace):
    torch.cuda.set_device(0)
    q, k, cos, sin = inputs(torch.float32, grad=True, device="cuda:1")
    first = [x.detach().to("cuda:0").requires_grad_() for x in (q, k)]
    results = []
    for a, b in (first, (q, k)):
        c, s = (t.to(a.device) for t in (cos, sin))
        x, y = (a * 1, b * 1) if inplace else (a, b)
        outputs = brim.rope(x, y, c, s, inplace=inplace)
        results.append([*outputs, *torch.autograd.grad(outputs, (a, b), [torch.ones_like(t) for t in outputs])])
        assert torch.cuda.current_device() == 0
    for on_first, on_second in zip(*results):
        assert on_second.device == torch.device("cuda:1") and torch.equal(on_first, on_second.to("cuda:0"))
    with pytest.raises(ValueError):
        brim.rope(q, k, cos, sin, rotary_dim=D + 2)
    with pytest.raises(RuntimeError, match="must be on one device"):
        brim.rope(q * 1, k * 1, cos.to("cuda:0"), sin, inplace=inplace)
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize("r", [D, 92, 2])
def test_a_gpu_gives_the_bits_of_the_cpu(dtype, interleaved, r):
    q, k, _, _ = inputs(dtype, s=33)
    cos, sin = brim.rope_tables(33, r, interleaved=True, device="cuda")
    got = brim.rope(q, k, cos, sin, rotary_dim=r, interleaved=interleaved)
    want = brim.rope(q.cpu(), k.cpu(), cos.cpu(), sin.cpu(), rotary_dim=r, interleaved=interleaved)
    assert torch.equal(got[0].cpu(), want[0]) and torch.equal(got[1].cpu(), want[1])


@pytest.mark.skipif(free_gibibytes() < 12, reason="needs 12 GiB of GPU memory")
@pytest.mark.parametrize("interleaved", [False, True])
def test_09_more_elements_than_32_bits_count(interleaved):
    q = torch.randn(1, 648000, 48, 72, device="cuda", dtype=torch.bfloat16)
    assert q.numel() > 2**31
    cos, sin = brim.rope_tables(648000, 72, interleaved=True, device="cuda")
    options = dict(layout="bshd", interleaved=interleaved, rotary_dim=72)
    y, _ = brim.rope(q, None, cos, sin, **options)
    for first in (0, 621379, 647900):
        part = slice(first, first + 100)
        small, _ = brim.rope(q[:, part].contiguous(), None, cos[part], sin[part], **options)
        assert torch.equal(y[:, part], small)


@pytest.mark.parametrize("shape", [(65536, 1, 1, 8), (1, 65536, 1, 8), (70000, 2, 1, 8), (1, 1, 70000, 8)])
def test_10_an_axis_beyond_a_launch_grid(shape):
    x = torch.randn(shape, device="cuda")
    cos, sin = brim.rope_tables(shape[2], 8, device="cuda")
    y, _ = brim.rope(x, None, cos[-1:].expand(shape[2], 8), sin[-1:].expand(shape[2], 8))
    want, _ = brim.rope(
        x.reshape(1, 1, -1, 8), None, cos[-1:].expand(x.numel() // 8, 8), sin[-1:].expand(x.numel() // 8, 8)
    )
    assert torch.equal(y.flatten(), want.flatten())

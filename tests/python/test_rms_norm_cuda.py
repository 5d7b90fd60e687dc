"""What only a GPU shows of the norms: memory, CUDA graphs, streams, devices, sizes beyond 32 bits."""

import brim
import oracle
import pytest
import torch
from conftest import CUDA, extra_bytes, free_gibibytes, nbytes, needs_cuda
from oracle import assert_near

pytestmark = needs_cuda

ROWS, H = 2048, 4096


def inputs(dtype=torch.bfloat16, rows=ROWS, hidden=H, device="cuda"):
    x, r = (torch.randn(rows, hidden, device=device, dtype=dtype).requires_grad_() for _ in range(2))
    return x, r, torch.randn(hidden, device=device, dtype=dtype).requires_grad_()


def test_memory_is_the_outputs():
    x, r, weight = inputs()
    rstd = 4 * ROWS
    with torch.no_grad():
        assert extra_bytes(lambda: brim.rms_norm(x, weight)) == nbytes(x)
        assert extra_bytes(lambda: brim.add_rms_norm(x, r, weight)) == nbytes(x, r)
    assert extra_bytes(lambda: brim.rms_norm(x, weight)) == nbytes(x) + rstd
    assert extra_bytes(lambda: brim.add_rms_norm(x, r, weight)) == nbytes(x, r) + rstd


def test_memory_of_backward_is_the_gradients_and_a_little_workspace():
    x, r, weight = inputs()
    y, (z, total) = brim.rms_norm(x, weight), brim.add_rms_norm(x, r, weight)
    dy = torch.randn_like(x)
    norm = lambda: torch.autograd.grad(y, (x, weight), dy, retain_graph=True)
    add = lambda: torch.autograd.grad((z, total), (x, r, weight), (dy, dy), retain_graph=True)
    for backward in (norm, add):
        assert nbytes(x, weight) <= extra_bytes(backward) <= nbytes(x, weight) + (16 << 20)


def test_a_strided_input_is_never_copied():
    packed = torch.randn(ROWS, 3 * 1024, device="cuda", dtype=torch.bfloat16)
    x, weight = packed[:, 1024:2048], torch.ones(1024, device="cuda", dtype=torch.bfloat16)
    assert extra_bytes(lambda: brim.rms_norm(x, weight)) == nbytes(x)


def step(x, r, weight, dy, ds):
    y = brim.rms_norm(x, weight)
    z, total = brim.add_rms_norm(y, r, weight)
    return [y, z, total, *torch.autograd.grad((z, total), (x, r, weight), (dy, ds))]


def test_99_graph_capture_and_replay_with_new_contents():
    x, r, weight = inputs()
    arguments = x, r, weight, torch.randn_like(x), torch.randn_like(x)
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
            for t in arguments:
                t.copy_(torch.randn_like(t))
        graph.replay()
        for got, want in zip(captured, step(*arguments)):
            assert torch.equal(got, want)


def test_99_nothing_waits_for_the_gpu():
    x, r, weight = inputs()
    dy = torch.randn_like(x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(x, r, weight, dy, dy)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_100_work_goes_to_the_current_stream():
    x, r, weight = inputs(torch.float32)
    dy = torch.zeros_like(x)
    full = lambda v: torch.full_like(x, v).requires_grad_()
    # With leaves of its own: autograd adds the gradients of one up on the stream where it was first used.
    own = weight.detach().requires_grad_()
    want = step(full(1.0), full(2.0), own, full(3.0).detach(), full(3.0).detach())
    side, default = torch.cuda.Stream(), torch.cuda.default_stream()
    torch.cuda.synchronize()
    for _ in range(50):
        with torch.no_grad():
            for t in (x, r, dy):
                t.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(100_000_000)
            with torch.no_grad():
                for t, value in ((x, 1), (r, 2), (dy, 3)):
                    t.fill_(value)
            got = step(x, r, weight, dy, dy)
            assert default.query()  # nothing was queued there, while `side` still sleeps
            assert not side.query()
        side.synchronize()
        assert all(map(torch.equal, got, want))


@pytest.mark.skipif(not CUDA or torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_101_tensors_on_another_than_the_current_device():
    torch.cuda.set_device(0)
    second = inputs(torch.float32, device="cuda:1")
    first = [t.detach().to("cuda:0").requires_grad_() for t in second]
    results = []
    for x, r, weight in (first, second):
        ones = torch.ones_like(x)
        results.append(step(x, r, weight, ones, ones))
        assert torch.cuda.current_device() == 0
    for on_first, on_second in zip(*results):
        assert on_second.device == torch.device("cuda:1") and torch.equal(on_first, on_second.to("cuda:0"))
    with pytest.raises(RuntimeError, match="must be on one device"):
        brim.rms_norm(second[0], first[2])
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("dtype", oracle.NARROW)
def test_18_a_gpu_comes_near_the_cpu(dtype):
    x, r, weight = inputs(dtype, rows=33)
    dy, ds = torch.randn_like(x), torch.randn_like(x)
    got = step(x, r, weight, dy, ds)
    want = step(*(t.detach().cpu().requires_grad_() for t in (x, r, weight)), dy.cpu(), ds.cpu())
    for a, b in zip(got, want):
        assert_near(a.cpu(), b, 4)


@pytest.mark.parametrize("multiple", [-1, 0, 1])
def test_24_rows_around_the_number_of_multiprocessors(multiple):
    rows = torch.cuda.get_device_properties(0).multi_processor_count + multiple
    poison = torch.full((1 << 26,), float("nan"), device="cuda")
    del poison
    x, _, weight = inputs(rows=rows)
    dy = torch.randn_like(x)
    dx, dw = torch.autograd.grad(brim.rms_norm(x, weight), (x, weight), dy)
    want_dx, want_dw = oracle.rms_norm_gradients(x, weight, dy)
    assert_near(dx, want_dx, 2)
    assert_near(dw, want_dw, 4)


@pytest.mark.skipif(free_gibibytes() < 40, reason="needs 40 GiB of GPU memory")
def test_06_more_elements_than_32_bits_count():
    rows = 2**23 + 16
    x = torch.ones(rows, 256, device="cuda", dtype=torch.float32).requires_grad_()
    weight = torch.ones(256, device="cuda", requires_grad=True)
    dx, dw = torch.autograd.grad(brim.rms_norm(x, weight), (x, weight), torch.ones_like(x))
    torch.testing.assert_close(dw, torch.full_like(dw, rows / (1 + 1e-6) ** 0.5), rtol=1e-6, atol=0)
    assert (dx == dx[0]).all()


@pytest.mark.skipif(free_gibibytes() < 24, reason="needs 24 GiB of GPU memory")
def test_07_more_elements_than_32_bits_count_in_the_add():
    rows, hidden, first = 524289 + 8, 4096, 524280
    x, r = (torch.zeros(rows, hidden, device="cuda", dtype=torch.float16) for _ in range(2))
    weight = torch.randn(hidden, device="cuda", dtype=torch.float16)
    for t in (x, r):
        t[first:] = torch.randn(rows - first, hidden, device="cuda", dtype=torch.float16)
        t[:8] = 1
    y, total = brim.add_rms_norm(x, r, weight)
    want_y, want_total = brim.add_rms_norm(x[first:].clone(), r[first:].clone(), weight)
    assert torch.equal(y[first:], want_y) and torch.equal(total[first:], want_total)
    assert (total[:8] == 2).all() and torch.equal(y[:8], weight.expand(8, hidden))

"""brim.rope on the CPU beside PyTorch's eager rotate-half formula, in turns within one run: time, ratio, effective GB/s.

    python bench/rope_cpu.py [--tokens N] [--threads N]

The tensors are views of (b,s,h,d) storage, as attention code makes them. Each provider's result is compared first.
"""

import argparse
import statistics
import time

import torch

import brim


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def eager(q, k, cos, sin):
    cos, sin = cos.unsqueeze(0), sin.unsqueeze(0)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def microseconds(call):
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def measure(tokens, heads, kv_heads, head_dim, dtype, rounds):
    cos, sin = brim.rope_tables(tokens, head_dim, dtype=dtype)
    q, k = (torch.randn(1, tokens, h, head_dim).to(dtype).transpose(1, 2).requires_grad_() for h in (heads, kv_heads))
    gradients = [torch.randn_like(x) for x in (q, k)]

    def forward(rope):
        with torch.no_grad():
            return rope(q, k, cos, sin)

    def full(rope):
        return torch.autograd.grad(rope(q, k, cos, sin), (q, k), gradients)

    for mode, run in (("forward", forward), ("full", full)):
        for ours, theirs in zip(run(brim.rope), run(eager)):
            # PyTorch rounds three times, brim once.
            torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.05 if dtype != torch.float32 else 1e-5)
        samples = {brim.rope: [], eager: []}
        for _ in range(rounds):
            for rope, times in samples.items():
                times.append(microseconds(lambda rope=rope: run(rope)))
        ours, theirs = (statistics.median(times) for times in samples.values())
        moved = (2 if mode == "forward" else 4) * (q.numel() + k.numel()) * q.element_size()
        print(
            f"{tokens:>6} x ({heads}+{kv_heads}) x {head_dim:<4} {str(dtype).removeprefix('torch.'):<9} {mode:<8}"
            f"{ours:>11.1f}{theirs:>12.1f}{theirs / ours:>8.2f}x{moved / ours / 1e3:>8.1f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{options.threads} threads, torch {torch.__version__}, {brim.backend_info()}")
    print(f"{'shape':<24} {'dtype':<9} {'mode':<8}{'brim us':>11}{'eager us':>12}{'ratio':>9}{'GB/s':>8}")
    for shape in ((32, 8, 128), (32, 8, 64)):
        for dtype in (torch.bfloat16, torch.float32):
            measure(options.tokens, *shape, dtype, options.rounds)


if __name__ == "__main__":
    main()

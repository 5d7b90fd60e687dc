"""Rotary position embedding inside a PyTorch graph, on whatever device is here."""
import torch

import brim

device = "cuda" if torch.cuda.is_available() else "cpu"
tokens, head_dim = 16, 64
cos, sin = brim.rope_tables(tokens, head_dim, base=500000.0, device=device)

# Slices of one packed projection, as attention code makes them: views, no copies.
qkv = torch.randn(2, tokens, 8 + 2 + 2, head_dim, device=device, requires_grad=True)
q, k, v = qkv.split([8, 2, 2], dim=2)
q, k = brim.rope(q, k, cos, sin, layout="bshd")

scores = torch.einsum("bshd,bthd->bhst", q, k.repeat_interleave(4, dim=2))
scores.square().mean().backward()
print("q", tuple(q.shape), "gradient of the packed projection", tuple(qkv.grad.shape), "on", device)

try:
    brim.rope(q, k, cos[:8], sin[:8], layout="bshd")
except ValueError as error:
    print("refused:", error)

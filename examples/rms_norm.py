"""A pre-norm block with the residual stream added inside its norms, on whatever device is here."""
import torch

import brim

device = "cuda" if torch.cuda.is_available() else "cpu"
hidden = 256


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = brim.AddRMSNorm(hidden, eps=1e-5)
        self.mlp = torch.nn.Linear(hidden, hidden)

    def forward(self, x, residual):
        # residual + x and its norm in one pass; the sum goes on as the residual stream.
        y, residual = self.norm(x, residual)
        return self.mlp(y).relu(), residual


blocks = torch.nn.ModuleList(Block() for _ in range(2)).to(device)
last = brim.AddRMSNorm(hidden, eps=1e-5, device=device)
tokens = torch.randn(2, 16, hidden, device=device, requires_grad=True)

x, residual = torch.zeros_like(tokens), tokens
for block in blocks:
    x, residual = block(x, residual)
y, _ = last(x, residual)
y.square().mean().backward()
print("y", tuple(y.shape), "gradient of the tokens", tuple(tokens.grad.shape), "on", device)

try:
    brim.rms_norm(tokens, torch.ones(hidden - 1, device=device))
except ValueError as error:
    print("refused:", error)

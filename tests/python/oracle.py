"""RoPE and RMSNorm in float64, with plain torch: what brim's ops are held against. And what their tests share."""

import itertools

import torch
import torch.nn.functional as F

PAIRINGS = (False, True, "to_half")
LAYOUTS = ("bhsd", "bshd", "thd")
# (interleaved, inplace): to_half is out of place only.
MODES = [(p, i) for p in PAIRINGS for i in (False, True) if not (i and p == "to_half")]


def tables(rows, r, base=10000.0, dtype=torch.float64, first=0):
    """cos and sin of positions first .. first+rows-1, width r/2."""
    frequency = base ** (-torch.arange(0, r, 2, dtype=torch.float64) / r)
    angle = torch.arange(first, first + rows, dtype=torch.float64)[:, None] * frequency
    return angle.cos().to(dtype), angle.sin().to(dtype)


def to_bhsd(x, layout):
    x = x[None] if layout == "thd" else x
    return x if layout == "bhsd" else x.movedim(1, 2)


def from_bhsd(x, layout):
    x = x if layout == "bhsd" else x.movedim(1, 2)
    return x[0] if layout == "thd" else x


def per_token(table, r, positions, sections, sections_interleaved):
    """The table as (batch or 1, s, r/2): the column of every pair of every token."""
    table = table[..., : r // 2].double()
    if sections is not None:
        if sections_interleaved:
            axis = [j % 3 if j % 3 and j < 3 * sections[j % 3] else 0 for j in range(r // 2)]
        else:
            axis = list(itertools.chain.from_iterable([a] * n for a, n in enumerate(sections)))
        return torch.stack([table[a, ..., j] for j, a in enumerate(axis)], -1)
    if positions is not None:
        table = table[positions.long()]
    return table if table.dim() == 3 else table[None]


def rope(
    x,
    cos,
    sin,
    *,
    r,
    layout="bhsd",
    interleaved=False,
    position_ids=None,
    sections=None,
    sections_interleaved=False,
    inverse=False,
):
    """The rotated x in float64; differentiable."""
    x = to_bhsd(x, layout).double()
    c, s = (per_token(t, r, position_ids, sections, sections_interleaved)[:, None] for t in (cos, sin))
    if inverse:
        s = -s
    half_in = interleaved is False or (interleaved == "to_half" and inverse)
    half_out = interleaved is False or (interleaved == "to_half" and not inverse)
    head, rest = x[..., :r], x[..., r:]
    x1, x2 = (head[..., : r // 2], head[..., r // 2 :]) if half_in else (head[..., 0::2], head[..., 1::2])
    y1, y2 = x1 * c - x2 * s, x2 * c + x1 * s
    y = torch.cat((y1, y2), -1) if half_out else torch.stack((y1, y2), -1).flatten(-2)
    return from_bhsd(torch.cat((y, rest), -1), layout)


def ulps(got, want):
    """Distance of two tensors of one float type in units of the last place of that type, element by element."""
    integer = {
        torch.float64: torch.int64,
        torch.float32: torch.int32,
        torch.bfloat16: torch.int16,
        torch.float16: torch.int16,
    }
    a, b = (t.contiguous().view(integer[t.dtype]).long() for t in (got, want))
    lowest = -(1 << (8 * got.element_size() - 1)) if got.element_size() < 8 else torch.iinfo(torch.int64).min
    a, b = (torch.where(t < 0, lowest - t, t) for t in (a, b))
    return (a - b).abs()


CASTINGS = ("llama", "gemma", "none")
NARROW = (torch.float32, torch.bfloat16, torch.float16)


def rms_norm(x, weight=None, eps=1e-6, offset=0.0):
    """In float64, never rounded; differentiable."""
    return F.rms_norm(x.double(), x.shape[-1:], None if weight is None else weight.double() + offset, eps)


def rms_norm_gradients(x, weight, dy, eps=1e-6, offset=0.0):
    """(dx, dweight) in float64."""
    x, weight = x.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    return torch.autograd.grad(rms_norm(x, weight, eps, offset), (x, weight), dy.double())


def assert_near(got, want, ulps):
    """Within so many ulps of got's type at the magnitude of the largest element: for sums that may cancel."""
    bound = ulps * torch.finfo(got.dtype).eps * max(want.abs().max().item() if want.numel() else 0, 1e-30)
    torch.testing.assert_close(got.double(), want.double(), atol=bound, rtol=0)


def leaves(*shapes, device="cpu", dtype=torch.float32):
    return [torch.randn(shape, device=device).to(dtype).requires_grad_() for shape in shapes]

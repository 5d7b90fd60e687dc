"""RMSNorm's gradients in plain torch, for gradients of them: what backward(create_graph=True) records."""

import torch


def gradients(dy, rows, weight, eps, offset=0.0):
    """(d rows, unrounded; d weight or None)"""
    wide = torch.promote_types(rows.dtype, torch.float32)
    x, dy = rows.to(wide), dy.to(wide)
    rstd = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    xhat = x * rstd
    if weight is None:
        m, dw = dy, None
    else:
        m = dy * (weight.to(wide) + offset)
        dw = (dy * xhat)[None].sum(tuple(range(x.dim()))).to(weight.dtype)  # of a single row too
    return rstd * (m - xhat * (m * xhat).mean(-1, keepdim=True)), dw

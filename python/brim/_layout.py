"""The memory layout of new tensors: dense, their axes in the order of another tensor's. Mirrors torch/convert.cpp."""

import torch

ORDER_OF_INPUT = -1


def axis_order(x: torch.Tensor) -> int:
    """The order of x's axes in memory as one number: three bits an axis, outermost first from the lowest bits up.

    A number, not the strides, since it stays the same when sizes change (torch.compile with dynamic shapes) and is
    passed to an op for nothing.
    """
    strides = x.stride()
    if len(strides) == 4:  # the two orders that models use, without a sort
        a, b, c, d = strides
        if c >= d:
            if a >= b >= c:
                return 0o3210
            if a >= c >= b >= d:
                return 0o3120
    return sum(axis << 3 * place for place, axis in enumerate(_sorted_axes(x.shape, strides)))


def _sorted_axes(shape, strides) -> list[int]:
    def says_nothing(axis):
        return shape[axis] <= 1 or strides[axis] == 0

    axes = list(range(len(shape)))
    for i in range(1, len(axes)):
        at = i
        for other in reversed(range(i)):
            a, b = axes[other], axes[at]
            if says_nothing(a) or says_nothing(b):
                continue
            if strides[a] >= strides[b]:
                break
            axes[other], axes[at] = b, a
            at = other
    return axes


def empty_in_order(like: torch.Tensor, order: int = ORDER_OF_INPUT, dtype: torch.dtype | None = None) -> torch.Tensor:
    """What the op of the same name in C++ makes, for the ops' fakes: equal in shape, strides, type and device."""
    rank = like.dim()
    if order == ORDER_OF_INPUT:
        axes = _sorted_axes(like.shape, like.stride())
    else:
        axes = [order >> 3 * place & 7 for place in range(rank)]
    strides, step = [1] * rank, 1
    for axis in reversed(axes):
        strides[axis] = step
        size = like.shape[axis]
        step = step * size if size > 0 else step
    return like.new_empty_strided(like.shape, strides, dtype=dtype)

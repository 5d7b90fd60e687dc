"""The plain copies that a time is held against: every form that the device has, on the bytes that an op moves."""

import torch

_ops = torch.ops.brim


class Wall:
    """Copies of `size` bytes out of place and in place; with `passes` 2, one after the other, as forward and backward.

    forms(in_place) lists (name, call): the wall is the best of them in the run at hand.
    """

    def __init__(self, size, like):
        # Of random numbers, like the op's own inputs: memory moves constant data faster.
        elements = -(-size // like.element_size())
        self._from = torch.randn(elements, device=like.device).to(like.dtype).view(torch.uint8)
        self._to = torch.empty_like(self._from)

    def forms(self, in_place, passes=1):
        pattern = "in_place" if in_place else "copy"
        names = _ops._copy_forms(self._to, pattern, self._from.numel()).splitlines()
        return [(name, self._call(pattern, form, passes)) for form, name in enumerate(names)]

    def _call(self, pattern, form, passes):
        copy, to, source = _ops._copy.default, self._to, self._from

        def call():
            for _ in range(passes):
                copy(to, source, None, pattern, form)

        return call

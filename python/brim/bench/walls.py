"""The plain copies that a time is held against: every form that the device has, on the bytes that an op moves."""

import torch

_ops = torch.ops.brim


class Wall:
    """Buffers for plain copies, as large as the first that are asked for or larger; `like`: their device and type."""

    def __init__(self, like):
        self._like = like
        self._buffers = []

    def forms(self, passes):
        """(name, call) of each form. passes: (pattern, bytes of a buffer) of copies that run one after the other, as
        forward and backward do; all in the form of the name, or the first one where a pattern does not have it.

        The wall is the best of them in the run at hand.
        """
        self._grow(max(size for _, size in passes))
        names = [_ops._copy_forms(self._buffers[0], pattern, size).splitlines() for pattern, size in passes]
        every = dict.fromkeys(name for of_pattern in names for name in of_pattern)
        return [(name, self._call(passes, [n.index(name) if name in n else 0 for n in names])) for name in every]

    def _grow(self, size):
        if self._buffers and self._buffers[0].numel() >= size:
            return
        # Of random numbers, like the op's own inputs: memory moves constant data faster.
        elements = -(-size // self._like.element_size())
        make = lambda: torch.randn(elements, device=self._like.device).to(self._like.dtype).view(torch.uint8)
        self._buffers = [make() for _ in range(3)]

    def _call(self, passes, forms):
        copy, calls = _ops._copy.default, []
        for (pattern, size), form in zip(passes, forms, strict=True):
            to, source, other = (buffer[:size] for buffer in self._buffers)
            calls.append((to, source, other if pattern == "two_reads_one_write" else None, pattern, form))

        def call():
            for arguments in calls:
                copy(*arguments)

        return call

"""The plain copies behind brim.bench: every form of every pattern, at sizes that no vector or tile divides."""

import pytest
import torch

ops = torch.ops.brim

SIZES = [0, 1, 15, 16, 17, 63, 64, 65, 4097, 16 * 1024, (3 << 20) + 7]
READ_SUM = 0x9E3779B9  # src/cuda/copy.h


def buffer(size, device):
    return torch.randint(0, 256, (size,), dtype=torch.uint8).to(device)


def forms(pattern, size, device):
    names = ops._copy_forms(torch.empty(0, device=device), pattern, size).splitlines()
    assert names and len(set(names)) == len(names)
    return names


@pytest.mark.parametrize("size", SIZES)
def test_every_form_of_every_pattern(size, device):
    for pattern in ("copy", "in_place", "two_reads_one_write"):
        for form, name in enumerate(forms(pattern, size, device)):
            source, other = buffer(size, device), buffer(size, device)
            whole = buffer(size + 64, device)  # what is behind the copy's end must stay
            before, to = whole.clone(), whole[:size]
            ops._copy(to, source, other if pattern.startswith("two") else None, pattern, form)
            want = {"copy": source, "in_place": ~before[:size], "two_reads_one_write": source ^ other}[pattern]
            assert torch.equal(to, want), f"{pattern} {name}, {size} bytes"
            assert torch.equal(whole[size:], before[size:]), f"{pattern} {name} wrote behind {size} bytes"


@pytest.mark.parametrize("size", SIZES)
def test_reading_leaves_what_it_reads(size, device):
    for form in range(len(forms("read", size, device))):
        source = buffer(size, device)
        before = source.clone()
        ops._copy(buffer(64, device), source, None, "read", form)
        assert torch.equal(source, before)


@pytest.mark.parametrize("at", [0, 1000, 4095])
def test_reading_reads_everything_on_a_gpu(at, device):
    """A thread stores its sum when that is a certain one: so one word of that value, among zeros, is found."""
    if device == "cpu":
        pytest.skip("a GPU's kernels only")
    source = torch.zeros(4096, dtype=torch.int32, device=device)
    source[at] = READ_SUM - (1 << 32)
    for form, name in enumerate(forms("read", source.numel() * 4, device)):
        sink = torch.zeros(4, dtype=torch.int32, device=device)
        ops._copy(sink, source, None, "read", form)
        assert sink[0].item() == READ_SUM - (1 << 32), name


def test_the_flush_reads_its_buffer(device):
    size = ops._flush_bytes(torch.empty(0, device=device))
    assert size >= 1 << 20
    source = torch.ones(1 << 20, dtype=torch.uint8, device=device)
    ops._flush(torch.ones(64, dtype=torch.uint8, device=device), source)
    assert source.min() == source.max() == 1


def test_wrong_calls_are_refused(device):
    source, to = buffer(100, device), buffer(100, device)
    for arguments, message in [
        ((to, source, None, "write", 0), "no pattern 'write'"),
        ((to, source, None, "copy", 99), "no form 99"),
        ((to, source, None, "copy", -1), "no form -1"),
        ((to[:64], source, None, "copy", 1), "smaller"),
        ((to, source, None, "two_reads_one_write", 0), "`other`"),
        ((to, source, source, "copy", 1), "`other`"),
        ((to, source, source[:64], "two_reads_one_write", 1), "smaller"),
        ((to[1:], source[1:], None, "copy", 1), "aligned"),
        ((to[::2], source[::2], None, "copy", 1), "contiguous"),
    ]:
        with pytest.raises((ValueError, RuntimeError), match=message):
            ops._copy(*arguments)

"""brim.rope_tables against transformers' own ROPE_INIT_FUNCTIONS, and the cases from the field."""

import importlib
import math

import brim
import pytest
import torch

R, LENGTH, ORIGINAL = 64, 4096, 1024

RULES = {
    "default": {},
    "linear": dict(factor=4.0),
    "dynamic": dict(factor=2.0),
    "yarn": dict(factor=4.0, original_max_position_embeddings=ORIGINAL),
    "yarn, its own betas": dict(
        factor=40.0, original_max_position_embeddings=ORIGINAL, beta_fast=16, beta_slow=2, attention_factor=0.9
    ),
    "yarn, deepseek": dict(
        factor=40.0, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=0.5, rope_theta=50000.0
    ),
    "yarn, not truncated": dict(factor=8.0, original_max_position_embeddings=ORIGINAL, truncate=False),
    "yarn, ratio of lengths": dict(factor=None, original_max_position_embeddings=ORIGINAL),
    "longrope": dict(
        short_factor=[1 + 0.01 * i for i in range(R // 2)],
        long_factor=[1 + 0.5 * i for i in range(R // 2)],
        original_max_position_embeddings=ORIGINAL,
    ),
    "longrope, its own factor": dict(
        short_factor=[1.0] * (R // 2),
        long_factor=[3.0] * (R // 2),
        original_max_position_embeddings=ORIGINAL,
        factor=32.0,
    ),
    "longrope, attention factor": dict(
        short_factor=[1.0] * (R // 2),
        long_factor=[3.0] * (R // 2),
        original_max_position_embeddings=ORIGINAL,
        attention_factor=1.25,
    ),
    "llama3": dict(
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=ORIGINAL,
        rope_theta=500000.0,
    ),
}


def scaling_of(name):
    return {"rope_type": name.split(",")[0], "rope_theta": 10000.0} | RULES[name]


def theirs(scaling, seq_len):
    """(inverse frequencies, attention factor) by transformers."""
    utils = importlib.import_module("transformers.modeling_rope_utils")
    config = importlib.import_module("transformers").LlamaConfig(
        hidden_size=4 * R,
        num_attention_heads=4,
        head_dim=R,
        max_position_embeddings=LENGTH,
        rope_parameters=dict(scaling),
    )
    if scaling["rope_type"] == "default":
        llama = importlib.import_module("transformers.models.llama.modeling_llama")
        return llama.LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    return utils.ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, torch.device("cpu"), seq_len=seq_len)


@pytest.mark.parametrize("seq_len", [100, ORIGINAL, ORIGINAL + 1, 3 * LENGTH])
@pytest.mark.parametrize("name", RULES)
def test_against_transformers(name, seq_len):
    pytest.importorskip("transformers")
    scaling = scaling_of(name)
    inverse_frequency, factor = theirs(scaling, seq_len)
    ours = scaling | {"max_position_embeddings": LENGTH}
    cos, sin = brim.rope_tables(LENGTH, R, scaling=ours, seq_len=seq_len, dtype=torch.float64)
    assert cos.shape == sin.shape == (LENGTH, R)
    assert torch.equal(cos[:, : R // 2], cos[:, R // 2 :]) and torch.equal(sin[:, : R // 2], sin[:, R // 2 :])
    got_factor = torch.hypot(cos, sin)
    torch.testing.assert_close(got_factor, torch.full_like(got_factor, factor), atol=0, rtol=1e-6)
    # The angle of position 1 is the inverse frequency itself.
    first = torch.atan2(sin[1], cos[1])[: R // 2]
    torch.testing.assert_close(first, inverse_frequency.double(), atol=0, rtol=1e-6)
    # Their angles: float32 products. Distance on the circle, for positions of every size.
    positions = torch.arange(LENGTH)
    angle = (positions[:, None].float() * inverse_frequency).double()
    distance = torch.atan2(sin[:, : R // 2], cos[:, : R // 2]) - angle
    distance = (distance - 2 * math.pi * (distance / (2 * math.pi)).round()).abs()
    assert (distance <= positions[:, None] * 2**-22 + 1e-15).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_rounding(dtype):
    exact = brim.rope_tables(3000, R, dtype=torch.float64)
    rounded = brim.rope_tables(3000, R, dtype=dtype)
    for got, want in zip(rounded, exact):
        assert got.dtype == dtype
        if dtype == torch.float32:
            assert torch.equal(got, want.float())
        half_ulp = want.abs().clamp(min=torch.finfo(dtype).tiny) * torch.finfo(dtype).eps / 2
        assert ((got.double() - want).abs() <= half_ulp).all()


@pytest.mark.parametrize("interleaved, width", [(False, R), (0, R), (True, R // 2), ("to_half", R // 2)])
def test_width_follows_the_pairing(interleaved, width):
    cos, sin = brim.rope_tables(5, R, interleaved=interleaved)
    assert cos.shape == sin.shape == (5, width) and cos.is_contiguous()
    q = torch.randn(1, 2, 5, R)
    brim.rope(q, None, cos, sin, interleaved=interleaved)  # fits without a rotary_dim


def test_74_angles_are_formed_in_float64():
    cos, _ = brim.rope_tables(1858, 32, interleaved=True)
    assert cos[1857, 1].item() == pytest.approx(0.306693, abs=1e-6)
    cos, sin = brim.rope_tables(1002, 2, interleaved=True)
    assert (cos[1001, 0].item(), sin[1001, 0].item()) == pytest.approx((-0.391940, 0.919991), abs=1e-6)
    cos, _ = brim.rope_tables(1_000_004, 128, interleaved=True)
    assert cos[1_000_003, 1].item() == pytest.approx(0.86415, abs=1e-5)  # float32 angles give 0.87221


def test_78_longrope_switches_one_past_the_original_length():
    factors = dict(short_factor=[1.0] * 4, long_factor=[2.0] * 4)
    scaling = dict(rope_type="longrope", original_max_position_embeddings=4096, max_position_embeddings=8192, **factors)

    def angle(**lengths):
        cos, sin = brim.rope_tables(scaling=scaling, rotary_dim=8, **lengths)
        return torch.atan2(sin[1, 0], cos[1, 0]).item()

    assert angle(max_position=4096) == pytest.approx(1.0)
    assert angle(max_position=4097) == pytest.approx(0.5)
    # seq_len decides, not the number of rows.
    assert angle(max_position=8192, seq_len=4096) == pytest.approx(1.0)
    assert angle(max_position=2, seq_len=4097) == pytest.approx(0.5)


def test_names_of_published_configs():
    plain = brim.rope_tables(9, 8)
    mrope = brim.rope_tables(9, 8, scaling={"type": "mrope", "mrope_section": [2, 1, 1]})
    assert torch.equal(plain[0], mrope[0]) and torch.equal(plain[1], mrope[1])
    numbers = dict(short_factor=[1.0, 2.0, 3.0, 4.0], long_factor=[5.0] * 4, original_max_position_embeddings=4)
    numbers |= {"max_position_embeddings": 16}
    for a, b in zip(*(brim.rope_tables(9, 8, scaling=numbers | {"type": name}) for name in ("su", "longrope"))):
        assert torch.equal(a, b)


def test_the_parameters_of_a_config_are_taken_as_they_stand():
    a = brim.rope_tables(
        9, 8, scaling={"type": "linear", "factor": 2.0, "rope_theta": 500.0, "mrope_section": [2, 1, 1]}
    )
    b = brim.rope_tables(9, 8, base=500.0, scaling={"rope_type": "linear", "factor": 2.0, "beta_fast": None})
    assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


@pytest.mark.parametrize(
    "options, error, text",
    [
        (dict(rotary_dim=7), ValueError, "rotary_dim is 7, expected an even positive number"),
        (dict(rotary_dim=0), ValueError, "rotary_dim is 0"),
        (dict(max_position=-1), ValueError, "negative"),
        (dict(max_position=10.0), TypeError, "max_position is 10.0, expected an integer"),
        (dict(rotary_dim="8"), TypeError, "rotary_dim is '8', expected an integer"),
        (dict(seq_len=4.5), TypeError, "seq_len is 4.5, expected an integer"),
        (dict(base=-1.0), ValueError, "base is -1"),
        (dict(base=0.0), ValueError, "base is 0, expected a positive number"),
        (dict(scaling=["linear"]), TypeError, "scaling is a list, expected a dict or None"),
        (dict(seq_len=0), ValueError, "seq_len is 0"),
        (dict(dtype=torch.int32), TypeError, "dtype is torch.int32"),
        (dict(interleaved="halves"), ValueError, "interleaved is 'halves'"),
        (dict(scaling={"rope_type": "ntk"}), ValueError, "rope_type is 'ntk', expected one of default, linear"),
        (dict(scaling={"rope_type": "linear"}), ValueError, "rule linear needs factor"),
        (dict(scaling={"rope_type": "linear", "factor": 0.0}), ValueError, "rule linear needs factor"),
        (dict(scaling={"factr": 2.0}), ValueError, "scaling has 'factr'"),
        (
            dict(base=500.0, scaling={"rope_theta": 600.0}),
            ValueError,
            "base is 500.0, but scaling has rope_theta 600.0",
        ),
        (dict(scaling={"rope_type": "dynamic", "factor": 2.0}), ValueError, "needs max_position_embeddings"),
        (dict(scaling={"rope_type": "yarn", "factor": 2.0}), ValueError, "needs original_max_position_embeddings"),
        (
            dict(scaling={"rope_type": "longrope", "original_max_position_embeddings": 99, "long_factor": [1.0] * 4}),
            ValueError,
            "rule longrope needs short_factor, 4 numbers",
        ),
        (
            dict(scaling={"rope_type": "longrope", "original_max_position_embeddings": 99, "short_factor": [1.0] * 3}),
            ValueError,
            "short_factor has 3 numbers, expected rotary_dim/2 = 4",
        ),
        (
            dict(
                scaling={
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 1.0,
                    "original_max_position_embeddings": 99,
                }
            ),
            ValueError,
            "high_freq_factor is 1, expected more than low_freq_factor, 4",
        ),
    ],
)
def test_refusals(options, error, text):
    with pytest.raises(error, match=text.replace("(", r"\(")):
        brim.rope_tables(**dict(max_position=10, rotary_dim=8) | options)


def test_tables_come_out_on_the_device(device):
    cos, sin = brim.rope_tables(7, 8, device=device)
    assert cos.device.type == sin.device.type == device
    with torch.device(device):
        assert brim.rope_tables(7, 8)[0].device.type == device


def test_under_compile():
    def tables(x):
        cos, sin = brim.rope_tables(x.shape[2], 8)
        return brim.rope(x, None, cos, sin)[0]

    x = torch.randn(1, 2, 5, 8)
    assert torch.equal(torch.compile(tables, fullgraph=True, backend="aot_eager")(x), tables(x))

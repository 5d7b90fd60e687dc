"""brim.rope_tables: the cos and sin tables of RoPE under the scaling rules of Hugging Face `rope_parameters`."""

import torch

from ._checks import is_integer

_RULES = {"default": 0, "linear": 1, "dynamic": 2, "yarn": 3, "longrope": 4, "llama3": 5}
# Names that published configs have for them; "mrope" says where positions come from and changes no table.
_ALIASES = {"mrope": "default", "su": "longrope"}
# The numbers of a rule, with what stands for "not given". Names as in transformers.
_NUMBERS = {
    "factor": 0.0,
    "max_position_embeddings": 0,
    "original_max_position_embeddings": 0,
    "attention_factor": 0.0,
    "beta_fast": 0.0,
    "beta_slow": 0.0,
    "mscale": 0.0,
    "mscale_all_dim": 0.0,
    "truncate": True,
    "low_freq_factor": 0.0,
    "high_freq_factor": 0.0,
    "short_factor": None,
    "long_factor": None,
}
# What else stands in `rope_parameters`: said by other arguments here (rotary_dim, brim.rope's sections).
_ELSEWHERE = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"}


def rope_tables(
    max_position,
    rotary_dim,
    *,
    base=10000.0,
    scaling=None,
    seq_len=None,
    interleaved=False,
    device=None,
    dtype=torch.float32,
):
    """Tables (cos, sin) of positions 0 .. max_position-1, for brim.rope. Angles are float64, rounded once into `dtype`.

    Their width is rotary_dim, the halves repeated, or rotary_dim/2 with `interleaved` True or "to_half".

    scaling: a dict of the names and meaning of a Hugging Face config's `rope_parameters` (or `rope_scaling`): rope_type
    "default", "linear", "dynamic", "yarn", "longrope" or "llama3" and the rule's numbers; `max_position_embeddings`
    is the model's own, where a rule needs it. Its rope_theta, if there, is the base. A rule's attention factor is in
    the tables. As in transformers, numbers that the rule has no use for are passed over.
    seq_len: the length that "dynamic" and "longrope" choose by; None: max_position. longrope takes its long factors
    from one more than the original length on.
    """
    if interleaved not in (False, True, "to_half"):
        raise ValueError(f"rope_tables: interleaved is {interleaved!r}, expected False, True or 'to_half'")
    if dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise TypeError(f"rope_tables: dtype is {dtype}, expected float32, bfloat16, float16 or float64")
    for name, value in (("max_position", max_position), ("rotary_dim", rotary_dim), ("seq_len", seq_len or 0)):
        if not is_integer(value):
            raise TypeError(f"rope_tables: {name} is {value!r}, expected an integer")
    if seq_len is not None and seq_len <= 0:
        raise ValueError(f"rope_tables: seq_len is {seq_len}, expected a positive number or None")
    scaling = {} if scaling is None else scaling
    if not isinstance(scaling, dict):
        raise TypeError(f"rope_tables: scaling is a {type(scaling).__name__}, expected a dict or None")
    unknown = scaling.keys() - _NUMBERS.keys() - _ELSEWHERE
    if unknown:
        raise ValueError(f"rope_tables: scaling has {min(unknown)!r}, which is no parameter that brim knows")
    rule = scaling.get("rope_type", scaling.get("type", "default"))
    rule = _ALIASES.get(rule, rule)
    if rule not in _RULES:
        raise ValueError(f"rope_tables: rope_type is {rule!r}, expected one of {', '.join(_RULES)}")
    theta = scaling.get("rope_theta")
    if theta is not None:
        if base not in (10000.0, theta):
            raise ValueError(f"rope_tables: base is {base}, but scaling has rope_theta {theta}")
        base = theta
    if base == 0:  # the core's word for "not given"
        raise ValueError("rope_tables: base is 0, expected a positive number")
    numbers = {name: scaling.get(name) for name in _NUMBERS}
    numbers = {name: absent if numbers[name] is None else numbers[name] for name, absent in _NUMBERS.items()}
    cos, sin = torch.ops.brim.rope_tables(
        max_position,
        rotary_dim,
        halves_repeated=not interleaved,
        base=base,
        seq_len=seq_len or 0,
        rule=_RULES[rule],
        dtype=dtype,
        **numbers,
    )
    if device is None:
        device = torch.empty(0).device  # the default device, in words that torch.compile can follow
    return cos.to(device), sin.to(device)


@torch.library.register_fake("brim::rope_tables")
def _(max_position, rotary_dim, *, halves_repeated, dtype, **numbers):
    shape = (max_position, rotary_dim if halves_repeated else rotary_dim // 2)
    return torch.empty(shape, dtype=dtype, device="cpu"), torch.empty(shape, dtype=dtype, device="cpu")

"""brim.rope against the rotations in the model code of Hugging Face transformers, forward and backward.

In 16 bits their code (but Cohere's) rounds three times, brim once: so there it is compared with their code run in
float32 on the same values and rounded at the end. Their float32 code has no fused multiply-add, so that results may
round to the neighbour: within 1 ulp, and at most one element in ten thousand differs.
"""

import importlib

import brim
import oracle
import pytest
import torch

transformers = pytest.importorskip("transformers")

B, S, H, HK, D = 2, 33, 6, 2, 64
FIRST = 700  # positions away from 0, where wrong frequencies show


def model(name):
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def config(kind, name=None, **more):
    make = getattr(importlib.import_module(f"transformers.models.{name or kind.lower()}"), f"{kind}Config")
    settings = dict(
        hidden_size=H * D, num_attention_heads=H, num_key_value_heads=HK, head_dim=D, max_position_embeddings=2048
    )
    return make(**settings | more)


def theirs_and_ours(name, dtype, device):
    """(their rotation of q and k, brim's, both as functions), at positions of two sequences."""
    position_ids = torch.stack([torch.arange(FIRST, FIRST + S), torch.randint(2000, (S,))]).to(device)
    x = torch.empty(0, dtype=dtype, device=device)
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    if name == "llama":
        cos, sin = model(name).LlamaRotaryEmbedding(config("Llama", rope_parameters=rope)).to(device)(x, position_ids)
        return model(name).apply_rotary_pos_emb, (cos, sin), (cos, sin), {}
    if name == "gpt_neox":
        c = config("GPTNeoX", name, rope_parameters=rope | {"partial_rotary_factor": 0.25})
        cos, sin = model(name).GPTNeoXRotaryEmbedding(c).to(device)(x, position_ids)
        return model(name).apply_rotary_pos_emb, (cos, sin), (cos, sin), dict(rotary_dim=D // 4)
    if name == "glm":
        c = config("Glm", rope_parameters=rope | {"partial_rotary_factor": 0.5})
        cos, sin = model(name).GlmRotaryEmbedding(c).to(device)(x, position_ids)
        ours = tuple(t[..., : D // 4] for t in (cos, sin))  # the halves are repeated
        return model(name).apply_rotary_pos_emb, (cos, sin), ours, dict(rotary_dim=D // 2, interleaved=True)
    if name == "cohere":
        cos, sin = model(name).CohereRotaryEmbedding(config("Cohere", rope_parameters=rope)).to(device)(x, position_ids)
        ours = tuple(t[..., ::2] for t in (cos, sin))  # every column stands twice
        return model(name).apply_rotary_pos_emb, (cos, sin), ours, dict(interleaved=True)
    if name == "deepseek_v3":
        c = config("DeepseekV3", name, qk_rope_head_dim=D, qk_nope_head_dim=D, rope_parameters=rope)
        cos, sin = model(name).DeepseekV3RotaryEmbedding(c).to(device)(x, position_ids)
        ours = tuple(t[..., : D // 2] for t in (cos, sin))
        return model(name).apply_rotary_pos_emb_interleave, (cos, sin), ours, dict(interleaved="to_half")
    axes = torch.randint(FIRST, FIRST + 500, (3, B, S), device=device)
    frequency = 1.0 / (10000.0 ** (torch.arange(0, D, 2, dtype=torch.float) / D)).to(device)
    angle = axes[..., None].float() * frequency
    ours = angle.cos().to(dtype), angle.sin().to(dtype)
    sections = [8, 12, 12] if name == "qwen2_vl" else [12, 10, 10]
    rope |= {"mrope_section": sections}
    kind = {"qwen2_vl": "Qwen2VLText", "qwen3_vl": "Qwen3VLText"}[name]
    module = model(name)
    embedding = getattr(module, "Qwen2VLRotaryEmbedding" if name == "qwen2_vl" else "Qwen3VLTextRotaryEmbedding")
    cos, sin = embedding(config(kind, name, rope_parameters=rope)).to(device)(x, axes)
    rotate = module.apply_rotary_pos_emb if hasattr(module, "apply_rotary_pos_emb") else None
    if cos.dim() == 4:  # versions of transformers that merge the sections while they rotate
        merge = module.apply_multimodal_rotary_pos_emb
        rotate = lambda q, k, cos, sin: merge(q, k, cos, sin, sections)
    return rotate, (cos, sin), ours, dict(rotary_dim=D, sections=sections, sections_interleaved=name == "qwen3_vl")


MODELS = ("llama", "gpt_neox", "glm", "cohere", "deepseek_v3", "qwen2_vl", "qwen3_vl")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_forward_and_backward(name, dtype, device):
    rotate, their_tables, our_tables, options = theirs_and_ours(name, dtype, device)
    # As models hold them: (b,s,h,d) storage seen as (b,h,s,d).
    leaves = [torch.randn(B, S, n, D, device=device).to(dtype).transpose(1, 2).requires_grad_() for n in (H, HK)]
    gradients = [torch.randn_like(x) for x in leaves]

    ours = brim.rope(*leaves, *our_tables, **options)
    our_gradients = torch.autograd.grad(ours, leaves, gradients)
    wide = [x.detach().float().requires_grad_() for x in leaves]
    theirs = rotate(*wide, *(t.float() for t in their_tables))
    their_gradients = torch.autograd.grad(theirs, wide, [g.float() for g in gradients])

    for got, want in zip((*ours, *our_gradients), (*theirs, *their_gradients)):
        assert got.dtype == dtype
        if dtype == torch.float32:  # 3 roundings of two terms each; brim's is nearer to the truth
            torch.testing.assert_close(got, want, atol=4e-7 * wide[0].abs().max().item(), rtol=0)
            continue
        distance = oracle.ulps(got.detach(), want.detach().to(dtype))
        # Where the two terms cancel, an ulp of the result is less than float32's own error in the terms.
        cancelled = want.detach().abs() < 2e-4
        assert distance[~cancelled].max() <= 1
        assert (distance != 0).double().mean() <= 1e-4


def test_cohere_in_bfloat16_as_it_stands(device):
    """Cohere's code computes in float32 and rounds once, as brim does: no upcast needed here."""
    rotate, their_tables, our_tables, options = theirs_and_ours("cohere", torch.bfloat16, device)
    q, k = (torch.randn(B, n, S, D, device=device).bfloat16() for n in (H, HK))
    for got, want in zip(brim.rope(q, k, *our_tables, **options), rotate(q, k, *their_tables)):
        distance = oracle.ulps(got, want)
        assert distance[want.abs() >= 2e-4].max() <= 1 and (distance != 0).double().mean() <= 1e-4


def test_a_llama_trains_the_same_with_brim_in_it(device, monkeypatch):
    """The rotation put into a whole model, under gradients, in place of transformers' own."""
    settings = config(
        "Llama",
        num_hidden_layers=2,
        intermediate_size=64,
        vocab_size=97,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    llama = transformers.LlamaForCausalLM(settings).to(device)
    tokens = torch.randint(97, (2, 12), device=device)

    def loss_and_gradient():
        llama.zero_grad()
        loss = llama(input_ids=tokens, labels=tokens).loss
        loss.backward()
        return loss.item(), llama.model.layers[0].self_attn.q_proj.weight.grad.clone()

    want, gradient = loss_and_gradient()
    calls = []

    def apply(q, k, cos, sin, *args, **kwargs):
        calls.append(1)
        return brim.rope(q, k, cos, sin)

    monkeypatch.setattr(model("llama"), "apply_rotary_pos_emb", apply)
    got, our_gradient = loss_and_gradient()
    if not calls:
        pytest.skip("this transformers binds its rotation elsewhere")
    assert got == pytest.approx(want, rel=1e-6)
    torch.testing.assert_close(our_gradient, gradient, atol=1e-6, rtol=1e-4)

"""brim's norms against the model code of Hugging Face transformers: forward and backward."""

import importlib

import brim
import oracle
import pytest
import torch
from oracle import assert_near

pytest.importorskip("transformers")

H = 512
# name: (their class, brim's options)
MODELS = {
    "llama": ("LlamaRMSNorm", {}),
    "mistral": ("MistralRMSNorm", {}),
    "gemma": ("GemmaRMSNorm", {"offset": 1.0, "casting": "gemma"}),
    "gemma2": ("Gemma2RMSNorm", {"offset": 1.0, "casting": "gemma"}),
    "qwen3": ("Qwen3RMSNorm", {}),
}


def theirs_and_ours(name, width, device, dtype, kind=brim.RMSNorm):
    cls, options = MODELS[name]
    theirs = getattr(importlib.import_module(f"transformers.models.{name}.modeling_{name}"), cls)(width, eps=1e-6)
    ours = kind(width, 1e-6, **options, device=device, dtype=dtype)
    assert torch.equal(theirs.to(device, dtype).weight, ours.weight)  # they start alike
    torch.nn.init.normal_(theirs.weight, 0.0 if "gemma" in name else 1.0, 0.3)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


# The largest distance in ulps, and the shares of elements that may differ at all and by more than one. A sum taken in
# another order may round x * rstd to the neighbour, which the weight can make 2 ulps of; float16 keeps more digits, so
# there it is seen more often.
LIMITS = {torch.float32: (8, 1, 1), torch.bfloat16: (2, 1e-4, 1e-5), torch.float16: (2, 1e-3, 1e-3)}


def assert_hardly_differs(got, want):
    distance = oracle.ulps(got.detach(), want.detach())
    ulps, share, far_share = LIMITS[got.dtype]
    assert distance.max() <= ulps
    assert (distance != 0).double().mean() <= share and (distance > 1).double().mean() <= far_share


@pytest.mark.parametrize("dtype", oracle.NARROW)
@pytest.mark.parametrize("name", MODELS)
def test_36_forward(device, name, dtype):
    theirs, ours = theirs_and_ours(name, H, device, dtype)
    x = torch.randn(4, 500, H, device=device).to(dtype)
    assert_hardly_differs(ours(x), theirs(x))


@pytest.mark.parametrize("dtype", oracle.NARROW)
@pytest.mark.parametrize("name", MODELS)
def test_36_add_forward(device, name, dtype):
    theirs, ours = theirs_and_ours(name, H, device, dtype, brim.AddRMSNorm)
    x, r = (torch.randn(4, 500, H, device=device).to(dtype) for _ in range(2))
    y, total = ours(x, r)
    assert torch.equal(total, r + x)
    assert_hardly_differs(y, theirs(r + x))


@pytest.mark.parametrize("dtype", oracle.NARROW)
def test_36_norm_of_each_head(device, dtype):
    """Qwen3 norms q and k over the head dimension, as views of their projections."""
    theirs, ours = theirs_and_ours("qwen3", 128, device, dtype)
    q = torch.randn(2, 128, 16 * 128, device=device).to(dtype).view(2, 128, 16, 128)
    packed = torch.randn(2, 128, 48 * 128, device=device).to(dtype)[..., 16 * 128 : 24 * 128].unflatten(-1, (8, 128))
    for heads in (q, packed, q.transpose(1, 2)):
        assert_hardly_differs(ours(heads), theirs(heads))


@pytest.mark.parametrize("dtype", oracle.NARROW)
@pytest.mark.parametrize("name", MODELS)
def test_gradients(device, name, dtype):
    theirs, ours = theirs_and_ours(name, H, device, dtype)
    x = torch.randn(64, H, device=device).to(dtype).requires_grad_()
    dy = torch.randn_like(x)
    gradients = [torch.autograd.grad(m(x), (x, m.weight), dy) for m in (ours, theirs)]
    offset = MODELS[name][1].get("offset", 0.0)
    want = oracle.rms_norm_gradients(x, ours.weight, dy, offset=offset)
    for got, other, exact in zip(*gradients, want):
        assert_near(got, exact, 2)
        # Theirs round on the way, brim once: it is at least about as near.
        error = lambda g: (g.double() - exact).square().mean()
        assert error(got) <= 1.1 * error(other)


def test_a_llama_trains_the_same_with_brim_in_it(device, monkeypatch):
    """The norm put into a whole model, under gradients, in place of transformers' own."""
    transformers = importlib.import_module("transformers")
    settings = transformers.LlamaConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        vocab_size=97,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    llama = transformers.LlamaForCausalLM(settings).to(device)
    tokens = torch.randint(97, (2, 12), device=device)

    def loss_and_gradients():
        llama.zero_grad()
        loss = llama(input_ids=tokens, labels=tokens).loss
        loss.backward()
        return loss.item(), [p.grad.clone() for p in llama.parameters()]

    want, gradients = loss_and_gradients()
    calls = []

    def forward(self, x):
        calls.append(1)
        return brim.rms_norm(x, self.weight, self.variance_epsilon)

    module = importlib.import_module("transformers.models.llama.modeling_llama")
    monkeypatch.setattr(module.LlamaRMSNorm, "forward", forward)
    got, our_gradients = loss_and_gradients()
    assert len(calls) == 5
    assert got == pytest.approx(want, rel=1e-6)
    for a, b in zip(our_gradients, gradients):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)

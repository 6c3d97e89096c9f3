"""model: equal to torch.nn.Transformer, cached = uncached, nothing leaks from the future or from padding."""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xyd import model as model_module
from xyd.batching import pad_sources
from xyd.config import BOS_ID, EOS_ID, PAD_ID, ModelConfig, load
from xyd.loss import token_loss
from xyd.model import (
    CrossAttention,
    Dropout,
    FeedForward,
    KVCache,
    SelfAttention,
    Transformer,
    count_parameters,
    make_norm,
    seed_dropout,
    sinusoids,
)

CONFIGS = Path(__file__).parents[1] / "configs"
V = 40
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "post-norm": {"norm_position": "post"},
    "gelu": {"activation": "gelu"},
    "silu": {"activation": "silu"},
    "swiglu": {"activation": "swiglu"},
    "rms": {"norm": "rms"},
    "sinusoidal": {"positions": "sinusoidal"},
    "untied": {"tie_embeddings": False},
    "all other": {
        "norm_position": "post", "activation": "swiglu", "norm": "rms", "positions": "sinusoidal",
        "tie_embeddings": False, "num_encoder_layers": 1, "num_decoder_layers": 3,
    },
}  # fmt: skip
both_paths = pytest.mark.parametrize("is_fused", [True, False], ids=["fused kernel", "plain products"])


def small(**changes: Any) -> ModelConfig:
    sizes: dict[str, Any] = {
        "d_model": 16, "num_encoder_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "d_ff": 24,
        "max_length": 24, "dropout": 0.0,
    }  # fmt: skip
    return ModelConfig(**{**sizes, **changes})


def make_model(**changes: Any) -> Transformer:
    """A small model with every weight off its initial value, so that no zero bias hides a wrong one."""
    model = Transformer(small(**changes), V).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


def make_source(*lengths: int) -> tuple[Tensor, Tensor]:
    """Random sources of these numbers of bare ids: `src` and `src_mask`."""
    return pad_sources([torch.randint(4, V, (length,)).numpy() for length in lengths])


def make_target(B: int, T: int) -> Tensor:
    ids = torch.randint(4, V, (B, T))
    ids[:, 0] = BOS_ID
    return ids


# ── size and start ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_base_config_has_the_parameters_of_the_design_card() -> None:
    config = load(CONFIGS / "base-48k.yaml")
    with torch.device("meta"):
        model = Transformer(config.model, 48_000)
    parts = count_parameters(model)
    assert sum(parts.values()) == sum(p.numel() for p in model.parameters()) == 51_708_288
    final_norms = [*model.encoder_norm.parameters(), *model.decoder_norm.parameters()]
    assert 51_708_288 - sum(p.numel() for p in final_norms) == 51_706_752
    # The sizes that the card names, by part: 48,000 rows of 384, 256 positions, one output bias.
    assert (parts["embeddings"], parts["positions"], parts["output"]) == (48_000 * 384, 256 * 384, 48_000)


def test_untied_embeddings_are_counted_three_times() -> None:
    parts = count_parameters(make_model(tie_embeddings=False))
    assert (parts["embeddings"], parts["output"]) == (2 * V * 16, V * 16 + V)


def test_the_first_loss_is_near_ln_v() -> None:
    base, vocab_size = load(CONFIGS / "base-48k.yaml").model, 8_000
    model = Transformer(base, vocab_size)
    src, src_mask = pad_sources([torch.randint(4, vocab_size, (n,)).numpy() for n in (12, 20, 30)])
    ids = torch.randint(4, vocab_size, (3, 25))
    with torch.no_grad():
        states = model(src, src_mask, ids[:, :-1])
        loss = token_loss(states, ids[:, 1:], model.output)
        assert float(model.project(states).std()) == pytest.approx(1.0, abs=0.05)
    # Logits of variance 1, as the initialisation means them, cost half a nat more than equal ones; tied embeddings add
    # a little, for each position takes itself for the likeliest next one.
    assert 0.3 < float(loss.nll_sum) / loss.num_tokens - math.log(vocab_size) < 0.9


def test_shapes_from_ids_to_logits() -> None:
    model = make_model()
    src, src_mask = make_source(5, 8)
    tgt_in = make_target(2, 7)
    memory = model.encode(src, src_mask)
    states = model.decode(tgt_in, memory, src_mask)
    assert memory.shape == (2, 9, 16)
    assert states.shape == (2, 7, 16)
    assert model.project(states).shape == (2, 7, V)
    assert torch.equal(states, model(src, src_mask, tgt_in))


@contextmanager
def path(is_fused: bool) -> Iterator[None]:
    """Attention in plain products, as on a CPU, or in one fused kernel, as elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "PLAIN_ATTENTION", set() if is_fused else {"cpu"})
        yield


# ── parity with torch.nn.Transformer ─────────────────────────────────────────────────────────────────────────────────


def twin(model: Transformer) -> tuple[nn.Transformer, list[tuple[list[Tensor], Tensor]]]:
    """torch's own Transformer with the weights of `model`, and which of ours together are one of theirs."""
    c = model.config
    theirs = nn.Transformer(
        c.d_model, c.num_heads, c.num_encoder_layers, c.num_decoder_layers, c.d_ff,
        dropout=0.0, activation=c.activation, batch_first=True, norm_first=c.norm_position == "pre",
    )  # fmt: skip
    pairs: list[tuple[Any, Any]] = []
    stacks: Any = ((model.encoder, theirs.encoder.layers), (model.decoder, theirs.decoder.layers))
    for stack, their_stack in stacks:
        for mine, other in zip(stack, their_stack, strict=True):
            attentions = [(mine.self_attention, other.self_attn)]
            norms = [(mine.self_attention_norm, other.norm1)]
            if stack is model.decoder:
                attentions.append((mine.cross_attention, other.multihead_attn))
                norms.append((mine.cross_attention_norm, other.norm2))
            norms.append((mine.feed_forward_norm, other.norm3 if stack is model.decoder else other.norm2))
            linears = [(mine.feed_forward.in_proj, other.linear1), (mine.feed_forward.out_proj, other.linear2)]
            for a, b in attentions:
                linears.append((a.out_proj, b.out_proj))
                ours = (a.q_proj, a.kv_proj) if isinstance(a, CrossAttention) else (a.in_proj,)
                pairs.append(([linear.weight for linear in ours], b.in_proj_weight))
                pairs.append(([linear.bias for linear in ours], b.in_proj_bias))
            for a, b in linears + norms:
                pairs += [([a.weight], b.weight), ([a.bias], b.bias)]
    if c.norm_position == "pre":
        for a, b in ((model.encoder_norm, theirs.encoder.norm), (model.decoder_norm, theirs.decoder.norm)):
            pairs += [([a.weight], b.weight), ([a.bias], b.bias)]
    else:  # torch's class puts final norms even there, which the paper does not
        theirs.encoder.norm = theirs.decoder.norm = None
    with torch.no_grad():
        for ours, b in pairs:
            b.copy_(torch.cat(ours))
    assert {id(b) for _, b in pairs} == {id(p) for p in theirs.parameters()}
    return theirs, pairs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_equals_the_transformer_of_torch(norm_position: str, activation: str) -> None:
    model = make_model(norm_position=norm_position, activation=activation)
    theirs, pairs = twin(model)
    src, src_mask = make_source(9, 4, 1)
    tgt_in = make_target(3, 6)
    with torch.no_grad():
        x, y = model.embed(model.embedding, src), model.embed(model.tgt_embedding, tgt_in)
    with path(is_fused=True), torch.no_grad():
        fused = model(src, src_mask, tgt_in)
    expected = theirs(
        x, y, tgt_mask=nn.Transformer.generate_square_subsequent_mask(6),
        src_key_padding_mask=~src_mask, memory_key_padding_mask=~src_mask,
    )  # fmt: skip
    states = model(src, src_mask, tgt_in)
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fused, expected, atol=1e-5, rtol=1e-5)
    probe = torch.randn_like(states)
    (states * probe).sum().backward()
    (expected * probe).sum().backward()
    for mine, other in pairs:
        ours = torch.cat([p.grad for p in mine])  # type: ignore[misc]
        torch.testing.assert_close(ours, other.grad, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["causal", "padding", "no mask"])
def test_plain_products_equal_the_fused_kernel(kind: str) -> None:
    attention = SelfAttention(16, 4, 0.0)
    nn.init.eye_(attention.out_proj.weight)
    nn.init.zeros_(attention.out_proj.bias)
    T, S = (6, 6) if kind == "causal" else (5, 7)
    q, k, v = inputs = tuple(torch.randn(2, 4, n, 4, requires_grad=True) for n in (T, S, S))
    mask = torch.rand(2, 1, 1, S) < 0.6 if kind == "padding" else None
    if mask is not None:
        mask[..., 0] = True
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=kind == "causal")
    expected = expected.transpose(1, 2).flatten(2)
    got = attention.attend(q, k, v, mask=mask, is_causal=kind == "causal")
    with path(is_fused=True):
        fused = attention.attend(q, k, v, mask=mask, is_causal=kind == "causal")
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(fused, expected)
    probe = torch.randn_like(got)
    for mine, theirs in zip(
        torch.autograd.grad((got * probe).sum(), inputs),
        torch.autograd.grad((expected * probe).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


# ── what may and may not be seen ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(44)
@both_paths
@pytest.mark.parametrize("variant", ["base", "post-norm", "all other"])
def test_a_future_target_token_changes_no_earlier_logit(variant: str, is_fused: bool) -> None:
    model = make_model(**VARIANTS[variant])
    src, src_mask = make_source(6, 3)
    tgt_in = make_target(2, 9)
    with path(is_fused):
        before = model.project(model(src, src_mask, tgt_in))
        for t in range(1, 9):
            changed = tgt_in.clone()
            changed[:, t] = (changed[:, t] - 4 + 7) % (V - 4) + 4
            after = model.project(model(src, src_mask, changed))
            assert torch.equal(after[:, :t], before[:, :t])
            assert not torch.equal(after[:, t], before[:, t])
            assert not torch.equal(after[:, -1], before[:, -1])  # position 8 sees 0 to 8


def test_every_source_token_reaches_every_target_position() -> None:
    model = make_model()
    src, src_mask = make_source(6)
    tgt_in = make_target(1, 4)
    before = model(src, src_mask, tgt_in)
    for s in range(7):
        changed = src.clone()
        changed[0, s] = (changed[0, s] - 3 + 7) % (V - 4) + 4
        assert (model(changed, src_mask, tgt_in) != before).any(dim=-1).all()


@pytest.mark.need(8)
@both_paths
def test_a_source_of_nothing_but_its_end_is_finite(is_fused: bool) -> None:
    model = make_model().train()
    src, src_mask = make_source(0, 7)
    assert src[0].tolist() == [EOS_ID] + [PAD_ID] * 7
    tgt_in = make_target(2, 5)
    with path(is_fused):
        loss = token_loss(model(src, src_mask, tgt_in), tgt_in, model.output, label_smoothing=0.1)
    assert torch.isfinite(loss.loss_sum)
    assert torch.isfinite(loss.nll_sum)
    loss.loss_sum.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.need(7)
@both_paths
@pytest.mark.parametrize("variant", ["base", "post-norm", "all other"])
def test_a_sentence_in_a_batch_is_as_it_is_alone(variant: str, is_fused: bool) -> None:
    model = make_model(**VARIANTS[variant])
    src, src_mask = make_source(11, 4, 0, 7)
    tgt_in = make_target(4, 8)
    tgt_in[1, 5:] = PAD_ID
    with path(is_fused):
        together = model(src, src_mask, tgt_in)
        for i, (S, T) in enumerate([(12, 8), (5, 5), (1, 8), (8, 8)]):
            alone = model(src[i : i + 1, :S], src_mask[i : i + 1, :S], tgt_in[i : i + 1, :T])
            torch.testing.assert_close(together[i, :T], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_order_matters_because_of_positions(positions: str) -> None:
    model = make_model(positions=positions)
    tgt_in = make_target(1, 3)

    def translate(a: int, b: int, c: int) -> Tensor:
        src, src_mask = pad_sources([[a, b, c]])
        with torch.no_grad():
            return model.project(model(src, src_mask, tgt_in))

    cat, chases, dog = 11, 22, 33
    assert (translate(cat, chases, dog) - translate(dog, chases, cat)).abs().max() > 1e-2
    model.positions.data.zero_()
    torch.testing.assert_close(translate(cat, chases, dog), translate(dog, chases, cat), atol=1e-5, rtol=1e-5)


# ── cache ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(7)
@pytest.mark.parametrize("variant", VARIANTS)
def test_cached_logits_equal_uncached_ones(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B=3 sentences, one row each, then W=4 rows, beams crossed at every step, sentences leaving, W=2 at the end."""
    monkeypatch.setattr(KVCache, "BLOCK", 3)  # so that the cache grows several times
    model = make_model(**VARIANTS[variant])
    src, src_mask = make_source(9, 2, 5)
    T = 14
    sentence = torch.arange(3)  # of every row; beside it the row's whole history
    history = torch.full((3, 1), BOS_ID)
    with torch.no_grad():
        memory = model.encode(src, src_mask)
        cache = model.start_cache(memory, src_mask, T)

        def step() -> None:
            logits = model.project(model.decode_step(history[:, -1].contiguous(), cache))
            uncached = model.project(model.decode(history, memory[sentence], src_mask[sentence]))
            torch.testing.assert_close(logits, uncached[:, -1], atol=1e-5, rtol=1e-5)

        def reorder(rows: Tensor) -> None:
            nonlocal history, sentence
            history, sentence = history[rows], sentence[rows]
            cache.reorder(rows)

        def choose() -> None:
            nonlocal history
            history = torch.cat([history, torch.randint(4, V, (len(history), 1))], dim=1)

        step()
        reorder(torch.arange(3).repeat_interleave(4))
        choose()
        for t in range(1, T):
            step()
            if t == 5:  # the sentence in the middle is finished
                cache.keep(torch.tensor([0, 2]))
                kept = torch.cat([torch.arange(0, 4), torch.arange(8, 12)])
                history, sentence = history[kept], sentence[kept]
            elif t == 9:  # fewer rows for each
                reorder(torch.tensor([3, 0, 6, 6]))
            elif t == 11:  # and only the last one goes on
                cache.keep(torch.tensor([1]))
                history, sentence = history[2:], sentence[2:]
            else:
                width = len(history) // len(cache.mask)
                within = torch.randint(0, width, (len(history),))
                reorder(torch.arange(len(history)) // width * width + within)
            choose()
    assert cache.length == T


def test_cross_attention_is_computed_once_and_never_copied_per_beam() -> None:
    model = make_model()
    src, src_mask = make_source(9, 2)
    with torch.no_grad():
        cache = model.start_cache(model.encode(src, src_mask), src_mask, 8)
        model.decode_step(torch.tensor([BOS_ID, BOS_ID]), cache)
        before = [k.data_ptr() for k in cache.cross_keys + cache.cross_values]
        cache.reorder(torch.arange(2).repeat_interleave(5))
        calls = []
        for layer in model.decoder:
            layer.cross_attention.keys_values = lambda memory: calls.append(1)  # type: ignore[union-attr]
        model.decode_step(torch.arange(10), cache)
    assert cache.keys[0].shape[0] == 2
    assert cache.cross_keys[0].shape[0] == 2
    assert [k.data_ptr() for k in cache.cross_keys + cache.cross_values] == before
    assert calls == []


@pytest.mark.need(40)
def test_a_position_past_the_last_one_is_refused_in_words() -> None:
    model = make_model(max_length=6)
    src, src_mask = make_source(5)  # with its end mark: 6, which fits
    memory = model.encode(src, src_mask)
    model.decode(make_target(1, 6), memory, src_mask)
    with pytest.raises(AssertionError, match=r"position 7 is past model.max_length = 6"):
        model.encode(*make_source(6))
    with pytest.raises(AssertionError, match=r"position 7 is past model.max_length = 6"):
        model.decode(make_target(1, 7), memory, src_mask)
    with torch.no_grad():
        cache = model.start_cache(memory, src_mask, 100)
        for _ in range(6):
            model.decode_step(torch.tensor([5]), cache)
        with pytest.raises(AssertionError, match=r"position 7 is past model.max_length = 6"):
            model.decode_step(torch.tensor([5]), cache)
        cache = model.start_cache(memory, src_mask, 2)
        for _ in range(2):
            model.decode_step(torch.tensor([5]), cache)
        with pytest.raises(AssertionError, match="made for 2 steps"):
            model.decode_step(torch.tensor([5]), cache)


# ── variants, ties, positions ────────────────────────────────────────────────────────────────────────────────────────


def test_feed_forward_activations_are_their_formulas() -> None:
    formulas: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": lambda h: h.clamp(min=0),
        "gelu": lambda h: h * 0.5 * (1 + torch.erf(h / math.sqrt(2))),
        "silu": lambda h: h / (1 + torch.exp(-h)),
        "swiglu": lambda h: h[..., :24] / (1 + torch.exp(-h[..., :24])) * h[..., 24:],
    }
    x = torch.randn(2, 3, 16)
    for activation, formula in formulas.items():
        layer = FeedForward(small(activation=activation)).eval()
        torch.testing.assert_close(layer(x), layer.out_proj(formula(layer.in_proj(x))))


def test_rms_norm_divides_by_the_root_mean_square() -> None:
    norm: Any = make_norm(small(norm="rms"))
    with torch.no_grad():
        norm.weight.copy_(torch.randn(16))
    x = 0.01 * torch.randn(3, 16)
    torch.testing.assert_close(norm(x), x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5) * norm.weight)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_learns_and_uses_all_its_weights(variant: str) -> None:
    model = Transformer(small(**VARIANTS[variant], dropout=0.1, attention_dropout=0.1, activation_dropout=0.1), V)
    assert all(d.p == 0.1 for d in model.modules() if isinstance(d, Dropout))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    src, src_mask = make_source(6, 3)
    ids = make_target(2, 6)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = token_loss(model(src, src_mask, ids[:, :-1]), ids[:, 1:], model.output)
        loss.loss_sum.backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
        optimizer.step()
        losses.append(float(loss.nll_sum))
    assert losses[-1] < 0.8 * losses[0]


def is_tied(model: Transformer) -> bool:
    return model.embedding.weight is model.tgt_embedding.weight is model.output.weight


@pytest.mark.need(39)
@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.to(torch.bfloat16),
        lambda m: m.to(torch.device("cpu"), torch.float64),
        lambda m: copy.deepcopy(m).to(torch.bfloat16),
        lambda m: m.load_state_dict(copy.deepcopy(Transformer(m.config, V).state_dict())) and m,
    ],
    ids=["bf16", "fp64", "copied", "loaded"],
)
def test_tied_weights_stay_one_tensor(change: Callable[[Transformer], Transformer]) -> None:
    model = make_model()
    assert is_tied(model)
    changed = change(model)
    assert is_tied(changed)
    assert sum(name.endswith("embedding.weight") for name, _ in changed.named_parameters()) == 1
    assert not is_tied(change(make_model(tie_embeddings=False)))


def test_row_i_of_the_embedding_belongs_to_id_i() -> None:
    model = make_model()
    src, src_mask = pad_sources([[7, 9]])
    model.encode(src, src_mask).sum().backward()
    touched = model.embedding.weight.grad.abs().sum(1).nonzero()[:, 0].tolist()  # type: ignore[union-attr]
    assert touched == [EOS_ID, 7, 9]
    states = torch.randn(1, 16)
    torch.testing.assert_close(
        model.project(states)[0, 7], states[0] @ model.embedding.weight[7] + model.output.bias[7]
    )


def test_states_begin_as_embedding_times_root_d_plus_position() -> None:
    model = make_model()
    src, _ = make_source(5)
    expected = 4 * model.embedding.weight[src[0]] + model.positions[:6]  # √16 = 4
    torch.testing.assert_close(model.embed(model.embedding, src)[0], expected)


def test_sinusoids_are_those_of_the_paper() -> None:
    table = sinusoids(50, 8)
    for position in (0, 1, 49):
        for i, wavelength in enumerate([1, 10000 ** (1 / 3), 10000 ** (2 / 3), 10000]):
            assert float(table[position, i]) == pytest.approx(math.sin(position / wavelength), abs=1e-5)
            assert float(table[position, 4 + i]) == pytest.approx(math.cos(position / wavelength), abs=1e-5)


def test_fixed_positions_are_neither_trained_nor_saved() -> None:
    model = make_model(positions="sinusoidal")
    assert count_parameters(model)["positions"] == 0
    assert not any("positions" in name for name in model.state_dict())


# ── dropout ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("p", [0.1, 0.3, 0.75])
def test_dropout_drops_at_its_rate_and_keeps_the_expectation(p: float) -> None:
    n = 400_003  # no multiple of four
    out = Dropout(p).train()(torch.ones(n))
    kept = out != 0
    five_sigma = 5 * math.sqrt(p * (1 - p) / n)
    assert float(kept.float().mean()) == pytest.approx(1 - p, abs=five_sigma + 2**-16)
    assert float(out.mean()) == pytest.approx(1.0, abs=five_sigma / (1 - p) + 1e-4)
    assert out[kept].unique().tolist() == pytest.approx([1 / (1 - p)], rel=2**-14)
    # The four elements that share a draw are independent of one another, and of the next draw.
    for lag in (1, 2, 3, 4):
        both = (~kept[lag:] & ~kept[:-lag]).float().mean()
        assert float(both) == pytest.approx(p * p, abs=5 * math.sqrt(p * p * (1 - p * p) / n) + 3e-4)


def test_dropout_passes_gradients_of_what_it_kept() -> None:
    x = torch.randn(3, 5, requires_grad=True)
    out = Dropout(0.5).train()(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad, (out / x).detach())


def test_dropout_is_off_in_evaluation_and_at_rate_0() -> None:
    x = torch.randn(4, 7)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    model = make_model(dropout=0.5, attention_dropout=0.5, activation_dropout=0.5)
    src, src_mask = make_source(6)
    tgt_in = make_target(1, 5)
    assert torch.equal(model(src, src_mask, tgt_in), model(src, src_mask, tgt_in))
    model.train()
    assert not torch.equal(model(src, src_mask, tgt_in), model(src, src_mask, tgt_in))


@pytest.mark.need(17)
def test_dropout_depends_on_its_seed_alone() -> None:
    dropout = Dropout(0.3).train()
    x = torch.ones(1001)
    seed_dropout(7)
    straight = [dropout(x), dropout(x)]
    assert not torch.equal(*straight)
    dropout(torch.ones(5))
    seed_dropout(8)
    assert not torch.equal(dropout(x), straight[0])
    seed_dropout(7)
    assert all(torch.equal(dropout(x), before) for before in straight)
    seed_dropout(2**63 - 1)


def test_dropout_keeps_type_and_shape() -> None:
    out = Dropout(0.3).train()(torch.ones(2, 3, 5, dtype=torch.bfloat16))
    assert (out.dtype, out.shape) == (torch.bfloat16, (2, 3, 5))

"""The encoder-decoder Transformer (Vaswani et al. 2017, "Attention Is All You Need"), read from top to bottom.

Shape legend, the same in every file of xyd:

    B sentences   S source length   T target length   W beam width   R rows = B*W   N real target tokens of a batch
    D d_model     H heads           K head size       F feed-forward size           V vocabulary
    L layers      P cache positions

Masks are bool and True means "may be attended to". Ids become states (B,T,D); only `project` turns states into logits.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from xyd.config import ModelConfig


class Dropout(nn.Module):
    """Inverted dropout (Srivastava et al. 2014). `p` may be changed while training.

    On a CPU torch's own generator of Bernoulli numbers costs more than the layer it follows, so there one draw of 64
    random bits serves four elements: the rate is `p` rounded to a multiple of 2**-16.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        threshold = round(self.p * 65536)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        keep = draws.view(torch.int16)[: x.numel()].view(x.shape) >= threshold - 32768
        return x * keep.to(x.dtype).mul_(65536 / (65536 - threshold))


class Attention(nn.Module):
    """Multi-head attention: softmax(q kᵀ / √K) v for H heads at once. One class for self- and cross-attention.

    The projections of queries, keys and values are the three blocks of one weight (3D, D), so that self-attention is
    a single product.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.dropout = Dropout(dropout)
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split_heads(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def queries_keys_values(self, x: Float[Tensor, "B T D"]) -> tuple[Tensor, Tensor, Tensor]:
        """Self-attention: q, k and v, each (B,H,T,K), from the same states."""
        q, k, v = self.in_proj(x).chunk(3, dim=-1)
        return self.split_heads(q), self.split_heads(k), self.split_heads(v)

    def queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        d = self.d_model
        return self.split_heads(F.linear(x, self.in_proj.weight[:d], self.in_proj.bias[:d]))

    def keys_values(self, memory: Float[Tensor, "B S D"]) -> tuple[Tensor, Tensor]:
        """Cross-attention: k and v, each (B,H,S,K), from the encoder's memory."""
        d = self.d_model
        k, v = F.linear(memory, self.in_proj.weight[d:], self.in_proj.bias[d:]).chunk(2, dim=-1)
        return self.split_heads(k), self.split_heads(v)

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H S K"],
        v: Float[Tensor, "B H S K"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "B T D"]:
        if q.device.type == "cpu" and torch.is_grad_enabled():
            # The fused kernel's backward pass is up to ten times slower in bf16 on a CPU (figures in LOG.md).
            if is_causal:
                mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
            scores = q * k.shape[-1] ** -0.5 @ k.transpose(-1, -2)
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf)
            heads = self.dropout(scores.softmax(dim=-1)) @ v
        else:
            dropout = self.dropout.p if self.training else 0.0
            heads = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, is_causal=is_causal)
        return self.out_proj(heads.transpose(1, 2).flatten(2))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class FeedForward(nn.Module):
    """Two linear layers with a non-linearity between them; `swiglu` gates one half by the other (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        width = 2 * config.d_ff if config.activation == "swiglu" else config.d_ff
        self.in_proj = nn.Linear(config.d_model, width)
        self.out_proj = nn.Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        hidden = self.in_proj(x)
        if self.activation == "swiglu":
            gate, up = hidden.chunk(2, dim=-1)
            hidden = F.silu(gate) * up
        else:
            hidden = ACTIVATIONS[self.activation](hidden)
        return self.out_proj(self.dropout(hidden))


def make_norm(config: ModelConfig) -> nn.Module:
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(config.d_model, eps=1e-5)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside a residual connection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.is_pre_norm = config.norm_position == "pre"
        self.self_attention = Attention(config.d_model, config.num_heads, config.attention_dropout)
        self.feed_forward = FeedForward(config)
        self.self_attention_norm, self.feed_forward_norm = make_norm(config), make_norm(config)
        self.dropout = Dropout(config.dropout)

    def enter(self, x: Tensor, norm: nn.Module) -> Tensor:
        """What a sub-layer reads: normalised states before it (pre-norm), or the states as they are."""
        return norm(x) if self.is_pre_norm else x

    def leave(self, x: Tensor, change: Tensor, norm: nn.Module) -> Tensor:
        """The residual sum, normalised after it where the layer is post-norm."""
        x = x + self.dropout(change)
        return x if self.is_pre_norm else norm(x)

    def forward(self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B 1 1 S"]) -> Float[Tensor, "B S D"]:
        norm = self.self_attention_norm
        q, k, v = self.self_attention.queries_keys_values(self.enter(x, norm))
        x = self.leave(x, self.self_attention.attend(q, k, v, mask), norm)
        norm = self.feed_forward_norm
        return self.leave(x, self.feed_forward(self.enter(x, norm)), norm)


class DecoderLayer(EncoderLayer):
    """An encoder layer whose self-attention is causal, with cross-attention to the memory in the middle."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.cross_attention = Attention(config.d_model, config.num_heads, config.attention_dropout)
        self.cross_attention_norm = make_norm(config)

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "B T D"], memory: Float[Tensor, "B S D"], mask: Bool[Tensor, "B 1 1 S"]
    ) -> Float[Tensor, "B T D"]:
        norm = self.self_attention_norm
        q, k, v = self.self_attention.queries_keys_values(self.enter(x, norm))
        x = self.leave(x, self.self_attention.attend(q, k, v, is_causal=True), norm)
        norm = self.cross_attention_norm
        q = self.cross_attention.queries(self.enter(x, norm))
        x = self.leave(x, self.cross_attention.attend(q, *self.cross_attention.keys_values(memory), mask), norm)
        norm = self.feed_forward_norm
        return self.leave(x, self.feed_forward(self.enter(x, norm)), norm)

    def step(self, x: Float[Tensor, "R 1 D"], cache: "KVCache", layer: int) -> Float[Tensor, "R 1 D"]:
        """`forward` for the newest token only: its query against everything cached."""
        norm = self.self_attention_norm
        q, k, v = self.self_attention.queries_keys_values(self.enter(x, norm))
        x = self.leave(x, self.self_attention.attend(q, *cache.append(layer, k, v)), norm)
        norm = self.cross_attention_norm
        # The W rows of a sentence are W queries against its one copy of keys and values.
        by_sentence = self.enter(x, norm).view(len(cache.mask), -1, x.shape[-1])
        q = self.cross_attention.queries(by_sentence)
        change = self.cross_attention.attend(q, cache.cross_keys[layer], cache.cross_values[layer], cache.mask)
        x = self.leave(x, change.view(x.shape), norm)
        norm = self.feed_forward_norm
        return self.leave(x, self.feed_forward(self.enter(x, norm)), norm)


class KVCache:
    """Keys and values of all decoder layers while a batch is being translated.

    `keys`, `values`: per layer (R,H,P,K), preallocated in blocks; the first `length` of the P positions are filled.
    `cross_keys`, `cross_values`: per layer (B,H,S,K), one per sentence whatever the beam width. `mask`: (B,1,1,S).
    Rows of one sentence stand together: row r belongs to sentence r // W.
    """

    BLOCK = 32

    def __init__(self, cross: list[tuple[Tensor, Tensor]], mask: Bool[Tensor, "B 1 1 S"], max_steps: int) -> None:
        self.cross_keys, self.cross_values = [k for k, _ in cross], [v for _, v in cross]
        self.mask, self.length, self.max_steps = mask, 0, max_steps
        B, H, _, K = cross[0][0].shape
        empty = cross[0][0].new_empty(B, H, min(self.BLOCK, max_steps), K)
        self.keys = [empty.clone() for _ in cross]
        self.values = [empty.clone() for _ in cross]

    def append(self, layer: int, k: Float[Tensor, "R H 1 K"], v: Float[Tensor, "R H 1 K"]) -> tuple[Tensor, Tensor]:
        """Store the newest position of one layer; returns all positions so far, (R,H,length+1,K) each."""
        P = self.keys[layer].shape[2]
        if self.length == P:
            room = (0, 0, 0, min(self.BLOCK, self.max_steps - P))
            assert room[3] > 0, f"the cache was made for {self.max_steps} steps"
            self.keys[layer], self.values[layer] = F.pad(self.keys[layer], room), F.pad(self.values[layer], room)
        self.keys[layer][:, :, self.length] = k[:, :, 0]
        self.values[layer][:, :, self.length] = v[:, :, 0]
        return self.keys[layer][:, :, : self.length + 1], self.values[layer][:, :, : self.length + 1]

    def reorder(self, rows: Int[Tensor, " R2"]) -> None:
        """Row i becomes what row `rows[i]` was. The number of rows per sentence may change, the sentences do not."""
        self.keys = [k.index_select(0, rows) for k in self.keys]
        self.values = [v.index_select(0, rows) for v in self.values]

    def keep(self, sentences: Int[Tensor, " B2"]) -> None:
        """Only these sentences go on, with all their rows."""
        width = len(self.keys[0]) // len(self.mask)
        rows = (sentences[:, None] * width + torch.arange(width, device=sentences.device)).flatten()
        self.reorder(rows)
        self.cross_keys = [k.index_select(0, sentences) for k in self.cross_keys]
        self.cross_values = [v.index_select(0, sentences) for v in self.cross_values]
        self.mask = self.mask.index_select(0, sentences)


class Transformer(nn.Module):
    """Source ids and shifted target ids to decoder states, and states to logits over the vocabulary.

    One embedding and one table of positions serve both sides; with `tie_embeddings` the output projection is the
    embedding as well (Press and Wolf 2017), plus a bias of its own.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.tgt_embedding = self.embedding if config.tie_embeddings else nn.Embedding(vocab_size, config.d_model)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_length, config.d_model))
        else:
            self.register_buffer("positions", sinusoids(config.max_length, config.d_model), persistent=False)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList([EncoderLayer(config) for _ in range(config.num_encoder_layers)])
        self.decoder = nn.ModuleList([DecoderLayer(config) for _ in range(config.num_decoder_layers)])
        is_pre_norm = config.norm_position == "pre"
        self.encoder_norm = make_norm(config) if is_pre_norm else nn.Identity()
        self.decoder_norm = make_norm(config) if is_pre_norm else nn.Identity()
        self.output = nn.Linear(config.d_model, vocab_size)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot and Bengio (2010) for every D×D block, zero biases, embeddings of standard deviation D^-½."""
        std, d = self.config.d_model**-0.5, self.config.d_model
        for module in self.modules():
            if isinstance(module, nn.Linear) and module is not self.output:
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, Attention):
                for block in module.in_proj.weight.split(d):
                    nn.init.xavier_uniform_(block)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=std)
        if isinstance(self.positions, nn.Parameter):
            nn.init.normal_(self.positions, std=std)
        if not self.config.tie_embeddings:
            nn.init.normal_(self.output.weight, std=std)
        nn.init.zeros_(self.output.bias)

    def embed(self, embedding: nn.Embedding, ids: Int[Tensor, "B T"], start: int = 0) -> Float[Tensor, "B T D"]:
        """Embeddings times √D plus positions from `start` on."""
        end = start + ids.shape[1]
        assert end <= len(self.positions), f"position {end} is past model.max_length = {len(self.positions)}"
        x = embedding(ids) * math.sqrt(self.config.d_model) + self.positions[start:end]
        return self.dropout(x)

    def encode(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """The memory: what the encoder knows about every source position."""
        x = self.embed(self.embedding, src)
        mask = src_mask[:, None, None, :]
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def decode(
        self, tgt_in: Int[Tensor, "B T"], memory: Float[Tensor, "B S D"], src_mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B T D"]:
        """Teacher forcing: the states of all target positions in parallel, each seeing only itself and earlier ones."""
        x = self.embed(self.tgt_embedding, tgt_in)
        mask = src_mask[:, None, None, :]
        for layer in self.decoder:
            x = layer(x, memory, mask)
        return self.decoder_norm(x)

    def forward(
        self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        return self.decode(tgt_in, self.encode(src, src_mask), src_mask)

    def project(self, states: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Logits over the vocabulary."""
        return self.output(states)

    def start_cache(self, memory: Float[Tensor, "B S D"], src_mask: Bool[Tensor, "B S"], max_steps: int) -> KVCache:
        """A cache for at most `max_steps` decode steps; cross-attention is computed here, once per sentence."""
        cross = [layer.cross_attention.keys_values(memory) for layer in self.decoder]  # type: ignore[operator, union-attr]
        return KVCache(cross, src_mask[:, None, None, :], min(max_steps, len(self.positions)))

    def decode_step(self, ids: Int[Tensor, " R"], cache: KVCache) -> Float[Tensor, "R V"]:
        """Logits of the next token after `ids`, the newest token of every row. Appends to the cache."""
        x = self.embed(self.tgt_embedding, ids[:, None], start=cache.length)
        for i, layer in enumerate(self.decoder):
            x = layer.step(x, cache, i)  # type: ignore[operator]
        cache.length += 1
        return self.project(self.decoder_norm(x[:, 0]))


def sinusoids(max_length: int, d_model: int) -> Float[Tensor, "P D"]:
    """Fixed positions: sines in the first half of the columns, cosines in the second, wavelengths 2π to 10000·2π."""
    half = (d_model + 1) // 2
    rate = torch.exp(torch.arange(half) * (-math.log(10000.0) / max(half - 1, 1)))
    angle = torch.arange(max_length)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :d_model]


def count_parameters(model: Transformer) -> dict[str, int]:
    """Trainable parameters by part; tied ones are counted once."""
    parts = {"embeddings": 0, "positions": 0, "encoder": 0, "decoder": 0, "output": 0}
    for name, parameter in model.named_parameters():  # yields a shared parameter once
        head = name.split(".")[0]
        part = {
            "embedding": "embeddings",
            "tgt_embedding": "embeddings",
            "encoder_norm": "encoder",
            "decoder_norm": "decoder",
        }
        parts[part.get(head, head)] += parameter.numel()
    return parts

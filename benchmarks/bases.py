"""Embeddings and features that ills are planted into: the bases of `advice.py`.

Each base is a function of nothing, kept on disk once made. Which group it belongs to was fixed when
it was written: `design` bases were looked at while rules were written; those to be judged on stand
in `judged.py`, from other sources, and were not. What was judged once is part of the design from
then on: it stands below and in `once_judged.py`, `second_judged.py` and `third_judged.py`. `well`
are sets that are as they should be; there are more in `healthy.py`.

    CHIARO_DATA=... CHIARO_MINILM=...whl python benchmarks/healthy.py     # make those of the design
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
KEPT = HERE / "out" / "advice"
ROWS = 900
Arrays = dict[str, Any]
BASES: dict[str, tuple[str, Callable[[], Arrays]]] = {}
WELL: dict[str, tuple[str, Callable[[], Arrays]]] = {}


def base(group: str) -> Callable[[Callable[[], Arrays]], Callable[[], Arrays]]:
    """Note a base of a group under the name of its function."""

    def note(make: Callable[[], Arrays]) -> Callable[[], Arrays]:
        BASES[make.__name__] = (group, make)
        return make

    return note


def well(group: str) -> Callable[[Callable[[], Arrays]], Callable[[], Arrays]]:
    """Note a set in which nothing is wrong under the name of its function."""

    def note(make: Callable[[], Arrays]) -> Callable[[], Arrays]:
        WELL[make.__name__] = (group, make)
        return make

    return note


def loaded(name: str) -> Arrays:
    """A base by its name, from disk if it is there."""
    path = KEPT / "bases" / f"{name}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = {**BASES, **WELL}[name][1]()
        np.savez(path, **made)
    with np.load(path) as file:
        return {key: file[key] for key in file.files}


def data(name: str) -> Path:
    return Path(os.environ.get("CHIARO_DATA", "")) / name


def drawn(n: int, seed: int = 0, most: int = ROWS) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).choice(n, min(n, most), replace=False))


# ---- raw material ----


def captions() -> tuple[list[str], list[str], np.ndarray]:
    """Two captions of each emoji and its category."""
    with gzip.open(data("emoji_captions.jsonl.gz"), "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    kept = [one for one in lines if not one["is_skin_variant"] and len(one["captions"]) > 1]
    kinds = sorted({one["category"] for one in kept})
    y = np.array([kinds.index(one["category"]) for one in kept])
    rows = drawn(len(kept), 1)
    return (
        [kept[i]["captions"][0] for i in rows],
        [kept[i]["captions"][1] for i in rows],
        y[rows],
    )


def gradients(pictures: np.ndarray, cells: int = 4, bins: int = 8) -> np.ndarray:
    """Histograms of gradients of grey pictures, in cells: classical features of pictures."""
    x = pictures.astype(np.float64)
    x = x.mean(axis=3) if x.ndim == 4 else x
    gy, gx = np.gradient(x, axis=(1, 2))
    size, at = np.hypot(gx, gy), np.floor((np.arctan2(gy, gx) / np.pi + 1) / 2 * bins) % bins
    side = x.shape[1] // cells
    out = np.zeros((len(x), cells, cells, bins))
    for i in range(cells):
        for j in range(cells):
            box = slice(i * side, (i + 1) * side), slice(j * side, (j + 1) * side)
            for k in range(bins):
                out[:, i, j, k] = (size * (at == k))[:, box[0], box[1]].sum(axis=(1, 2))
    out = np.sqrt(out.reshape(len(x), -1))
    return out / (np.linalg.norm(out, axis=1, keepdims=True) + 1e-9)


def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rows = drawn(len(x), 2)
    return x[rows], y[rows]


def principal(x: np.ndarray, k: int) -> np.ndarray:
    x = x - x.mean(axis=0)
    U, s, _ = np.linalg.svd(x, full_matrices=False)
    return U[:, :k] * s[:k]


def words_of(texts: list[str]) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(min_df=2, sublinear_tf=True).fit_transform(texts)


# ---- to design on ----


@base("design")
def resnet() -> Arrays:
    """Features of a supervised ResNet-20."""
    found = np.load(data("cifar10_test_resnet20_embeddings.npz"))
    rows = drawn(len(found["labels"]), 3)
    return {"h": found["embeddings"][rows].astype(np.float64), "labels": found["labels"][rows]}


@base("design")
def minilm_captions() -> Arrays:
    """A sentence encoder on two captions of each emoji."""
    from sentences import embed

    first, second, y = captions()
    h = embed(first).astype(np.float64)
    return {"h": h, "labels": y, "h1": h, "h2": embed(second).astype(np.float64)}


@base("design")
def digits_loop() -> Arrays:
    """A small network trained here, in a plain loop, on arrays of digits."""
    from cured import Loop, trained

    found = trained(Loop("arrays"), 0).arrays
    return {name: found[name] for name in ("h", "labels", "h1", "h2")}


@base("design")
def digits_pca() -> Arrays:
    x, y = digits()
    return {"h": principal(x, 32), "labels": y}


@base("design")
def lsa_captions() -> Arrays:
    """Words of captions, weighted and reduced: classical features of texts."""
    from sklearn.decomposition import TruncatedSVD

    first, second, y = captions()
    X = words_of([f"{a} {b}" for a, b in zip(first, second, strict=True)])
    h = TruncatedSVD(64, random_state=0).fit_transform(X)
    keep = np.unique(np.round(h, 9), axis=0, return_index=True)[1]
    keep = np.sort(keep[np.linalg.norm(h[keep], axis=1) > 1e-6])
    return {"h": h[keep], "labels": y[keep]}


@base("design")
def omniglot() -> Arrays:
    """Histograms of gradients of handwritten characters, 40 classes."""
    found = np.load(data("omniglot_small.npz"))
    pictures, y = _pictures(found)
    kept = np.flatnonzero(np.isin(y, np.unique(y)[:45]))[:ROWS]
    small = pictures[kept][:, 1:-1:2, 1:-1:2].astype(np.float64)
    return {"h": gradients(small), "labels": np.unique(y[kept], return_inverse=True)[1]}


def _pictures(found: Any) -> tuple[np.ndarray, np.ndarray]:
    names = found.files
    x = found[next(n for n in names if found[n].ndim == 3)]
    y = found[next(n for n in names if found[n].ndim == 1 and found[n].dtype.kind in "iu")]
    return x, y.astype(np.int64)


# ---- once judged on; looked at, and so part of the design since ----


@base("design")
def minilm_sentences() -> Arrays:
    """A sentence encoder on sentences and on the same without their last third; no labels."""
    from sentences import embed, sentences

    texts = sentences(ROWS)
    cut = [" ".join(t.split()[: max(3, 2 * len(t.split()) // 3)]) for t in texts]
    h = embed(texts).astype(np.float64)
    return {"h": h, "h1": h, "h2": embed(cut).astype(np.float64)}


@base("design")
def cifar_gradients() -> Arrays:
    """Histograms of gradients of natural pictures, 20 coarse classes: hardly above chance."""
    found = np.load(data("cifar100_12k.npz"))
    rows = drawn(len(found["train_images"]), 4)
    return {
        "h": gradients(found["train_images"][rows]),
        "labels": found["train_coarse_labels"][rows].astype(np.int64),
    }


@base("design")
def emoji_vendors() -> Arrays:
    """Histograms of gradients of two vendors' drawings of each emoji, with its category."""
    found = np.load(data("emoji.npz"))
    with gzip.open(data("emoji_captions.jsonl.gz"), "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    plain = np.flatnonzero([not one["is_skin_variant"] for one in lines])
    plain = plain[drawn(len(plain), 5)]
    kinds = sorted({one["category"] for one in lines})
    y = np.array([kinds.index(lines[i]["category"]) for i in plain])
    sides = [gradients(found[name][plain]) for name in ("images", "images_twitter")]
    return {"h": sides[0], "labels": y, "h1": sides[0], "h2": sides[1]}


@base("design")
def classifier() -> Arrays:
    """The last hidden layer, relu, of a classifier of digits, on its own training rows."""
    from sklearn.neural_network import MLPClassifier

    x, y = digits()
    net = MLPClassifier((64, 48), max_iter=60, random_state=0).fit(x / 16, y)
    h = x / 16
    for W, b in zip(net.coefs_[:-1], net.intercepts_[:-1], strict=True):
        h = np.maximum(h @ W + b, 0)
    return {"h": h, "labels": y}


@base("design")
def series_loop() -> Arrays:
    """A small network trained here, in a plain loop, on waves."""
    from cured import Loop, trained

    found = trained(Loop("series"), 0).arrays
    return {name: found[name] for name in ("h", "labels", "h1", "h2")}


@base("design")
def parts_of_digits() -> Arrays:
    """Non-negative factors of digits."""
    from sklearn.decomposition import NMF

    x, y = digits()
    h = NMF(24, init="nndsvda", max_iter=300, random_state=0).fit_transform(x / 16)
    return {"h": h, "labels": y}


@base("design")
def cancer() -> Arrays:
    """Thirty standardised measurements, two classes."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return {"h": (x - x.mean(axis=0)) / x.std(axis=0), "labels": y.astype(np.int64)}


# ---- nothing is wrong ----


@well("design")
def map_of_digits() -> Arrays:
    """A map in two dimensions."""
    from sklearn.manifold import TSNE

    x, y = digits()
    return {"h": TSNE(2, random_state=0, max_iter=500).fit_transform(x), "labels": y}


@well("design")
def counts() -> Arrays:
    """Counts of ink: whole numbers."""
    x, y = digits()
    return {"h": x, "labels": y}


@well("design")
def codes() -> Arrays:
    """Binary codes of 128 bits."""
    x, y = digits()
    W = np.random.default_rng(0).normal(size=(64, 128))
    return {"h": np.sign((x - x.mean(axis=0)) @ W), "labels": y}


@well("design")
def relu_resnet() -> Arrays:
    """Features of which half are zero."""
    a = loaded("resnet")
    return {"h": np.maximum(a["h"] - np.median(a["h"], axis=0), 0), "labels": a["labels"]}


@well("design")
def large_resnet() -> Arrays:
    """All rows times 10,000."""
    a = loaded("resnet")
    return {"h": 1e4 * a["h"], "labels": a["labels"]}


@well("design")
def int8_captions() -> Arrays:
    """A sentence encoder, stored in 8 bits."""
    h = loaded("minilm_captions")["h"]
    return {
        "h": np.round(127 * h / np.abs(h).max()),
        "labels": loaded("minilm_captions")["labels"],
    }


@well("design")
def wine() -> Arrays:
    """Thirteen measurements in units of their own."""
    from sklearn.datasets import load_wine

    x, y = load_wine(return_X_y=True)
    return {"h": x, "labels": y.astype(np.int64)}


@well("design")
def tokens() -> Arrays:
    """The token table of a sentence encoder."""
    from safetensors.torch import load_file

    from sentences import _unpacked

    w = load_file(_unpacked() / "model.safetensors")
    table = next(v for k, v in w.items() if k.endswith("word_embeddings.weight")).numpy()
    return {"h": table[2000:20000][drawn(18000, 6)].astype(np.float64)}


@well("design")
def word_counts() -> Arrays:
    """Counts of words of captions."""
    from sklearn.feature_extraction.text import CountVectorizer

    first, second, y = captions()
    texts = [f"{a} {b}" for a, b in zip(first, second, strict=True)]
    X = CountVectorizer(max_features=300).fit_transform(texts).toarray()
    keep = X.any(axis=1)
    return {"h": X[keep].astype(np.float64), "labels": y[keep]}


@well("design")
def map_of_captions() -> Arrays:
    """Three principal directions."""
    return {
        "h": principal(loaded("minilm_captions")["h"], 3),
        "labels": loaded("minilm_captions")["labels"],
    }


@well("design")
def half_sentences() -> Arrays:
    """A sentence encoder, stored in half precision."""
    return {"h": loaded("minilm_sentences")["h"].astype(np.float16)}


@well("design")
def bits_of_sentences() -> Arrays:
    """A sentence encoder, stored as signs."""
    return {"h": np.sign(loaded("minilm_sentences")["h"])}


@well("design")
def iris() -> Arrays:
    from sklearn.datasets import load_iris

    x, y = load_iris(return_X_y=True)
    return {"h": x, "labels": y.astype(np.int64)}


@well("design")
def votes() -> Arrays:
    """Class probabilities of a classifier: rows that sum to 1."""
    from sklearn.linear_model import LogisticRegression

    x, y = digits()
    half = np.arange(len(x)) % 2 == 0
    fit = LogisticRegression(max_iter=300, C=0.01).fit(x[half], y[half])
    return {"h": fit.predict_proba(x), "labels": y}

"""Sets of the design part in which nothing is wrong: features, codes, maps, vectors and tables.

Nothing is planted into them. Whether a cure would gain something is measured by `gain_of_cures`;
sets where one does are reported apart: they are as they should be, and could still be used better.

    CHIARO_DATA=... CHIARO_MINILM=...whl python benchmarks/healthy.py     # make all of them
"""

from __future__ import annotations

import functools
import gzip
import json
import re
from collections import Counter
from typing import Any

import numpy as np

import bases
from bases import Arrays, captions, data, digits, drawn, gradients, loaded, principal, well
from chiaroscuro.measures import nearest, unit, voted

design = well("design")


def gain_of_cures(a: Arrays) -> float | None:
    """The most that a usual step before comparing rows would gain in accuracy; None without labels.

    Centring, standardising, leaving out up to three first directions, evening the spectrum, unit
    rows, Euclidean distances: each tried on half of the rows and the best one judged on the others.
    """
    if "labels" not in a:
        return None
    x, y = np.asarray(a["h"], dtype=np.float64), np.asarray(a["labels"])
    half = np.random.default_rng(0).random(len(x)) < 0.5
    x = x - 0.0
    middle = x - x.mean(axis=0)
    spread = x.std(axis=0)
    _, s, V = np.linalg.svd(middle, full_matrices=False)
    tried = [
        (middle, "cosine"),
        (middle / np.where(spread > 1e-12, spread, 1), "cosine"),
        *((middle - middle @ V[:k].T @ V[:k], "cosine") for k in (1, 2, 3) if k < len(V)),
        *((middle @ V.T / np.sqrt(s**2 + (f * s[0]) ** 2), "cosine") for f in (0.3, 0.03)),
        (x, "euclidean"),
    ]
    hits = [voted(nearest(z, 20, metric), y) == y for z, metric in ((x, "cosine"), *tried)]
    found = []
    for first, second in ((half, ~half), (~half, half)):
        best = max(range(1, len(hits)), key=lambda k: hits[k][first].mean())
        found.append(hits[best][second].mean() - hits[0][second].mean())
    return float(np.mean(found))


# ---- texts ----


@functools.cache
def _texts() -> tuple[list[str], np.ndarray]:
    first, second, y = captions()
    return [f"{a} {b}" for a, b in zip(first, second, strict=True)], y


def _words(n: int, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.feature_extraction.text import CountVectorizer

    texts, y = _texts()
    X = CountVectorizer(max_features=n, **options).fit_transform(texts).toarray().astype(np.float64)
    keep = np.sort(np.unique(X, axis=0, return_index=True)[1])
    keep = keep[X[keep].any(axis=1)]
    return X[keep], y[keep]


@design
def log_counts() -> Arrays:
    X, y = _words(200)
    return {"h": np.log1p(X), "labels": y}


@design
def tfidf() -> Arrays:
    from sklearn.feature_extraction.text import TfidfTransformer

    X, y = _words(400)
    return {"h": TfidfTransformer().fit_transform(X).toarray(), "labels": y}


@design
def letter_counts() -> Arrays:
    """Counts of pairs of letters."""
    X, y = _words(150, analyzer="char", ngram_range=(2, 2))
    return {"h": X, "labels": y}


@design
def hashed_letters() -> Arrays:
    """Triples of letters hashed into 256 signed dimensions, unit rows."""
    from sklearn.feature_extraction.text import HashingVectorizer

    texts, y = _texts()
    X = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 3), n_features=256)
    return {"h": X.fit_transform(texts).toarray(), "labels": y}


@design
def topics_nmf() -> Arrays:
    from sklearn.decomposition import NMF

    X, y = _words(400)
    h = NMF(20, init="nndsvda", max_iter=200, random_state=0).fit_transform(X)
    keep = np.linalg.norm(h, axis=1) > 1e-9
    return {"h": h[keep], "labels": y[keep]}


@design
def topics_lda() -> Arrays:
    from sklearn.decomposition import LatentDirichletAllocation

    X, y = _words(400)
    h = LatentDirichletAllocation(16, max_iter=10, random_state=0).fit_transform(X)
    return {"h": h, "labels": y}


@functools.cache
def cooccurrence(most: int = 1200, window: int = 3, part: int = 0) -> tuple[list[str], np.ndarray]:
    """Counts of frequent words beside frequent words in a third of the books."""
    with gzip.open(data("books_30mb.txt.gz"), "rt", encoding="utf-8", errors="replace") as file:
        lines = file.readlines()[part * 60_000 : (part + 1) * 60_000]
    every = [re.findall(r"[a-z']+", line.lower()) for line in lines]
    names = [w for w, _ in Counter(w for line in every for w in line).most_common(most)]
    at = {w: k for k, w in enumerate(names)}
    C = np.zeros((most, most))
    for line in every:
        ids = [at[w] for w in line if w in at]
        for apart in range(1, window + 1):
            np.add.at(C, (ids[:-apart], ids[apart:]), 1)
    return names, C + C.T


def pointwise(C: np.ndarray) -> np.ndarray:
    """Positive pointwise mutual information."""
    total, rows = C.sum(), C.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(np.maximum(C * total / (rows * rows.T), 1e-12)), 0)


@design
def words_svd() -> Arrays:
    """Word vectors: principal directions of mutual information, as they come."""
    return {"h": _factors(pointwise(cooccurrence()[1]), 100, 1.0)[300:]}


@design
def words_root() -> Arrays:
    """The same with the roots of singular values, all words, the most frequent ones included."""
    return {"h": _factors(pointwise(cooccurrence()[1]), 50, 0.5)[:900]}


@design
def words_counts() -> Arrays:
    """Roots of counts beside the 200 most frequent words, as shares."""
    C = cooccurrence()[1][200:1100, :200]
    return {"h": np.sqrt(C / C.sum(axis=1, keepdims=True))}


def _factors(M: np.ndarray, k: int, power: float) -> np.ndarray:
    U, s, _ = np.linalg.svd(M)
    return U[:, :k] * s[:k] ** power


@design
def sentences_lsa() -> Arrays:
    """Words of sentences of books, weighted and reduced; no labels."""
    from sklearn.decomposition import TruncatedSVD

    from bases import words_of
    from sentences import sentences

    h = TruncatedSVD(100, random_state=0).fit_transform(words_of(sentences(900)))
    keep = np.sort(np.unique(np.round(h, 9), axis=0, return_index=True)[1])
    return {"h": h[keep[np.linalg.norm(h[keep], axis=1) > 1e-6]]}


@design
def minilm_principal() -> Arrays:
    """A sentence encoder reduced to 32 principal directions."""
    a = loaded("minilm_captions")
    return {"h": principal(a["h"], 32), "labels": a["labels"]}


@design
def minilm_projected() -> Arrays:
    """A sentence encoder under a random projection to 64 dimensions."""
    a = loaded("minilm_captions")
    W = np.random.default_rng(1).normal(size=(a["h"].shape[1], 64)) / 8
    return {"h": a["h"] @ W, "labels": a["labels"]}


@design
def minilm_signs() -> Arrays:
    a = loaded("minilm_captions")
    return {"h": np.sign(a["h"]), "labels": a["labels"]}


@design
def minilm_first() -> Arrays:
    """The first 64 dimensions of a sentence encoder."""
    a = loaded("minilm_captions")
    return {"h": a["h"][:, :64], "labels": a["labels"]}


# ---- pictures ----


def _cifar(name: str = "cifar10_12k", rows: int = 900, seed: int = 11) -> tuple[Any, Any]:
    found = np.load(data(f"{name}.npz"))
    some = drawn(len(found["train_images"]), seed, rows)
    return found["train_images"][some].astype(np.float64) / 255, found["train_labels"][some].astype(
        np.int64
    )


def _small(x: np.ndarray, side: int) -> np.ndarray:
    step = x.shape[1] // side
    x = x[:, : side * step, : side * step]
    shape = (len(x), side, step, side, step, *x.shape[3:])
    return x.reshape(shape).mean(axis=(2, 4)).reshape(len(x), -1)


@design
def cifar_pixels() -> Arrays:
    x, y = _cifar()
    return {"h": _small(x, 8), "labels": y}


@design
def cifar_gradients_ten() -> Arrays:
    x, y = _cifar(seed=12)
    return {"h": gradients(x * 255, bins=6), "labels": y}


@design
def cifar_principal() -> Arrays:
    x, y = _cifar(seed=13)
    return {"h": principal(_small(x, 16), 48), "labels": y}


@design
def cifar_whitened() -> Arrays:
    x, y = _cifar(seed=14)
    h = principal(_small(x, 16), 48)
    return {"h": h / h.std(axis=0), "labels": y}


@design
def cifar_colours() -> Arrays:
    """Histograms of colours: shares."""
    x, y = _cifar(seed=15)
    bins = (np.minimum(x * 4, 3.999).astype(int) * [16, 4, 1]).sum(axis=3).reshape(len(x), -1)
    h = np.stack([np.bincount(row, minlength=64) for row in bins])
    return {"h": h / h.sum(axis=1, keepdims=True), "labels": y}


@design
def cifar_patches() -> Arrays:
    """Random filters, relu, means over quarters of the picture."""
    x, y = _cifar(seed=16)
    return {"h": filtered(x, 40, 0), "labels": y}


def filtered(x: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Relu of n random filters of 5 x 5, averaged over quarters: an untrained network."""
    import torch
    import torch.nn.functional as F

    x = x[..., None] if x.ndim == 3 else x
    draw = torch.Generator().manual_seed(seed)
    W = torch.randn(n, x.shape[3], 5, 5, generator=draw)
    W = W - W.mean(dim=(1, 2, 3), keepdim=True)
    found = F.relu(F.conv2d(torch.from_numpy(x).permute(0, 3, 1, 2).float(), W))
    return F.adaptive_avg_pool2d(found, 2).flatten(1).double().numpy()


@design
def omniglot_pixels() -> Arrays:
    """Pixels of handwritten characters, many classes with few rows."""
    x, y = bases._pictures(np.load(data("omniglot_small.npz")))
    kept = np.flatnonzero(np.isin(y, np.unique(y)[100:160]))[:900]
    h = _small(x[kept].astype(np.float64), 15)
    return {"h": h, "labels": np.unique(y[kept], return_inverse=True)[1]}


@design
def emoji_pixels() -> Arrays:
    """Pixels of two vendors' drawings, as pairs."""
    with gzip.open(data("emoji_captions.jsonl.gz"), "rt", encoding="utf-8") as file:
        plain = [not json.loads(line)["is_skin_variant"] for line in file]
    rows = np.flatnonzero(plain)
    rows = rows[drawn(len(rows), 17)]
    found = np.load(data("emoji.npz"))
    sides = [_small(found[k][rows] / 255, 8) for k in ("images", "images_twitter")]
    return {"h1": sides[0], "h2": sides[1], "h": sides[0]}


@design
def captions_and_drawings() -> Arrays:
    """Captions and drawings in the space of their canonical correlations, on rows held out."""
    from sklearn.cross_decomposition import CCA

    from sentences import embed

    with gzip.open(data("emoji_captions.jsonl.gz"), "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    rows = np.flatnonzero([not one["is_skin_variant"] for one in lines])
    found = np.load(data("emoji.npz"))["images"][rows] / 255
    x = principal(np.c_[_small(found, 8), gradients(found)], 60)
    t = principal(embed([lines[i]["captions"][0] for i in rows]).astype(np.float64), 60)
    half = np.arange(len(rows)) % 2 == 0
    h1, h2 = CCA(12, max_iter=300).fit(x[half], t[half]).transform(x[~half], t[~half])
    return {"h1": h1[:900], "h2": h2[:900], "h": h1[:900]}


# ---- digits ----


@design
def digits_centred() -> Arrays:
    x, y = digits()
    return {"h": (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1), "labels": y}


@design
def digits_projected() -> Arrays:
    x, y = digits()
    return {"h": x @ np.random.default_rng(2).normal(size=(64, 48)), "labels": y}


@design
def digits_fourier() -> Arrays:
    """Random Fourier features of a Gaussian kernel."""
    from sklearn.kernel_approximation import RBFSampler

    x, y = digits()
    return {
        "h": RBFSampler(gamma=0.7 / 8, n_components=128, random_state=0).fit_transform(x / 8),
        "labels": y,
    }


@design
def digits_nystroem() -> Arrays:
    from sklearn.kernel_approximation import Nystroem

    x, y = digits()
    h = Nystroem(gamma=0.02, n_components=60, random_state=0).fit_transform(x / 4)
    return {"h": h, "labels": y}


@design
def digits_discriminants() -> Arrays:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    x, y = digits()
    return {
        "h": LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1).fit(x, y).transform(x),
        "labels": y,
    }


@design
def digits_spectral() -> Arrays:
    """Eight coordinates of a graph of neighbours."""
    from sklearn.manifold import SpectralEmbedding

    x, y = digits()
    return {"h": SpectralEmbedding(8, random_state=0, n_neighbors=15).fit_transform(x), "labels": y}


@design
def digits_isomap() -> Arrays:
    """A map in two dimensions."""
    from sklearn.manifold import Isomap

    x, y = digits()
    return {"h": Isomap(n_neighbors=10, n_components=2).fit_transform(x), "labels": y}


@design
def digits_autoencoder() -> Arrays:
    """The bottleneck of an autoencoder."""
    from sklearn.neural_network import MLPRegressor

    x, y = digits()
    net = MLPRegressor(hidden_layer_sizes=(64, 16, 64), max_iter=80, random_state=0).fit(
        x / 16, x / 16
    )
    h = x / 16
    for W, b in zip(net.coefs_[:2], net.intercepts_[:2], strict=True):
        h = np.maximum(h @ W + b, 0) if W is not net.coefs_[1] else h @ W + b
    return {"h": h, "labels": y}


@design
def digits_logits() -> Arrays:
    from sklearn.linear_model import LogisticRegression

    x, y = digits()
    half = np.arange(len(x)) % 2 == 0
    return {
        "h": LogisticRegression(max_iter=300, C=0.01).fit(x[half], y[half]).decision_function(x),
        "labels": y,
    }


@design
def digits_parts() -> Arrays:
    """Product codes: the nearest of 16 centres in each of 8 parts, as numbers."""
    from sklearn.cluster import KMeans

    x, y = digits()
    parts = [x[:, k : k + 8] for k in range(0, 64, 8)]
    fits = [KMeans(16, n_init=1, random_state=0).fit(part) for part in parts]
    h = np.concatenate([f.cluster_centers_[f.labels_] for f in fits], axis=1)
    return {"h": h, "labels": y}


@design
def digits_four_bits() -> Arrays:
    a = loaded("digits_pca")
    h = a["h"] / np.abs(a["h"]).max(axis=0)
    return {"h": np.round(7 * h), "labels": a["labels"]}


@design
def digits_mostly_one() -> Arrays:
    """Two thirds of the rows are of one class."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    keep = np.r_[np.flatnonzero(y == 3), np.flatnonzero(y != 3)[:90]]
    return {"h": principal(x[keep], 24), "labels": y[keep]}


@design
def digits_sorted() -> Arrays:
    a = loaded("digits_pca")
    order = np.argsort(a["labels"], kind="stable")
    return {"h": a["h"][order], "labels": a["labels"][order]}


def _loop(part: str = "h", seed: int = 5, **change: Any) -> Arrays:
    from cured import Loop, trained

    found = trained(Loop(**change), seed).arrays
    names = {"h": found[part], "h1": found[f"{part}1"], "h2": found[f"{part}2"]}
    return {**names, "labels": found["labels"]}


@design
def loop_early() -> Arrays:
    return _loop(kind="arrays", epochs=8)


@design
def loop_late() -> Arrays:
    return _loop(kind="arrays", epochs=60)


@design
def loop_projected() -> Arrays:
    """What the objective sees."""
    return _loop("z", kind="arrays")


@design
def loop_pictures() -> Arrays:
    return _loop(kind="pictures", epochs=16)


@design
def loop_series_projected() -> Arrays:
    return _loop("z", kind="series", tau=0.5)


# ---- series and tables ----


def _waves() -> tuple[np.ndarray, np.ndarray]:
    from cured import data as samples

    x, y = samples("series")
    return x[:, 0].double().numpy(), y


@design
def waves_spectrum() -> Arrays:
    x, y = _waves()
    return {"h": np.abs(np.fft.rfft(x, axis=1))[:, 1:], "labels": y}


@design
def waves_log_spectrum() -> Arrays:
    x, y = _waves()
    return {"h": np.log1p(np.abs(np.fft.rfft(x, axis=1))[:, 1:] ** 2), "labels": y}


@design
def waves_statistics() -> Arrays:
    """Mean, deviation, skewness, ...: a table in units of their own."""
    x, y = _waves()
    z = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    step = np.diff(x, axis=1)
    lags = [(z[:, :-k] * z[:, k:]).mean(axis=1) for k in (1, 2, 3, 6, 12)]
    found = [x.mean(axis=1), x.std(axis=1), (z**3).mean(axis=1), (z**4).mean(axis=1)]
    found += [x.max(axis=1), x.min(axis=1), np.abs(step).mean(axis=1), *lags]
    return {"h": np.stack(found, axis=1), "labels": y}


@design
def cancer_raw() -> Arrays:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return {"h": x, "labels": y.astype(np.int64)}


@design
def iris_standardised() -> Arrays:
    a = loaded("iris")
    return {"h": (a["h"] - a["h"].mean(axis=0)) / a["h"].std(axis=0), "labels": a["labels"]}


@design
def wine_standardised() -> Arrays:
    a = loaded("wine")
    return {"h": (a["h"] - a["h"].mean(axis=0)) / a["h"].std(axis=0), "labels": a["labels"]}


@design
def diabetes_quarters() -> Arrays:
    """Ten measurements; the classes are quarters of an ordered outcome."""
    from sklearn.datasets import load_diabetes

    x, t = load_diabetes(return_X_y=True)
    return {"h": x, "labels": np.digitize(t, np.quantile(t, [0.25, 0.5, 0.75]))}


@design
def linear_outcome() -> Arrays:
    """Twelve measurements of which two decide an ordered outcome of five classes."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(700, 12))
    t = 2 * x[:, 0] + x[:, 1] + 0.5 * draw.normal(size=700)
    return {"h": x, "labels": np.digitize(t, np.quantile(t, [0.2, 0.4, 0.6, 0.8]))}


# ---- drawn ----


@design
def even_sphere() -> Arrays:
    """Points evenly on a sphere, no labels."""
    return {"h": unit(np.random.default_rng(4).normal(size=(900, 32)))}


@design
def mixture() -> Arrays:
    draw = np.random.default_rng(5)
    y = draw.integers(0, 5, 800)
    return {"h": 1.2 * draw.normal(size=(5, 24))[y] + draw.normal(size=(800, 24)), "labels": y}


@design
def heavy_tails() -> Arrays:
    draw = np.random.default_rng(6)
    y = draw.integers(0, 6, 800)
    return {"h": 2 * draw.normal(size=(6, 20))[y] + draw.standard_t(3, size=(800, 20)), "labels": y}


@design
def log_normal() -> Arrays:
    """Positive features with long tails, as of expression of genes."""
    draw = np.random.default_rng(7)
    y = draw.integers(0, 4, 700)
    return {
        "h": np.exp(0.8 * draw.normal(size=(4, 60))[y] + 0.7 * draw.normal(size=(700, 60))),
        "labels": y,
    }


@design
def nested_classes() -> Arrays:
    """Forty classes in eight families."""
    draw = np.random.default_rng(8)
    y = np.arange(880) % 40
    means = 2 * draw.normal(size=(8, 40))[np.arange(40) // 5] + draw.normal(size=(40, 40))
    return {"h": means[y] + 1.1 * draw.normal(size=(880, 40)), "labels": y}


if __name__ == "__main__":
    for name, (part, _) in {**bases.BASES, **bases.WELL}.items():
        if part == "design":
            made = loaded(name)
            gain = gain_of_cures(made)
            print(name, {k: v.shape for k, v in made.items()}, gain, flush=True)

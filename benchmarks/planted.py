"""Ills as functions of their strength, planted into the bases of `bases.py`: cases of `advice.py`.

`ILLS[name]` says what a diagnosis is given, which findings name it, how its harm is measured, its
strengths from harmless to harmful, and how it is planted. Each has six constructions, by other
mechanisms. Five are of the design part: three of them were judged on once. The last three, numbers
3 to 5, were written by someone who had not read the rules; 5 is of the judged part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bases import Arrays
from chiaroscuro.measures import nearest, unit, voted

Draw = np.random.Generator
Plant = Callable[[Arrays, float, Draw, int], Arrays]


@dataclass(frozen=True)
class Ill:
    """An ill.

    Args:
        needs: "labels", "pairs", "split" or "h": what a base must have; labels are shown to the
            diagnosis unless it is "h".
        names: findings that name it.
        harm: "knn", "euclidean", "recall", "recall_euclidean" (lost), "flattery" (won without
            right), "labels" (the share that is wrong, times what is left to lose).
        strengths: from harmless to harmful.
        plant: (arrays, strength, draw, construction) to arrays.
    """

    needs: str
    names: tuple[str, ...]
    harm: str
    strengths: tuple[float, ...]
    plant: Plant


ILLS: dict[str, Ill] = {}


def ill(
    needs: str, names: str, harm: str, strengths: tuple[float, ...]
) -> Callable[[Plant], Plant]:
    """Note an ill under the name of its function."""

    def note(plant: Plant) -> Plant:
        ILLS[plant.__name__] = Ill(needs, tuple(names.split()), harm, strengths, plant)
        return plant

    return note


def _size(h: np.ndarray) -> float:
    return float(np.sqrt(((h - h.mean(axis=0)) ** 2).sum(axis=1).mean()))


def _some(n: int, share: float, draw: Draw) -> np.ndarray:
    return draw.permutation(n)[: round(share * n)]


def _with(a: Arrays, **changed: Any) -> Arrays:
    return {**a, **changed}


def _direction(d: int, draw: Draw, v: int) -> np.ndarray:
    u = draw.normal(size=d) if v == 0 else np.ones(d)
    if v == 2:  # a few dimensions only
        u = np.where(np.arange(d) < max(1, d // 8), draw.normal(size=d), 0.0)
    return u / np.linalg.norm(u)


# ---- offsets, collapse, spectra ----


@ill("labels", "common_offset full_collapse", "knn", (0.5, 2.0, 5.0, 15.0, 50.0))
def offset(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h = a["h"]
    if v == 5:  # every text begins with the same instruction, whose vector all rows contain
        prompt = h[draw.choice(len(h), 3, replace=False)].mean(axis=0)
        prompt = prompt - h.mean(axis=0) + h.std(axis=0) * draw.normal(size=h.shape[1])
        return _with(a, h=h + s * _size(h) * prompt / np.linalg.norm(prompt))
    if v == 4:  # units with heavy biases, of samples of another brightness each
        bias = np.abs(draw.standard_t(3, size=h.shape[1]))
        bright = np.exp(0.6 * draw.normal(size=(len(h), 1)))
        return _with(a, h=bright * h + s * _size(h) * bias / np.linalg.norm(bias))
    if v == 3:  # the mean over tokens counts padding, whose vector is large in a few dimensions
        pad = draw.normal(size=h.shape[1]) * np.exp(draw.normal(size=h.shape[1]))
        return _with(a, h=(h + s * _size(h) * pad / np.linalg.norm(pad)) / (1 + s))
    return _with(a, h=h + s * _size(h) * _direction(h.shape[1], draw, v))


@ill("h", "common_offset full_collapse", "knn", (0.5, 3.0, 6.0, 20.0))
def offset_unlabelled(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    return offset(a, s, draw, v)


@ill("labels", "full_collapse common_offset", "knn", (0.5, 0.9, 0.97, 0.995))
def cone(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    """Rows shrink towards one point of a narrow cone, and fine noise does not."""
    h = a["h"] - a["h"].mean(axis=0)
    noise = 0.03 * _size(h) / np.sqrt(h.shape[1]) * draw.normal(size=h.shape)
    if v == 5:  # over-smoothed: layers of averages leave a row's own part, and chance, of a mean
        others = h[draw.integers(len(h), size=(len(h), 400))].mean(axis=1)
        middle = 2.5 * _size(h) * unit(a["h"].mean(axis=0)[None] + h.std() * noise[:1])
        return _with(a, h=middle + (1 - s) * h + s * others)
    if v == 4:  # a softmax whose temperature is too high
        x = np.exp(((1 - s) * h + noise) * np.sqrt(h.shape[1]) / _size(h))
        return _with(a, h=x / x.sum(axis=1, keepdims=True))
    if v == 3:  # sigmoid units that hardly leave one half
        x = ((1 - s) * h + noise) * np.sqrt(h.shape[1]) / _size(h)
        return _with(a, h=1 / (1 + np.exp(-x)))
    to = (2.0, 3.0, 5.0)[v] * _size(h) * _direction(h.shape[1], draw, 0)
    return _with(a, h=to + (1 - s) * h + noise)


@ill("labels", "point_collapse dimensional_collapse", "knn", (0.5, 0.8, 0.95, 0.99))
def few_points(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h = a["h"]
    if v == 5:  # rows are drawn to the prototypes that they are assigned to, softly: of four
        to = h[draw.choice(len(h), 4, replace=False)]
        for _ in range(3):
            far = ((h[:, None] - to) ** 2).sum(axis=2)
            near = np.exp(-8 * (far - far.min(axis=1, keepdims=True)) / _size(h) ** 2)
            near /= near.sum(axis=1, keepdims=True)
            to = near.T @ h / near.sum(axis=0)[:, None]
        noise = 0.04 * _size(h) / np.sqrt(h.shape[1]) * draw.normal(size=h.shape)
        return _with(a, h=s * near @ to + (1 - s) * h + noise)
    if v == 4:  # rows take the mean of their batch, of six
        batch = draw.integers(6, size=len(h))
        at = np.stack([h[batch == j].mean(axis=0) for j in range(6)])[batch]
        noise = 0.05 * _size(at) / np.sqrt(h.shape[1]) * draw.normal(size=h.shape)
        return _with(a, h=at + (1 - s) * (h - at) + noise)
    k = (4, 6, 3, 5)[v]
    to = h[draw.choice(len(h), k, replace=False)]
    if v == 2:  # points that are no rows
        to = h.mean(axis=0) + 0.5 * _size(h) * unit(draw.normal(size=to.shape))
    far = ((h[:, None] - to) ** 2).sum(axis=2)
    if v == 3:  # a codebook: one code takes half of the rows, and codes are means of theirs
        far[:, 0] -= np.median(far[:, 0] - far[:, 1:].min(axis=1))
        for j in np.unique(far.argmin(axis=1)):
            to[j] = h[far.argmin(axis=1) == j].mean(axis=0)
    at = to[far.argmin(axis=1)]
    noise = 0.05 * _size(h) / np.sqrt(h.shape[1]) * draw.normal(size=h.shape)
    return _with(a, h=at + (1 - s) * (h - at) + noise)


@ill("labels", "class_collapse", "knn", (0.2, 0.8, 0.97))
def one_class(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h, y = a["h"].copy(), a["labels"]
    own = y == np.bincount(y).argmax()
    if v == 5:  # half of the classes, alike, had one coarse label in the training
        means = np.stack([h[y == k].mean(axis=0) for k in np.unique(y)])
        first = means[np.searchsorted(np.unique(y), y[own][0])]
        alike = ((means - first) ** 2).sum(axis=1).argsort()[: (len(means) + 1) // 2]
        own = np.isin(y, np.unique(y)[alike])
        to = h[own].mean(axis=0) if len(alike) > 1 else h.mean(axis=0)
        noise = 0.05 * _size(h) / np.sqrt(h.shape[1]) * draw.normal(size=h.shape)
        h[own] = (to + (1 - s) * (h - to) + noise)[own]
        return _with(a, h=h)
    if v == 4:  # the two largest classes are out of vocabulary and get the vector of the unknown
        own = np.isin(y, np.bincount(y).argsort()[-2:])
        unknown = h.mean(axis=0) + 0.3 * _size(h) * _direction(h.shape[1], draw, 0)
        noise = 0.05 * _size(h) / np.sqrt(h.shape[1]) * draw.normal(size=h.shape)
        h[own] = (unknown + (1 - s) * (h - unknown) + noise)[own]
        return _with(a, h=h)
    to = h.mean(axis=0) if v == 0 else h[draw.integers(len(h))]
    if v == 2:  # the mean of another class
        to = h[y == np.bincount(y).argsort()[-2]].mean(axis=0)
    if v == 3:  # three classes become one point between them, their means first
        three = np.bincount(y).argsort()[-3:]
        own = np.isin(y, three)
        to = h[own].mean(axis=0)
        for k in three:
            h[y == k] += s * (to - h[y == k].mean(axis=0))
    noise = (0.02, 0.02, 0.02, 0.1)[v] * _size(h) / np.sqrt(h.shape[1]) * draw.normal(size=h.shape)
    h[own] = (to + (1 - s) * (h - to) + noise)[own]
    return _with(a, h=h)


@ill("labels", "dimensional_collapse dominating_direction", "knn", (0.3, 1.0, 2.0, 3.0))
def decay(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    """Singular values fall by a further power of their number, over a floor of noise."""
    h = a["h"] - a["h"].mean(axis=0)
    if v == 5:  # a layer whose weight has singular values that fall by a power, whatever comes in
        d = h.shape[1]
        first, last = (np.linalg.qr(draw.normal(size=(d, d)))[0] for _ in range(2))
        out = h @ first * np.arange(1, d + 1) ** -s @ last
        return _with(a, h=out + 2e-3 * _size(out) * draw.normal(size=out.shape))
    U, w, V = np.linalg.svd(h, full_matrices=False)
    if v == 3:  # deep linear layers, which grow along what is large
        w = w * (w / w[0]) ** (1.5 * s)
    elif v == 4:  # a smooth filter that lets the first four pass
        w = w / (1 + (np.arange(len(w)) / 4) ** (2 * s))
    else:
        k = np.arange(len(w))
        w = w * (k + 1.0) ** -s if v < 2 else w * np.exp(-s * k / 6)
    Q = np.eye(V.shape[1]) if v == 0 else np.linalg.qr(draw.normal(size=(V.shape[1],) * 2))[0]
    out = (U * w) @ V @ Q
    return _with(a, h=out + 1e-3 * _size(out) * draw.normal(size=out.shape))


@ill("labels", "dominating_direction", "knn", (0.3, 1.0, 3.0, 10.0))
def dominating(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h = a["h"]
    if v == 5:  # a daily cycle of the instrument, in all dimensions as they vary
        cycle = np.sqrt(2) * np.sin(2 * np.pi * draw.random((len(h), 1)))
        u = h.std(axis=0) * draw.choice([-1, 1], h.shape[1])
        return _with(a, h=h + s * _size(h) * cycle * u / np.linalg.norm(u))
    if v == 4:  # the length of a text, which is skewed, shows in some dimensions
        length = np.exp(0.8 * draw.normal(size=(len(h), 1)))
        few = _direction(h.shape[1], draw, 2)[draw.permutation(h.shape[1])]
        return _with(a, h=h + s * _size(h) * (length - length.mean()) / length.std() * few)
    if v == 3:  # a column in another unit
        spread = h.std(axis=0)
        j = draw.choice(np.flatnonzero(spread >= np.median(spread)))
        h = h.copy()
        h[:, j] += s * _size(h) / spread[j] * (h[:, j] - h[:, j].mean())
        return _with(a, h=h)
    u = _direction(h.shape[1], draw, 0)
    if v == 1:
        u = np.eye(h.shape[1])[draw.integers(h.shape[1])]
    along = draw.normal(size=(len(h), 1)) if v < 2 else 1.7 * (2 * draw.random((len(h), 1)) - 1)
    return _with(a, h=h + s * _size(h) * along * u)


@ill("labels", "dimensional_collapse", "knn", (0.8, 0.4, 0.15, 0.06))
def few_directions(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    """Only so large a share of the directions is left, random ones or the first."""
    h = a["h"]
    d = h.shape[1]
    k = max(2, round(s * d))
    if v == 5:  # a layer that is stored as a product of two thin ones
        thin = draw.normal(size=(d, k)) @ draw.normal(size=(k, d)) / np.sqrt(d * k)
        left = (h - h.mean(axis=0)) @ thin
        return _with(a, h=left + 1e-4 * _size(left) / np.sqrt(d) * draw.normal(size=h.shape))
    if v == 4:  # dimensions are pooled into a few and interpolated again
        few = np.stack([part.mean(axis=1) for part in np.array_split(h, k, axis=1)], axis=1)
        at = np.linspace(0, k - 1, d)
        low = np.minimum(at.astype(int), k - 2)
        left = few[:, low] * (1 - at + low) + few[:, low + 1] * (at - low)
        return _with(a, h=left + 1e-4 * _size(left) / np.sqrt(d) * draw.normal(size=h.shape))
    if v == 3:  # a penalty takes the same off all singular values
        U, w, V = np.linalg.svd(h - h.mean(axis=0), full_matrices=False)
        left = (U * np.maximum(w - w[min(k, len(w) - 1)], 0)) @ V
        return _with(a, h=left + 1e-4 * _size(left) / np.sqrt(d) * draw.normal(size=h.shape))
    Q = np.linalg.qr(draw.normal(size=(d, d)))[0]
    left = h @ Q[:, :k] @ (Q[:, :k].T if v == 0 else Q[:, -k:].T)
    if v == 2:  # a bottleneck: rectified, and spread out again by a linear map
        left = np.maximum((h - h.mean(axis=0)) @ Q[:, :k], 0) @ draw.normal(size=(k, d))
    return _with(a, h=left + 1e-4 * _size(left) / np.sqrt(d) * draw.normal(size=h.shape))


@ill("labels", "dead_dimensions uneven_dimensions", "knn", (0.1, 0.4, 0.7, 0.9))
def nearly_dead(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h = a["h"].copy()
    some = _some(h.shape[1], s, draw)
    if v == 5:  # gates of some units are nearly shut
        gate = -5 + 0.4 * draw.normal(size=(len(h), len(some)))
        h[:, some] /= 1 + np.exp(-gate)
        return _with(a, h=h)
    if v == 4:  # weights decayed, for some units longer than for others
        h[:, some] *= 10 ** -draw.uniform(1.5, 4, size=len(some))
        return _with(a, h=h)
    if v == 3:  # rectified units that fire for one row in fifty
        h[:, some] = np.maximum(h[:, some] - np.quantile(h[:, some], 0.98, axis=0), 0)
        return _with(a, h=h)
    h[:, some] *= (0.02, 0.004, 0.01)[v] * (
        np.exp(0.5 * draw.normal(size=len(some))) if v == 2 else 1
    )
    return _with(a, h=h)


@ill("labels", "repeated_dimensions dominating_direction", "knn", (2.0, 8.0, 30.0, 100.0))
def repeated(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    """One dimension, or mixtures of two, so many times over."""
    h = a["h"]
    if v == 5:  # a measurement that was exported again in other units
        j = int(draw.integers(h.shape[1]))
        own = h.std(axis=0).max() * (h[:, j] - h[:, j].mean()) / (h[:, j].std() + 1e-12)
        return _with(a, h=np.c_[h, own[:, None] * np.exp(0.4 * draw.normal(size=int(s)))])
    if v == 4:  # one pooled feature in all channels of a layer, with gains and noise of theirs
        pooled = h @ _direction(h.shape[1], draw, 0)[:, None]
        pooled = h.std(axis=0).max() * (pooled - pooled.mean()) / pooled.std()
        channels = pooled * draw.uniform(0.5, 1.5, size=int(s))
        return _with(a, h=np.c_[h, channels + 0.03 * h.std() * draw.normal(size=channels.shape)])
    if v == 3:  # a number beside the sample, as its length, broadcast over channels by a layer
        beside = h.std() * draw.gamma(4.0, 0.5, size=(len(h), 1))
        return _with(a, h=np.c_[(beside - beside.mean()) * draw.normal(size=int(s)), h])
    own = h[:, draw.choice(h.shape[1], 2, replace=False)]
    mixed = own @ draw.normal(size=(2, int(s))) if v == 1 else np.repeat(own[:, :1], int(s), axis=1)
    if v == 2:  # with either sign and a little noise
        mixed = mixed * draw.choice([-1, 1], int(s)) + 0.02 * own.std() * draw.normal(
            size=mixed.shape
        )
    return _with(a, h=np.concatenate([h, mixed], axis=1))


@ill("labels", "coarse_quantisation", "knn", (64.0, 8.0, 3.0, 2.0))
def quantised(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    """So many levels between the extremes."""
    h = a["h"]
    if v == 5:  # one scale for all, two and a half deviations, values in the middles of the cells
        reach = 2.5 * np.sqrt((h**2).mean())
        cell = np.clip(np.floor((h / reach + 1) / 2 * int(s)), 0, int(s) - 1)
        return _with(a, h=reach * (2 * (cell + 0.5) / int(s) - 1))
    if v == 4:  # a codebook of entries: levels that are equally frequent
        levels = np.quantile(h, (np.arange(int(s)) + 0.5) / int(s))
        at = np.searchsorted((levels[1:] + levels[:-1]) / 2, h)
        return _with(a, h=levels[at])
    low, high = (h.min(), h.max()) if v == 0 else np.quantile(h, [0.001, 0.999])
    step = (high - low) / (s - 1)
    if v == 2:  # each dimension between its own extremes
        low, high = h.min(axis=0), h.max(axis=0)
        step = np.maximum(high - low, 1e-12) / (s - 1)
    if v == 3:  # each row between its own extremes, as with a scale kept for each row
        low, high = h.min(axis=1, keepdims=True), h.max(axis=1, keepdims=True)
        step = np.maximum(high - low, 1e-12) / (s - 1)
    return _with(a, h=low + step * np.round((np.clip(h, low, high) - low) / step))


@ill("labels", "hubs common_offset shrunk_rows", "knn", (0.005, 0.02, 0.06))
def shrunk(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    """Some rows shrink towards a common offset, and are everyone's neighbours."""
    h = a["h"] - a["h"].mean(axis=0)
    some = _some(len(h), s, draw)
    if v == 5:  # samples of which nearly all is masked
        h[some] *= draw.random(size=(len(some), h.shape[1])) < 0.04
        return _with(a, h=h + 0.9 * _size(h) * _direction(h.shape[1], draw, 0))
    if v == 3:  # long texts: means of many samples
        h[some] = h[draw.integers(len(h), size=(len(some), 60))].mean(axis=1)
    elif v == 4:  # samples that are hardly there, as pictures that are nearly empty
        h[some] *= draw.uniform(0, 0.25, size=(len(some), 1))
    else:
        h[some] *= (0.05, 0.15, 0.1)[v]
    return _with(a, h=h + (1.0, 0.7, 0.5, 0.8, 0.6)[v] * _size(h) * _direction(h.shape[1], draw, 0))


# ---- rows ----


@ill("labels", "zero_rows", "knn", (0.002, 0.03, 0.1, 0.3))
def zeros(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h = a["h"].copy()
    if v == 5:  # one part of the file did not arrive, and its place was filled
        length = max(1, round(s * len(h)))
        first = int(draw.integers(len(h) - length + 1))
        h[first : first + length] = 0
        return _with(a, h=h)
    if v == 4:  # batches of eight failed, here and there
        batches = draw.permutation(-(-len(h) // 8))[: max(1, round(s * len(h) / 8))]
        h[np.isin(np.arange(len(h)) // 8, batches)] = 0
        return _with(a, h=h)
    if v == 3:  # one worker of several wrote nothing
        workers = max(2, round(1 / s))
        h[draw.integers(min(workers, len(h))) :: workers] = 0
        return _with(a, h=h)
    h[np.arange(round(s * len(h))) if v == 1 else _some(len(h), s, draw)] = 0
    return _with(a, h=h)


@ill("labels", "outlier_rows", "knn", (0.005, 0.03, 0.1, 0.3))
def outliers(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h = a["h"].copy()
    some = _some(len(h), s, draw)
    other = draw.normal(size=(len(some), h.shape[1]))
    if v == 5:  # inputs that were not scaled, read in another layout
        h[some] = 12 * draw.permuted(h[some], axis=1) * np.exp(0.3 * other[:, :1])
        return _with(a, h=h)
    length = np.median(np.linalg.norm(h, axis=1))
    if v == 4:  # what diverged: in three directions, of lengths of several orders
        three = other[:, :3] @ draw.normal(size=(3, h.shape[1]))
        h[some] = length * np.exp(draw.uniform(1.5, 3.5, size=(len(some), 1))) * unit(three)
        return _with(a, h=h)
    h[some] = 10 * length * unit(other if v == 0 else other + 8 * other[:1])
    if v == 2:  # overflow: one dimension of the row
        h[some] = a["h"][some]
        h[some, draw.integers(h.shape[1], size=len(some))] += 10 * length
    if v == 3:  # sums over a batch of a hundred instead of one sample
        h[some] = a["h"][draw.integers(len(h), size=(len(some), 100))].sum(axis=1)
    return _with(a, h=h)


@ill("labels", "mixed_normalisation mixed_scales", "euclidean", (0.02, 0.1, 0.5))
def half_normalised(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    if v == 5:  # since some row on, rows are stored with length one
        h = a["h"] * 4 / np.median(np.linalg.norm(a["h"], axis=1))
        last = np.arange(len(h)) >= (1 - s) * len(h)
        h[last] = unit(h[last])
        return _with(a, h=h)
    if v == 4:  # some rows are divided by their largest entry
        h = a["h"] * 60 / np.median(np.linalg.norm(a["h"], axis=1))
        some = _some(len(h), s, draw)
        h[some] /= np.abs(h[some]).max(axis=1, keepdims=True) + 1e-12
        return _with(a, h=h)
    if v == 3:  # a shard of the file passed a layer norm, the rest did not
        h = a["h"] * 0.15 * np.sqrt(a["h"].shape[1]) / np.median(np.linalg.norm(a["h"], axis=1))
        shard = draw.integers(len(h)) + np.arange(round(s * len(h)))
        own = h[shard % len(h)]
        own = own - own.mean(axis=1, keepdims=True)
        h[shard % len(h)] = own / own.std(axis=1, keepdims=True)
        return _with(a, h=h)
    h = a["h"] * (7, 0.1, 20)[v] / np.median(np.linalg.norm(a["h"], axis=1))
    some = _some(len(h), s, draw)
    spread = np.exp((0.2, 0.2, 0.4)[v] * draw.normal(size=(len(h), 1)))
    h = h * spread
    h[some] = unit(h[some])
    return _with(a, h=h)


@ill("labels", "mixed_scales mixed_normalisation", "euclidean", (1.2, 2.0, 5.0, 50.0))
def two_scales(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h = a["h"].copy()
    if v == 5:  # rows of two microphones in turn, of which one adapts its gain, about another unit
        h[1::2] /= s ** (1 + 0.25 * draw.normal(size=(len(h) // 2, 1)))
        return _with(a, h=h)
    if v == 4:  # rows of a second file, which come last, are in another unit, nearly
        last = np.arange(len(h)) >= 0.6 * len(h)
        h[last] *= s * np.exp(0.1 * draw.normal(size=(int(last.sum()), 1)))
        return _with(a, h=h)
    if v == 3:  # three sources with gains of their own
        return _with(a, h=h * s ** draw.integers(-1, 2, size=(len(h), 1)))
    h[_some(len(h), (0.5, 0.3, 0.15)[v], draw)] *= s if v < 2 else 1 / s
    return _with(a, h=h)


@ill("labels", "mixed_encoders", "knn", (0.05, 0.2, 0.5))
def two_encoders(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h = a["h"].copy()
    some = _some(len(h), s, draw)
    Q = np.linalg.qr(draw.normal(size=(h.shape[1],) * 2))[0]
    if v == 5:  # the model was replaced by another one while the index was written
        x = (h - h.mean(axis=0)) @ Q * np.sqrt(h.shape[1]) / _size(h)
        own = x / (1 + np.exp(-1.7 * x)) @ draw.normal(size=(h.shape[1],) * 2)
        own = (own - own.mean(axis=0)) * _size(h) / _size(own)
        last = np.arange(len(h)) >= (1 - s) * len(h)
        h[last] = (h.mean(axis=0) + own)[last]
        return _with(a, h=h)
    if v == 4:  # the layer after, a rectified one as wide, with rows of the same mean and size
        own = np.maximum((h - h.mean(axis=0)) @ Q, 0)
        own = (own - own.mean(axis=0)) * _size(h) / _size(own)
        h[some] = (h.mean(axis=0) + own)[some]
        return _with(a, h=h)
    if v == 3:  # another network on the same samples, with rows of the same mean and size
        own = np.tanh(2 * (h - h.mean(axis=0)) @ Q * np.sqrt(h.shape[1]) / _size(h))
        h[some] = h.mean(axis=0) + (own * _size(h) / _size(own))[some]
        return _with(a, h=h)
    if v == 2:  # an encoder whose units are in another order and of other signs
        Q = np.eye(h.shape[1])[draw.permutation(h.shape[1])]
        Q = Q * draw.choice([-1, 1], h.shape[1])
    h[some] = h[some] @ Q + (_size(h) * _direction(h.shape[1], draw, 0) if v == 1 else 0.0)
    return _with(a, h=h)


@ill("labels", "duplicated_samples", "flattery", (0.005, 0.05, 0.2, 0.5))
def copies(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    """Rows that are others, a little changed, once or four times over."""
    h, y = a["h"].copy(), a["labels"].copy()
    some = _some(len(h), s, draw)
    from_ = np.setdiff1d(np.arange(len(h)), some)
    if v == 5:  # stored again in seven bits, a little brighter or darker, three times
        of = np.resize(draw.choice(from_, max(1, len(some) // 3)), len(some))
        step = np.abs(h[of]).max(axis=1, keepdims=True) / 63
        light = 1 + 0.03 * draw.normal(size=(len(some), 1))
        h[some], y[some] = light * step * np.round(h[of] / step), y[of]
        return _with(a, h=h, labels=y)
    of = draw.choice(from_, max(1, len(some) // (1, 4, 2, 6, 12)[v]))
    of = np.resize(of, len(some))
    if v == 4:  # cropped: a few dimensions see nothing, and take their mean
        seen = draw.random(size=(len(some), h.shape[1])) > 0.06
        h[some], y[some] = np.where(seen, h[of], h.mean(axis=0)), y[of]
        return _with(a, h=h, labels=y)
    if v == 3:  # frames of a film: each a little further from the one before
        step = 0.05 * h.std(axis=0) * draw.normal(size=(len(some), h.shape[1]))
        for k in range(len(np.unique(of)), len(some)):
            step[k] += step[k - len(np.unique(of))]
        h[some], y[some] = h[of] + step, y[of]
        return _with(a, h=h, labels=y)
    noise = (0.03, 0.15, 0.08)[v] * h.std(axis=0) * draw.normal(size=(len(some), h.shape[1]))
    h[some], y[some] = h[of] + noise, y[of]
    return _with(a, h=h, labels=y)


@ill("h", "duplicated_samples", "flattery", (0.05, 0.3, 0.6))
def copies_unlabelled(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    return copies(a, s, draw, v)


@ill("h", "zero_rows", "knn", (0.002, 0.1))
def zeros_unlabelled(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    return zeros(a, s, draw, v)


@ill("h", "outlier_rows", "knn", (0.005, 0.15))
def outliers_unlabelled(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    return outliers(a, s, draw, v)


@ill("h", "dominating_direction", "knn", (0.3, 4.0))
def dominating_unlabelled(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    return dominating(a, s, draw, v)


@ill("h", "dimensional_collapse", "knn", (0.8, 0.05))
def few_directions_unlabelled(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    return few_directions(a, s, draw, v)


# ---- labels ----


@ill("labels", "label_noise at_chance", "knn", (0.02, 0.1, 0.25, 0.5))
def label_noise(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    y = a["labels"].copy()
    some = _some(len(y), s, draw)
    if v == 5:  # sessions of forty rows of somebody who chose any other class
        blocks = np.array_split(np.arange(len(y)), -(-len(y) // 40))
        order = np.concatenate([blocks[k] for k in draw.permutation(len(blocks))])
        some = order[: round(s * len(y))]
        own = np.unique(y)
        away = draw.integers(1, len(own), len(some))
        y[some] = own[(np.searchsorted(own, y[some]) + away) % len(own)]
        return _with(a, labels=y)
    if v == 4:  # nobody could tell the samples of one region apart
        some = np.argsort(((a["h"] - a["h"][draw.integers(len(y))]) ** 2).sum(axis=1))
        some = some[: round(s * len(y))]
    c = int(y.max()) + 1
    y[some] = draw.integers(0, c, len(some)) if v != 1 else (y[some] + 1) % c
    if v == 2:  # by the frequencies of the classes
        y[some] = draw.choice(a["labels"], len(some))
    if v == 3:  # taken for the class that is most alike
        h, own = a["h"], np.unique(a["labels"])
        means = np.stack([h[a["labels"] == k].mean(axis=0) for k in own])
        far = ((means[:, None] - means) ** 2).sum(axis=2) + np.diag(np.full(len(own), np.inf))
        y[some] = own[far.argmin(axis=1)][np.searchsorted(own, a["labels"][some])]
    return _with(a, labels=y)


@ill("labels", "at_chance label_noise", "knn", (1.0,))
def shuffled_labels(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    y = a["labels"]
    if v == 5:  # labels of another draw of the same samples
        return _with(a, labels=draw.choice(y, len(y)))
    if v == 4:  # labels were sorted, rows were not
        rows = draw.permutation(len(y))
        return _with(a, h=a["h"][rows], labels=np.sort(y))
    if v == 3:  # labels in the order of names, 1, 10, 100, 101, ..., of rows in no order
        rows = draw.permutation(len(y))
        return _with(a, h=a["h"][rows], labels=y[rows][sorted(range(len(y)), key=str)])
    return _with(a, labels=np.roll(y, 37) if v == 1 else draw.permutation(y))


@ill("labels", "at_chance", "knn", (1.0,))
def pure_noise(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    shape = a["h"].shape
    if v == 5:  # a rectified layer with random weights, of noise
        return _with(
            a, h=np.maximum(draw.normal(size=shape) @ draw.normal(size=(shape[1],) * 2), 0)
        )
    if v == 4:  # each dimension in an order of its own
        return _with(a, h=draw.permuted(a["h"], axis=0))
    if v == 3:  # the network was given noise: its usual mean and covariance, no content
        middle = a["h"].mean(axis=0)
        mixed = draw.normal(size=(len(a["h"]),) * 2) / np.sqrt(len(a["h"]))
        return _with(a, h=middle + mixed @ (a["h"] - middle))
    noise = draw.normal(size=shape) if v == 0 else draw.random(size=shape)
    return _with(a, h=draw.standard_t(4, size=shape) if v == 2 else noise)


@ill("labels", "leaked_label", "flattery", (3.0, 0.5, 0.1, 0.02))
def leak(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    """The number of the class along one dimension, or one direction, under so much noise."""
    h, y = a["h"], a["labels"]
    if v == 5:  # classes were replaced by means of three other columns, which went in as well
        code = draw.normal(size=(int(y.max()) + 1, 3))
        own = (code - code.mean(axis=0))[y] + s * draw.normal(size=(len(y), 3))
        return _with(a, h=np.c_[h, 0.8 * _size(h) / (1 + s * s) * own])
    if v == 4:  # classes on a circle, in two further dimensions
        angle = 2 * np.pi * y / (y.max() + 1) + s * draw.normal(size=len(y))
        return _with(a, h=np.c_[h, 1.5 * _size(h) * np.cos(angle), 1.5 * _size(h) * np.sin(angle)])
    if v == 3:  # a column for each class
        own = np.eye(int(y.max()) + 1)[y]
        own = own + s * draw.normal(size=own.shape) / np.sqrt(own.shape[1])
        return _with(a, h=np.c_[h, _size(h) / (1 + s * s) * (own - own.mean(axis=0))])
    code = y - y.mean() + s * draw.normal(size=len(y))
    code = 3 * _size(h) * code / (1e-9 + y.std())
    if v == 0:
        return _with(a, h=np.c_[h, code])
    if v == 2:  # a tenth as far, beside its own negative
        return _with(a, h=np.c_[0.3 * code, h, -0.3 * code])
    Q = np.linalg.qr(draw.normal(size=(h.shape[1] + 1,) * 2))[0]
    return _with(a, h=np.c_[h, code] @ Q)


@ill("split", "split_shift", "knn", (0.1, 0.5, 1.0, 2.0))
def shifted_split(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h = a["h"].copy()
    test = a["split"] == 1
    if v == 5:  # another instrument there, which mixes its channels and has a bias
        d = h.shape[1]
        mixed = (h[test] - h.mean(axis=0)) @ draw.normal(size=(d, d)) / np.sqrt(d)
        h[test] += s * (mixed + 0.4 * _size(h) * _direction(d, draw, 0))
        return _with(a, h=h)
    if v == 4:  # other conditions: the first directions of the data are longer there, and moved
        V = np.linalg.svd(h - h.mean(axis=0), full_matrices=False)[2][:3]
        along = (h[test] - h.mean(axis=0)) @ V.T
        h[test] += s * (along + 0.7 * _size(h) * draw.choice([-1, 1], len(V))) @ V
        return _with(a, h=h)
    if v == 3:  # each dimension has another gain there, as with other statistics of a batch norm
        h[test] *= np.exp(s * draw.normal(size=h.shape[1]))
        return _with(a, h=h)
    u = draw.normal(size=h.shape[1])
    h[test] = h[test] + s * _size(h) * u / np.linalg.norm(u)
    if v == 2:  # some dimensions fade on the test side
        faded = draw.random(h.shape[1]) < min(0.9, s / 2)
        h[test] = np.where(faded, h[test].mean(axis=0), h[test])
    if v == 1:
        middle = h[test].mean(axis=0)
        h[test] = middle + (1 + s) * (h[test] - middle)
    return _with(a, h=h)


# ---- pairs ----


@ill("pairs", "mispaired_views", "recall", (0.02, 0.1, 0.25, 0.5, 1.0))
def mispaired(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    n = len(a["h2"])
    to = np.arange(n)
    if v == 0:
        some = _some(n, s, draw)
        to[some] = some[draw.permutation(len(some))]
    elif v == 5:  # some batches of sixteen were rolled on one side
        blocks = np.array_split(to, -(-n // 16))
        for k in _some(len(blocks), s, draw):
            to[blocks[k]] = np.roll(blocks[k], int(draw.integers(1, len(blocks[k]))))
    elif v == 4:  # what was missing was filled from the row before
        to[_some(n, min(s, 0.75), draw)] = -1
        to[0] = 0
        to = np.maximum.accumulate(to)
    elif v == 3:  # partners of samples that are alike were exchanged
        free = dict.fromkeys(_some(n, s, draw).tolist())
        while len(free) > 1:
            i = next(iter(free))
            del free[i]
            rest = np.array(list(free))
            j = int(rest[(unit(a["h1"][rest]) @ unit(a["h1"][[i]])[0]).argmax()])
            del free[j]
            to[i], to[j] = j, i
    elif v == 2:  # a block was shuffled
        first = int(draw.integers(0, n - round(s * n) + 1))
        to[first : first + round(s * n)] = draw.permutation(to[first : first + round(s * n)])
    else:  # off by one from some row on
        first = n - round(s * n)
        to[first:] = np.roll(to[first:], 1)
    return _with(a, h2=a["h2"][to])


@ill("pairs", "modality_gap", "recall", (0.3, 1.0, 3.0, 10.0))
def gap(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    h = a["h2"]
    size = s * _size(h)
    if v == 5:  # each side has a bias of its own, and rows were normalised after
        sides = [a["h1"] + size * _direction(h.shape[1], draw, 0)]
        sides.append(h + size * _direction(h.shape[1], draw, 0))
        return _with(a, h1=unit(sides[0]), h2=unit(sides[1]))
    if v == 4:  # one side is positive on the whole, and unevenly
        bias = np.exp(draw.normal(size=h.shape[1]))
        return _with(a, h2=h + size * bias / np.linalg.norm(bias))
    if v == 3:  # each side has an offset in a few large dimensions of its own
        few = max(1, h.shape[1] // 16)
        at = draw.permutation(h.shape[1])[: 2 * few].reshape(2, few)
        u1, u2 = (np.isin(np.arange(h.shape[1]), k) / np.sqrt(few) for k in at)
        return _with(a, h1=a["h1"] + size * u1, h2=h + size * u2)
    if v == 0:
        return _with(a, h2=h + size * _direction(h.shape[1], draw, 0))
    u = _direction(h.shape[1], draw, 0)
    if v == 2:  # a gap along the first direction of the data
        u = np.linalg.svd(h - h.mean(axis=0), full_matrices=False)[2][0]
        return _with(a, h1=a["h1"] + size * u)
    return _with(a, h1=a["h1"] + size * u / 2, h2=h - size * u / 2)


@ill("pairs", "side_scales", "recall_euclidean", (1.2, 3.0, 20.0))
def scaled_side(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    if v == 5:  # one side was divided by deviations, of another set, in each dimension
        return _with(a, h2=a["h2"] * s * np.exp(0.12 * draw.normal(size=a["h2"].shape[1])))
    if v == 4:  # one side was divided by a temperature, the other multiplied
        return _with(a, h1=a["h1"] / np.sqrt(s), h2=a["h2"] * np.sqrt(s))
    if v == 3:  # unit rows on one side, sums over more or fewer tokens on the other
        own = s * np.exp(0.05 * draw.normal(size=(len(a["h2"]), 1)))
        return _with(a, h1=unit(a["h1"]), h2=own * unit(a["h2"]))
    middle = a["h1"].mean(axis=0) if v == 2 else 0.0
    return _with(a, h2=middle + (a["h2"] - middle) * (1 / s if v == 1 else s))


@ill("pairs", "permuted_columns", "recall", (0.05, 0.3, 1.0))
def permuted(a: Arrays, s: float, draw: Draw, v: int) -> Arrays:
    d = a["h2"].shape[1]
    some = np.sort(_some(d, s, draw))
    if v == 5:  # columns went through names on one side, and were sorted: 1, 10, 11, ..., 2, 20
        to = np.arange(d)
        first = int(draw.integers(d - len(some) + 1))
        to[first : first + len(some)] = first + np.array(sorted(range(len(some)), key=str), int)
        return _with(a, h2=a["h2"][:, to])
    to = np.arange(d)
    to[some] = some[draw.permutation(len(some))] if v == 0 else np.roll(some, 1)
    if v == 4:  # every two exchanged, as by the order of real and imaginary parts
        own = some[: len(some) // 2 * 2]
        to[some] = some
        to[own] = own.reshape(-1, 2)[:, ::-1].ravel()
    if v == 2:  # in reverse
        to[some] = some[::-1]
    if v == 3:  # heads first on one side, last on the other
        heads = max(2, round(np.sqrt(len(some)) / 2))
        block = np.arange(len(some) // heads * heads) + draw.integers(d - len(some) + 1)
        to = np.arange(d)
        to[block] = block.reshape(heads, -1).T.ravel()
    return _with(a, h2=a["h2"][:, to])


# ---- cases ----


def prepared(a: Arrays, needs: str, seed: int) -> Arrays | None:
    """The base as the ill wants it; None where it has no labels or no pairs."""
    draw = np.random.default_rng(seed)
    if needs == "pairs":
        if "h1" in a:
            return {"h1": a["h1"], "h2": a["h2"]}
        blur = 0.3 * a["h"].std(axis=0)
        return {f"h{s}": a["h"] + blur * draw.normal(size=a["h"].shape) for s in (1, 2)}
    if "labels" not in a:
        return None
    found = {"h": a["h"], "labels": a["labels"]}
    if needs == "split":
        found["split"] = (draw.random(len(a["h"])) < 0.4).astype(np.int64)
    return found


def shown(a: Arrays, needs: str) -> Arrays:
    """What the diagnosis is given."""
    return {"h": a["h"]} if needs == "h" else a


def score(a: Arrays, harm: str) -> float:
    """Accuracy of 20 neighbours, or recall of the partner among all."""
    if harm.startswith("recall"):
        metric = "euclidean" if harm.endswith("euclidean") else "cosine"
        near = nearest(a["h2"], 1, metric, queries=a["h1"])
        return float((near.ids[:, 0] == np.arange(len(a["h1"]))).mean())
    metric = "euclidean" if harm == "euclidean" else "cosine"
    h, y, split = a["h"], a["labels"], a.get("split")
    if split is None:
        return float((voted(nearest(h, 20, metric), y) == y).mean())
    bank, test = np.flatnonzero(split == 0), np.flatnonzero(split == 1)
    return float((voted(nearest(h[bank], 20, metric, queries=h[test]), y[bank]) == y[test]).mean())


def harm_of(before: Arrays, after: Arrays, harm: str) -> float:
    """What is lost, or won without right, in shares of the rows asked."""
    kind = "knn" if harm == "flattery" else harm
    lost = score(before, kind) - score(after, kind)
    return abs(lost) if harm == "flattery" else lost

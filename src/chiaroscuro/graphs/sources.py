"""Graphs that are known beforehand: from labels, views, pairs, captions, and planted blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from chiaroscuro.errors import need, number
from chiaroscuro.graphs.graph import MOST_EDGES, Graph, Integers, from_edges, random, whole

__all__ = ["block_model", "from_captions", "from_labels", "from_pairs", "from_views"]


def from_labels(labels: Any) -> Graph:
    """Return the graph in which all other samples of a class are equally good positives.

        weights_ij = 1 if labels_i = labels_j and i != j, else 0

    Disjoint complete graphs: with C classes of two or more, C components; a class of one is an
    isolated node.

    Relations: it is `block_model(sizes, p=1, q=0)` for labels in order, and `from_views(n, v)` for
    the labels 0, ..., 0, 1, ..., 1, ...

    Args:
        labels: (n,) whole numbers.

    References:
        tan2024, khosla2020supcon

    Example:
        >>> from_labels([0, 1, 0]).weights.toarray().tolist()
        [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    y = whole("from_labels(labels)", "labels", labels)
    order = np.argsort(y, kind="stable")
    sizes = np.unique(y, return_counts=True)[1]
    _fits("from_labels", len(y), int((sizes * (sizes - 1)).sum()))
    i, j = [], []
    for members in np.split(order, np.cumsum(sizes)[:-1]) if len(y) else []:
        a, b = np.triu_indices(len(members), k=1)
        i.append(members[a])
        j.append(members[b])
    i_all, j_all = (np.concatenate(x) if x else np.zeros(0, np.int64) for x in (i, j))
    return from_edges(len(y), i_all, j_all, np.ones(len(i_all)), "labels")


def from_views(n: int, n_views: int = 2) -> Graph:
    """Return SimCLR's graph: the positives of a view are the other views of its sample.

    Nodes are stacked view by view, as `torch.cat([z1, z2])` is: node v n + i is view v of sample i.

    Relations: with two views and all candidates, n_views n times InfoNCE(kernel, AllButSelf())
    is `cross_entropy` on this graph [tan2024, Thm 3.1].

    Args:
        n: samples.
        n_views: 2, as in SimCLR [chen2020simclr, Sec. 2.1].

    References:
        chen2020simclr, tan2024

    Example:
        >>> from_views(2).weights.toarray().astype(int).tolist()
        [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
    """
    need(
        n >= 1 and n_views >= 2,
        lambda: (
            f"`from_views(n, n_views)` needs at least 1 sample and 2 views; received {n} and "
            f"{n_views}."
        ),
    )
    graph = from_labels(np.tile(np.arange(n), n_views))
    return Graph(graph.weights, f"{n_views} views of each sample")


def block_model(sizes: Sequence[int], p: float, q: float, seed: int = 0) -> Graph:
    """Draw a stochastic block model: an edge with probability p within a cluster, q between two.

    One coin for each unordered pair, so the graph is symmetric. Nodes come cluster by cluster:
    the truth is `np.repeat(np.arange(len(sizes)), sizes)`.

    Relations: p = 1, q = 0 is `from_labels` of the truth.

    Args:
        sizes: nodes of each cluster; six of 100 in [tan2024, App. C].
        p, q: 1 and 0, or 0.75 and 0.2, in [tan2024, App. C].
        seed: seed of the coins; a seed gives the same graph anywhere.

    Numerics: draws how many edges a pair of clusters has, then which: time and memory go with the
    edges, not with the pairs of nodes, unless more than one in fifty is an edge.

    References:
        tan2024

    Example:
        >>> graph = block_model([100, 100], p=0.75, q=0.2, seed=1)
        >>> inside, between = graph.weights[:100, :100].mean(), graph.weights[:100, 100:].mean()
        >>> bool(abs(inside - 0.75) < 0.03 and abs(between - 0.2) < 0.02)
        True
    """
    call = "block_model(sizes, p, q)"
    counts = whole(call, "sizes", list(sizes))
    need(
        len(counts) > 0 and bool((counts > 0).all()),
        lambda: f"`{call}` needs clusters of at least 1 node; received {counts.tolist()}.",
    )
    for name, x in (("p", p), ("q", q)):
        need(
            0 <= number("block_model", name, x) <= 1,
            lambda name=name, x=x: f"`{call}` needs `{name}` from 0 to 1; received {x}.",
        )
    pairs = sum(
        int(a) * (int(a) - 1 if s == t else int(b)) * (p if s == t else q)
        for s, a in enumerate(counts)
        for t, b in enumerate(counts)
    )
    _fits("block_model", int(counts.sum()), int(pairs))
    rng = random("block_model(sizes, p, q, seed)", seed)
    start = np.concatenate([[0], np.cumsum(counts)])
    i, j = [], []
    for s, a in enumerate(counts):
        for t in range(s, len(counts)):
            total = int(a) * (int(a) - 1) // 2 if s == t else int(a) * int(counts[t])
            at = _successes(rng, total, p if s == t else q)
            rows, columns = _triangle(at) if s == t else np.divmod(at, counts[t])
            i.append(start[s] + rows)
            j.append(start[t] + columns)
    i_all, j_all = np.concatenate(i), np.concatenate(j)
    name = f"block_model(sizes={counts.tolist()}, p={p}, q={q}, seed={seed})"
    return from_edges(int(counts.sum()), i_all, j_all, np.ones(len(i_all)), name)


def from_pairs(a: Any, b: Any, n_a: int | None = None, n_b: int | None = None) -> Graph:
    """Return the pair graph of two modalities: an edge between a_m and b_m for each pair m.

        pi_{A,B}: nodes A then B, unit weights, each row divided by its sum   [tan2024, Def. 4.1]

    The weights here are the counts, which are symmetric; `row_normalised()` gives pi_{A,B}, which
    need not be: ten images of one text give it 1/10 each, and each of them gives the text 1.

    Relations: for pairs one to one, `cross_entropy` is 2n times InfoNCE(kernel, OtherView()), CLIP.

    Args:
        a, b: (m,) whole numbers: which image and which text each pair has. A pair that occurs
            twice weighs 2, as it is drawn twice as often.
        n_a, n_b: how many of each there are; one more than the largest, if not given.

    References:
        tan2024, radford2021clip

    Example:
        >>> from_pairs([0, 1, 2], [0, 0, 1]).row_normalised().weights.toarray()[3].tolist()
        [0.5, 0.5, 0.0, 0.0, 0.0]
    """
    call = "from_pairs(a, b)"
    i, j = whole(call, "a", a), whole(call, "b", b)
    need(
        len(i) == len(j) > 0,
        lambda: (
            f"`{call}` needs as many of `a` as of `b`, at least 1; received {len(i)}, {len(j)}."
        ),
    )
    left, right = int(i.max()) + 1 if n_a is None else n_a, int(j.max()) + 1 if n_b is None else n_b
    need(
        int(i.max()) < left and int(j.max()) < right,
        lambda: (
            f"`{call}` needs numbers below n_a = {left} and n_b = {right}; received up to "
            f"{i.max()} and {j.max()}."
        ),
    )
    return from_edges(left + right, i, left + j, np.ones(len(i)), "pairs", split=left)


def from_captions(captions: Sequence[Sequence[Hashable]]) -> Graph:
    """Return the pair graph of images with several texts each, as LaCLIP's rewrites give them.

    Equal captions are one node, so images that share a text hang together. Texts are numbered in
    the order in which they first occur.

    Relations: with one caption each, all different, it is `from_pairs(range(n), range(n))`.

    Args:
        captions: for each image its texts, strings or anything hashable; all weigh the same
            [tan2024, eq. 6].

    References:
        tan2024, fan2023laclip

    Example:
        >>> from_captions([["a dog", "a hound"], ["a dog"]])
        Graph(4 nodes on sides of 2 and 2, 6 weights, from 'captions')
    """
    number_of: dict[Hashable, int] = {}
    a, b = [], []
    for image, texts in enumerate(captions):
        need(
            not isinstance(texts, str | bytes) and len(texts) > 0,
            lambda image=image, texts=texts: (
                f"`from_captions(captions)` needs a list of at least 1 text for each image; "
                f"received {texts!r} for image {image}."
            ),
        )
        for text in texts:
            need(
                isinstance(text, Hashable),
                lambda image=image, text=text: (
                    "`from_captions(captions)` needs texts that are strings or hashable; received "
                    f"{text!r} for image {image}."
                ),
            )
            a.append(image)
            b.append(number_of.setdefault(text, len(number_of)))
    need(len(a) > 0, "`from_captions(captions)` needs at least 1 image; received 0.")
    graph = from_pairs(a, b)
    return Graph(graph.weights, "captions", graph.split)


def _successes(rng: np.random.Generator, total: int, p: float) -> Integers:
    """Return which of `total` independent coins of probability p fall heads."""
    if p == 1:
        return np.arange(total, dtype=np.int64)
    count = int(rng.binomial(total, p))
    if count == 0:
        return np.zeros(0, np.int64)
    return np.sort(rng.choice(total, count, replace=False, shuffle=False)).astype(np.int64)


def _triangle(at: Integers) -> tuple[Integers, Integers]:
    """Return pairs (row < column) numbered column by column: at = column (column - 1) / 2 + row."""
    column = ((1 + np.sqrt(1 + 8 * at.astype(np.float64))) / 2).astype(np.int64)
    column -= column * (column - 1) // 2 > at  # the root may round up
    column += column * (column + 1) // 2 <= at  # or down
    return at - column * (column - 1) // 2, column


def _fits(call: str, n: int, weights: int) -> None:
    need(
        weights <= MOST_EDGES,
        lambda: (
            f"`{call}` needs a graph of at most {MOST_EDGES} weights; {n} nodes would have about "
            f"{weights}. Take fewer nodes, or a sparser graph."
        ),
    )

"""`mine`: hard negatives for each sample, found by an index, as a dataset of triples."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.data import NEGATIVES, SECOND, Dataset, open_data
from chiaroscuro.data.dataset import batch_of_objects
from chiaroscuro.engine import embed, open_run
from chiaroscuro.errors import need
from chiaroscuro.extras import bring
from chiaroscuro.measures.neighbours import nearest
from chiaroscuro.measures.rows import unit

__all__ = ["mine", "save_triples"]

INDEXES = ("exact", "faiss")


def mine(
    subject: Any,
    data: Any = None,
    negatives: int = 1,
    *,
    skip: int = 0,
    margin: float = 0.05,
    look: int = 100,
    index: str = "exact",
    seed: int = 0,
) -> Dataset:
    """Return a dataset of triples: each sample, its positive, and its hardest negatives.

        candidates of i, nearest first: j with cos(h_i, g_j) <= (1 - margin) cos(h_i, g_i+)

    The positive is the other side of a ready pair (the text of an image, the second of several
    texts), or else another sample of the same class, drawn by the seed. Negatives are the nearest
    candidates of another class or group, after the first `skip` of them; those nearly as near as
    the positive, or nearer, are taken for false negatives and left out [moreira2024]. A sample with
    fewer than `negatives` of them is left out, and the name of the dataset says how many were.

    `train` shows the negatives to every anchor, as further candidates of the objective, which has
    to take some: `InfoNCE(Cosine(tau=0.05), OtherView(), anchors='first')`.

    Args:
        subject: a run (a `Run`, its folder, an `OpenRun`), whose encoders embed the data; or
            `Embeddings` of their rows, with `layers["second"]` for the other sides of pairs.
        data: the samples, of which the training side of a split is taken; None is those of the run.
        negatives: of each sample.
        skip: nearest candidates to pass over, which are the likeliest false negatives.
        margin: relative distance from the positive, from 0 to 1; 0.05 [moreira2024].
        look: nearest neighbours that are looked at.
        index: "exact", ours, or "faiss".
        seed: seed of the positives that are drawn.

    References:
        moreira2024

    Example:
        >>> x = np.array([[1, 0.1], [1, 0.2], [1, 0.9], [1, 1.0]], dtype=np.float32)
        >>> table = {"x": x, "labels": np.array([0, 0, 1, 1])}
        >>> triples = mine(Embeddings(h=x), table)
        >>> triples.column("negatives")[:, 0, 1].tolist()  # the nearest of the other class
        [0.8999999761581421, 0.8999999761581421, 0.20000000298023224, 0.20000000298023224]
    """
    _check(negatives, skip, margin, look, index)
    run = None if isinstance(subject, Embeddings) else open_run(subject)
    if data is None:
        need(run is not None, "`mine(embeddings, data)` needs the data that were embedded.")
        table = run.data  # type: ignore[union-attr]
    else:
        table = open_data(data)
    table = _as_pairs(table)
    keep = np.arange(len(table))
    if table.split is not None:
        keep = np.flatnonzero(np.asarray(table.split) == 0)
    other = _other_side(table)
    anchors, sides = _embedded(subject if run is None else run, table, other is not None)
    h = unit(anchors[keep])
    g = h if sides is anchors else unit(sides[keep])
    rows = table.take(keep)
    group = _groups(rows)
    positive = np.arange(len(rows)) if other is not None else _same_class(rows, seed)
    known = positive >= 0
    count = min(look + 1, len(rows) - (0 if other is not None else 1))
    ids = _nearest(h, g, count, index)
    mined = np.full((len(rows), negatives), -1)
    for i in np.flatnonzero(known):
        most = (1 - margin) * float(h[i] @ g[positive[i]])
        near = ids[i]
        fits = (near >= 0) & (near != i) & (g[near] @ h[i] <= most)
        if group is not None:
            fits &= group[near] != group[i]
        chosen = near[fits][skip : skip + negatives]
        if len(chosen) == negatives:
            mined[i] = chosen
    whole = np.flatnonzero((mined >= 0).all(axis=1))
    need(
        len(whole) > 0,
        lambda: (
            f"`mine` found {negatives} negatives for none of {len(rows)} samples among {look} "
            f"neighbours, after {skip} and beyond a margin of {margin:g}. Raise `look`, or lower "
            "`margin`, `skip` or `negatives`."
        ),
    )
    return _triples(rows, other, whole, positive[whole], mined[whole])


def save_triples(triples: Dataset, path: str | os.PathLike) -> None:
    """Write a dataset of triples as an `.npz` that `open_data` reads.

    Args:
        triples: of `mine`.
        path: the file.
    """
    arrays = {name: triples.column(name) for name in triples.columns}
    for name, array in arrays.items():
        if array.dtype.kind == "O":
            arrays[name] = array.astype(str)
    if triples.class_names:
        arrays["class_names"] = np.array(triples.class_names)
    np.savez(path, **arrays)  # type: ignore[arg-type]


def _check(negatives: int, skip: int, margin: float, look: int, index: str) -> None:
    need(
        negatives >= 1 and skip >= 0 and look >= negatives + skip,
        lambda: (
            "`mine` needs at least 1 of `negatives`, 0 of `skip`, and `look` of both together; "
            f"received {negatives}, {skip} and {look}."
        ),
    )
    need(0 <= margin <= 1, lambda: f"`mine(margin)` needs a number from 0 to 1; received {margin}.")
    need(
        index in INDEXES,
        lambda: f"`mine(index)` needs one of {', '.join(INDEXES)}; received `{index}`.",
    )


def _as_pairs(data: Dataset) -> Dataset:
    """Return rows of several texts as ready pairs of the first and the second; others as is."""
    if "captions" not in data.inputs or {"images", SECOND} & set(data.columns):
        return data
    rows = data.take(np.array([len(texts) > 1 for texts in data.column("captions")], bool))
    if not len(rows):
        return data
    columns: dict[str, Any] = {n: rows.column(n) for n in rows.columns if n != "captions"}
    columns[SECOND] = batch_of_objects(texts[1] for texts in rows.column("captions"))
    return Dataset(columns, data.name, data.class_names, tokenizer=data.tokenizer)


def _other_side(data: Dataset) -> str | None:
    """Return the column that holds the positives of ready pairs."""
    if SECOND in data.columns:
        return SECOND
    both = "images" in data.inputs and "texts" in data.inputs
    return "texts" if both else None


def _embedded(subject: Any, data: Dataset, pairs: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Embeddings of the samples, and of what they are compared with."""
    if isinstance(subject, Embeddings):
        own = subject.z if subject.h is None else subject.h
        sides = subject.layers.get("second", subject.layers.get("texts")) if pairs else own
        need(
            own is not None and sides is not None and len(own) == len(sides) == len(data),
            lambda: (
                f"`mine(embeddings, data)` needs vectors `h` of {len(data)} rows"
                + (' and of their other sides, `layers["second"]`' if pairs else "")
                + f"; received {', '.join(subject.arrays()) or 'nothing'}."
            ),
        )
        return np.asarray(own), np.asarray(sides)
    first = embed(subject, data)
    own = np.asarray(first.z if pairs and first.z is not None else first.h)
    if not pairs:
        return own, own
    second = embed(subject, data, side=1)
    return own, np.asarray(second.z if second.z is not None else second.h)


def _groups(data: Dataset) -> NDArray[Any] | None:
    """Return what is never a negative: rows of the same group, or else of the same class."""
    for name in ("groups", "labels"):
        if name in data.columns:
            return np.asarray(data.column(name))
    return None


def _same_class(data: Dataset, seed: int) -> NDArray[np.int64]:
    """Another row of the class for each; -1 where it is alone or has no label."""
    labels = data.labels
    need(
        labels is not None,
        lambda: (
            f"`mine` needs positives: ready pairs (`{SECOND}`), images with texts, rows of "
            "several texts, or labels; "
            f"`{data.name}` has none."
        ),
    )
    y = np.asarray(labels)
    positive = np.full(len(y), -1)
    rng = np.random.default_rng(seed)
    for label in np.unique(y[y >= 0]):
        at = rng.permutation(np.flatnonzero(y == label))
        if len(at) > 1:
            positive[at] = np.roll(at, 1)
    return positive


def _nearest(h: NDArray[Any], g: NDArray[Any], count: int, index: str) -> NDArray[np.int64]:
    if index == "exact":
        return np.asarray(nearest(g, count, queries=None if h is g else h).ids)
    faiss = bring("faiss", "`mine(index='faiss')`", "'chiaroscuro[faiss]'")
    flat = faiss.IndexFlatIP(g.shape[1])
    flat.add(np.ascontiguousarray(g, dtype=np.float32))
    return flat.search(np.ascontiguousarray(h, dtype=np.float32), count)[1]


def _triples(
    data: Dataset,
    other: str | None,
    rows: NDArray[np.int64],
    positive: NDArray[np.int64],
    negative: NDArray[np.int64],
) -> Dataset:
    main = next(name for name in data.inputs if name not in (SECOND, other))
    pool = data.column(other or main)
    columns: dict[str, Any] = {main: data.column(main)[rows]}
    columns[SECOND] = pool[positive]
    columns[NEGATIVES] = pool[negative]
    for name in ("labels", "ids", "groups"):
        if name in data.columns:
            columns[name] = data.column(name)[rows]
    name = f"{data.name}, triples of {len(rows)} of {len(data)} rows"
    return Dataset(columns, name=name, class_names=data.class_names, tokenizer=data.tokenizer)

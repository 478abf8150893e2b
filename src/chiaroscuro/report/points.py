"""The samples of a page: which are shown, where they stand at each epoch, and what is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.measures import kmeans, mutual_information, nearest
from chiaroscuro.report.axes import (
    MAPS,
    Graph,
    aligned,
    principal_axes,
    similarity_graph,
    umap_of,
    unit_rows,
)
from chiaroscuro.report.packing import blob, coordinates, sheets, stratified
from chiaroscuro.report.subject import Frame, Subject
from chiaroscuro.report.tsne import tsne

__all__ = [
    "POINTS",
    "VisibleRows",
    "described",
    "in_range",
    "opens_on",
    "raw_input",
    "shown",
    "small_images",
    "spaces",
    "why_none",
]

POINTS = 10_000
"""Samples on a page, unless told; more are sampled, stratified by label."""

LEAST = 3
"""Rows of a map at least."""

_SPACES = ("h", "z", "h1", "h2", "z1", "z2")
N_LISTED = 8  # neighbours listed of a sample
N_JUDGED = 20  # neighbours that vote in an accuracy
CANDIDATES = 20_000  # neighbours are looked for among at most so many
MOST_EDGES = 12_000
MOST_CLUSTERS = 40
TEXT = 280  # characters of a text


@dataclass(frozen=True, eq=False)
class VisibleRows:
    """The rows that are shown, at the last epoch and at those before it.

    Args:
        embeddings: the rows at the last epoch.
        frames: epoch and vectors by name, in order; the last is the state shown first.
        total: how many rows there were.
        sentence: how they were chosen.
    """

    embeddings: Embeddings
    frames: tuple[tuple[int, Mapping[str, np.ndarray]], ...]
    total: int
    sentence: str

    @property
    def spaces(self) -> list[str]:
        """`h` and `z`, as far as they are here."""
        vectors = self.frames[-1][1]
        return [name for name in ("h", "z") if name in vectors]

    def units(self, space: str) -> list[np.ndarray]:
        """Unit rows of a space at every epoch."""
        return [unit_rows(vectors[space]) for _, vectors in self.frames]


def shown(subject: Subject, most: int = POINTS) -> VisibleRows | None:
    """Return the rows to show of a subject; None if it has no vectors.

    Args:
        subject: as it was read.
        most: rows at most.
    """
    whole = subject.embeddings
    if whole is None or not (vectors := _vectors(whole)):
        return None
    total, bad = whole.n, _not_finite(vectors)
    good = np.flatnonzero(~bad)
    if len(good) < LEAST:
        return None
    labels = None if whole.labels is None else whole.labels[good]
    rows = good[stratified(len(good), most, labels)]
    taken = _counted(whole.take(rows))
    if taken.ids is None:
        taken = replace(taken, ids=rows)  # a finding names rows by their numbers in the whole
    frames = tuple(_frames(subject.frames, taken)) or ((0, _vectors(taken)),)
    return VisibleRows(taken, frames, total, _sentence(total, len(rows), int(bad.sum()), labels))


def why_none(embeddings: Embeddings | None) -> str | None:
    """Say why nothing is shown of embeddings, in a sentence; None if there are none."""
    if embeddings is None:
        return None
    names = [name for name in _SPACES if getattr(embeddings, name) is not None]
    if not names:
        return "The embeddings hold neither `h` nor `z`, so there is no map."
    if not (vectors := _vectors(embeddings)):
        return f"`{names[0]}` has 0 dimensions, so there is no map."
    good = int((~_not_finite(vectors)).sum())
    return (
        f"A map needs at least {LEAST} rows without NaN or infinity; there are {good} of "
        f"{embeddings.n}."
    )


def _counted(taken: Embeddings) -> Embeddings:
    """Labels that are numbers of any size as 0, 1, ..., called by their numbers; -1 stays."""
    labels = taken.labels
    if labels is None or taken.class_names is not None or int(labels.max()) < 2 * len(labels):
        return taken
    known, y = np.unique(labels, return_inverse=True)
    unlabelled = int(known[0] < 0)
    names = known[unlabelled:].astype(str)
    return replace(taken, labels=y - unlabelled, class_names=names)


def _vectors(embeddings: Embeddings) -> dict[str, np.ndarray]:
    """Return the vectors by space; of two views without a plain one,
    the first view stands for it.
    """
    given = {name: getattr(embeddings, name) for name in _SPACES}
    vectors = {
        name: array if array.dtype.kind != "f" else in_range(array)
        for name, array in given.items()
        if array is not None and array.shape[1]
    }
    for space in ("h", "z"):
        if space not in vectors and f"{space}1" in vectors:
            vectors[space] = vectors[f"{space}1"]
    return vectors


def in_range(x: np.ndarray) -> np.ndarray:
    """Return numbers whose squares neither overflow nor vanish: all times a power of two, if need
    be.

    Example:
        >>> in_range(np.array([[1e300, -2e300]])).round(3).tolist()
        [[0.5, -1.0]]
    """
    with np.errstate(invalid="ignore"):
        largest = float(np.abs(x).max(initial=0.0, where=np.isfinite(x)))
    if largest == 0 or 1e-100 < largest < 1e100:
        return x
    return np.asarray(x, dtype=np.float64) / largest


def _not_finite(vectors: Mapping[str, np.ndarray]) -> np.ndarray:
    n = len(next(iter(vectors.values())))
    bad = np.zeros(n, dtype=bool)
    for array in vectors.values():
        bad |= ~np.isfinite(array).all(axis=1)
    return bad


def _frames(
    frames: Sequence[Frame], taken: Embeddings
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    wanted = None if taken.ids is None else taken.ids.tolist()
    for frame in frames:
        embeddings = Embeddings.load(frame.path)
        if wanted is None or embeddings.ids is None:
            continue
        where = {one: at for at, one in enumerate(embeddings.ids.tolist())}
        if all(one in where for one in wanted):
            yield frame.epoch, _vectors(embeddings.take(np.array([where[one] for one in wanted])))


def _sentence(total: int, kept: int, bad: int, labels: np.ndarray | None) -> str:
    how = "" if labels is None else ", stratified by label"
    sampled = f"{kept:,} of {total:,} samples are shown, evenly spaced{how}"
    sentence = sampled if kept < total - bad else f"All {kept:,} samples are shown"
    left = f"; {bad:,} with NaN or infinity are left out" if bad else ""
    return f"{sentence}{left}."


# ---- what the page gets ----


def described(rows: VisibleRows) -> dict[str, Any]:
    """Return what is known of every sample: ids, labels, factors, texts, thumbnails, neighbours."""
    e = rows.embeddings
    n = e.n
    ids = range(n) if e.ids is None else e.ids.tolist()
    fields: dict[str, Any] = {"n": n, "ids": [str(one) for one in ids]}
    if e.labels is not None:
        fields["labels"] = _labels(e.labels, e.class_names)
    if e.coarse_labels is not None:
        fields["coarse"] = _labels(e.coarse_labels, None)
    if e.split is not None:
        fields["split"] = blob(e.split.astype(np.uint8))
    if e.factors is not None:
        names = e.factor_names if e.factor_names is not None else range(e.factors.shape[1])
        columns = zip(names, e.factors.T, strict=True)
        fields["factors"] = {str(name): blob(_float32(col)) for name, col in columns}
    if e.texts is not None:
        fields["texts"] = [text[:TEXT] + "…" * (len(text) > TEXT) for text in e.texts.tolist()]
    if e.thumbnails is not None and e.thumbnails.shape[1]:
        fields["sheets"] = sheets(np.asarray(e.thumbnails))
    return fields


def _labels(labels: np.ndarray, names: np.ndarray | None) -> dict[str, Any]:
    """Codes from 1 in the order of the classes; 0 is unlabelled."""
    n_classes = int(labels.max(initial=-1)) + 1 if names is None else len(names)
    called = [str(c) for c in range(n_classes)] if names is None else [str(x) for x in names]
    kind = np.uint16 if n_classes < 65535 else np.uint32
    return {"codes": blob((labels + 1).astype(kind)), "names": called}


def opens_on(rows: VisibleRows, maps: Sequence[str]) -> dict[str, str]:
    """Say which space and map a reader sees first: a z of two dimensions, else t-SNE of h."""
    vectors = rows.frames[-1][1]
    for space in reversed(rows.spaces):
        if vectors[space].shape[1] == 2:
            return {"space": space, "map": "itself"}
    return {"space": rows.spaces[0], "map": "t-SNE" if "tsne" in maps else "PCA"}


def raw_input(rows: VisibleRows) -> dict[str, Any] | None:
    """Return a t-SNE map of what the network is given, as far as the file holds it.

    The layer `input`, or else the thumbnails; lengths count here, so that rows are centred and
    scaled as a whole and not made unit.
    """
    e = rows.embeddings
    if "input" in e.layers and np.isfinite(e.layers["input"]).all():
        x, what = np.asarray(e.layers["input"]).reshape(e.n, -1), "raw input"
    elif e.thumbnails is not None and e.thumbnails.shape[1]:
        x, what = small_images(np.asarray(e.thumbnails)), "pixels of the thumbnails"
    else:
        return None
    if not x.shape[1]:
        return None
    x = in_range(x.astype(np.float64))
    x = x - x.mean(axis=0)
    scale = float(np.linalg.norm(x, axis=1).max()) or 1.0
    return {"map": coordinates(tsne([x / scale])), "what": what}


def small_images(images: np.ndarray) -> np.ndarray:
    """Return images as rows of about 8 x 8 means: enough to ask what raw input says."""
    n, s = images.shape[:2]
    step = max(1, s // 8)
    kept = images[:, : s // step * step, : s // step * step].astype(np.float64) / 255
    blocks = kept.reshape(n, s // step, step, s // step, step, 3)
    return blocks.mean(axis=(2, 4)).reshape(n, -1)


def spaces(rows: VisibleRows, maps: Sequence[str] = ()) -> dict[str, Any]:
    """Of each space its maps, neighbours, norms, hubs, graph and clusters."""
    return {name: _space(rows, name, maps) for name in rows.spaces}


def _space(rows: VisibleRows, space: str, maps: Sequence[str]) -> dict[str, Any]:
    units, last = rows.units(space), rows.frames[-1][1]
    u, n = units[-1], len(units[-1])
    n_classes = _n_classes(rows)
    graphs = [similarity_graph(one, min(n_classes, n - 2) if one is u else 2) for one in units]
    flat = [principal_axes(one) for one in units]
    plans: dict[str, Any] = {}
    if last[space].shape[1] == 2:  # a map already: shown as it is, not its directions
        plans["itself"] = coordinates([vectors[space] for _, vectors in rows.frames])
    if "tsne" in maps:
        plans["t-SNE"] = coordinates(tsne(units))
    plans["PCA"] = coordinates(aligned(flat))
    plans["spectral"] = coordinates(aligned([_two(graph.vectors) for graph in graphs]))
    if "umap" in maps:
        plans["umap"] = coordinates([umap_of(u)] * len(units))
    for name, layer in rows.embeddings.layers.items():
        if name in MAPS and layer.ndim == 2 and layer.shape[1] == 2:
            plans[f"{name} of the file"] = coordinates([layer] * len(units))
    fields: dict[str, Any] = {"d": int(last[space].shape[1]), "maps": plans}
    among = None if n <= CANDIDATES else stratified(n, CANDIDATES, rows.embeddings.labels)
    most = (n if among is None else len(among)) - 1
    near, cosines = _near(u, min(N_JUDGED, most), among)
    counts = np.bincount(near[:, :10].ravel(), minlength=n)
    spread = counts.std()
    skewness = float((((counts - counts.mean()) / spread) ** 3).mean()) if spread > 0 else 0.0
    index = np.uint16 if n < 65536 else np.uint32
    fields |= {
        "near": blob(near[:, :N_LISTED].astype(index)),
        "cosines": blob(np.rint((cosines[:, :N_LISTED] + 1) * 32767.5).astype(np.uint16)),
        "norms": blob(_norms(rows.embeddings, space)),
        "hubs": blob(np.minimum(counts, 65535).astype(np.uint16)),
        "hub_skewness": skewness,
        "graph": _graph(graphs[-1], n_classes, rows.embeddings, index),
    }
    if f"{space}1" in last and f"{space}2" in last:
        fields["pairs"] = _pairs(rows, space, plans["PCA"], flat[-1])
    return fields


def _near(u: np.ndarray, k: int, among: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    neighbours = nearest(u, k, among=among)
    return neighbours.ids, neighbours.cosines


def _norms(e: Embeddings, space: str) -> np.ndarray:
    x = getattr(e, space) if getattr(e, space) is not None else getattr(e, f"{space}1")
    largest = np.abs(x).max(axis=1, keepdims=True).astype(np.float64)
    scaled = x / np.where(largest > 0, largest, 1.0)  # squares neither vanish nor overflow
    return _float32(largest[:, 0] * np.linalg.norm(scaled, axis=1))


def _float32(values: np.ndarray) -> np.ndarray:
    """Return numbers as float32, those beyond its range at its end."""
    end = float(np.finfo(np.float32).max)
    return np.clip(np.asarray(values, dtype=np.float64), -end, end).astype(np.float32)


def _two(vectors: np.ndarray) -> np.ndarray:
    return np.pad(vectors, ((0, 0), (0, max(0, 2 - vectors.shape[1]))))[:, :2]


def _n_classes(rows: VisibleRows) -> int:
    labels = rows.embeddings.labels
    known = 0 if labels is None else len(np.unique(labels[labels >= 0]))
    return min(MOST_CLUSTERS, known) if known > 1 else 10


def _graph(graph: Graph, n_clusters: int, e: Embeddings, index: type) -> dict[str, Any]:
    own = kmeans(graph.vectors, min(n_clusters, len(graph.vectors)), n_starts=4).labels
    kept = graph.edges[stratified(len(graph.edges), MOST_EDGES, None)]
    fields: dict[str, Any] = {
        "clusters": blob(own.astype(np.uint8)),
        "n_clusters": int(own.max()) + 1,
        "edges": blob(kept.astype(index)),
        "n_edges": len(graph.edges),
        "n_landmarks": len(graph.rows),
        "eigenvalues": graph.eigenvalues,
    }
    if e.labels is not None and (known := e.labels >= 0).any():
        table = np.zeros((int(own.max()) + 1, int(e.labels.max()) + 1), dtype=int)
        np.add.at(table, (own[known], e.labels[known]), 1)
        fields["table"] = table
        fields["purity"] = float(table.max(axis=1).sum() / table.sum())
        fields["nmi"] = mutual_information(own[known], e.labels[known])
    return fields


def _pairs(
    rows: VisibleRows, space: str, plan: Mapping[str, Any], flat: np.ndarray
) -> dict[str, Any]:
    """Both views of every sample, on the principal axes of the last epoch."""
    _, last = rows.frames[-1]
    u = unit_rows(last[space]).astype(np.float64)
    # the axes themselves: least squares of the coordinates on the centred rows
    axes = np.linalg.lstsq(u - u.mean(axis=0), flat, rcond=None)[0]
    out = {}
    for view in ("1", "2"):
        points = (unit_rows(last[space + view]) - u.mean(axis=0)) @ axes
        q = np.rint((points - np.array(plan["low"])) / plan["side"] * 65535)
        out[view] = blob(np.clip(q, 0, 65535).astype(np.uint16))
    return out

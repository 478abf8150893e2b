"""Measures that need more than one array: projector, clusters, retrieval, movement, kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.clusters import graph_clusters
from chiaroscuro.diagnostics.controls import shuffled
from chiaroscuro.diagnostics.matching import retrieval
from chiaroscuro.diagnostics.movement import movement
from chiaroscuro.diagnostics.neural import kernel_alignment, sample_kernel
from chiaroscuro.diagnostics.projector import augmentations, displacements, unexplained
from chiaroscuro.diagnostics.regions import local_unexplained, regions

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.measuring import About, Measured

__all__ = ["further_measures"]

FEW = 512
LEAST = 64
KERNEL = 48
"""Samples of which the neural kernel is taken."""


def further_measures(
    out: Measured, embeddings: Embeddings, about: About, some: np.ndarray, seed: int
) -> None:
    """Add what arrays together, and the networks, allow.

    Args:
        out: is added to.
        embeddings: whatever there is.
        about: with a projector, a model and its inputs, or parameters of views, if there are any.
        some: rows to use; at most 512 of them.
        seed: of what is drawn.
    """
    some = some[:: max(1, len(some) // FEW)][:FEW]
    if len(some) < LEAST:
        return
    rows = {
        name: np.asarray(array[some], dtype=np.float64)
        for name in ("h", "z", "h1", "h2", "z1", "z2")
        if (array := getattr(embeddings, name)) is not None
    }
    numbers = out.numbers
    if {"h", "z", "h1", "z1"} <= set(rows):
        numbers |= _linear_projector(rows)
    if about.projector is not None and "h" in rows:
        numbers |= _projector(about.projector, rows)
    for space in ("h", "z"):
        if f"{space}1" in rows:
            prefix = "" if space == "h" else "z_"
            recall = lambda a, b: float(retrieval(a, b)["image_to_text"]["recall_1"])
            pair = rows[f"{space}1"], rows[f"{space}2"]
            found = shuffled(recall, *pair, repeats=1, seed=seed)
            out.controls[f"{prefix}recall_1"] = found
            numbers[f"{prefix}recall_1"] = found.value
    labels = None if embeddings.labels is None else np.asarray(embeddings.labels)[some]
    if labels is not None and (labels.min() < 0 or len(np.unique(labels)) < 2):
        labels = None
    if "h" in rows and np.ptp(rows["h"], axis=0).max() > 0:
        numbers |= _clusters(embeddings, rows["h"], labels, some, seed)
    if about.parameters is not None and "h1" in rows:
        moved = movement(rows["h1"], rows["h2"], about.parameters[some])
        numbers["movement_ratio"] = moved.ratio
        numbers |= {f"movement_by_{name}": one.share for name, one in moved.effects.items()}
    if about.model is not None and about.inputs is not None and labels is not None:
        K = sample_kernel(about.model, about.inputs[:KERNEL], seed=seed)
        y = np.asarray(embeddings.labels)[: len(K)]
        if len(np.unique(y)) > 1 and y.min() >= 0:
            numbers["kernel_alignment"] = kernel_alignment(K, y)


def _linear_projector(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """The best linear map from h to z: how good it is, and what it does to augmentations."""
    h, z = (rows[name] - rows[name].mean(axis=0) for name in ("h", "z"))
    if len(h) <= 2 * h.shape[1] or not h.any() or not z.any():
        return {}
    W = np.linalg.lstsq(h, z, rcond=1e-6)[0].T
    left = float(((z - h @ W.T) ** 2).sum() / (z**2).sum())
    found = {"projector_linearity": 1 - left}
    if np.linalg.matrix_rank(W) == 0:
        return found
    seen = augmentations(W, rows["h1"], rows["h2"])
    apart = displacements(rows["h1"], rows["h2"], rows["z1"], rows["z2"])
    return found | {
        "views_annihilated": seen.annihilated,
        "data_annihilated": seen.data,
        "displacement_unexplained": unexplained(W, apart.delta),
    }


def _projector(projector: Any, rows: dict[str, np.ndarray]) -> dict[str, Any]:
    found = regions(projector, rows["h"], rows.get("h2"))
    numbers: dict[str, Any] = {"regions_visited": found.visited, "regions_units_off": found.off}
    if found.together is not None:
        numbers |= {"regions_together": found.together, "regions_by_chance": found.by_chance}
    if "h1" in rows:
        v = rows["h2"] - rows["h1"]
        numbers["views_annihilated_locally"] = local_unexplained(projector, rows["h1"], v)
    return numbers


def _clusters(
    embeddings: Embeddings, h: np.ndarray, labels: np.ndarray | None, some: np.ndarray, seed: int
) -> dict[str, Any]:
    before = embeddings.layers.get("input")
    graph = None if before is None else np.asarray(before[some]).reshape(len(some), -1)
    found = graph_clusters(h, graph, labels, rows=None, seed=seed)
    numbers: dict[str, Any] = {
        "clusters_suggested": found.suggested,
        "cluster_agreement": found.ari,
    }
    if labels is not None:
        numbers |= {"cluster_agreement_labels": found.ari_labels, "homophily": found.homophily}
    return numbers

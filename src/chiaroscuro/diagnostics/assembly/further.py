"""Measures that need more than one array: projector, clusters, retrieval, movement, kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.geometry.actions import action_measures
from chiaroscuro.diagnostics.geometry.movement import movement
from chiaroscuro.diagnostics.geometry.regions import affine_maps, regions
from chiaroscuro.diagnostics.geometry.summary import geometry, weights_of
from chiaroscuro.diagnostics.semantics.clusters import graph_clusters
from chiaroscuro.diagnostics.semantics.matching import retrieval
from chiaroscuro.diagnostics.semantics.meaning import semantic_measures
from chiaroscuro.diagnostics.semantics.neural import PROBES, cluster_kernel, sample_kernel
from chiaroscuro.errors import InputError
from chiaroscuro.measures.controls import shuffled
from chiaroscuro.measures.spectrum import effective_rank

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Context, Measured

__all__ = ["further_measures"]

FEW = 512
LEAST = 64
STRAIGHT = 0.999
"""A fitted linear map that explains so much of z is the projector."""
MAPPED = 4
"""Rows at which a projector that bends must be affine: each has a map of its own."""
KERNEL, FEWEST = 48, 16
"""Samples of which the neural kernel is taken, and below which it is not."""
KERNEL_BYTES = 1 << 31
"""Memory that it may take."""
PRECISE = (torch.float32, torch.float64)
"""Types of the parameters of which it is taken."""


def further_measures(
    out: Measured, embeddings: Embeddings, context: Context, some: np.ndarray, seed: int
) -> None:
    """Add what arrays together, and the networks, allow.

    Args:
        out: is added to.
        embeddings: whatever there is.
        context: with a projector, a model and its inputs, or parameters of views, if there are any.
        some: rows to use; at most 512 of them where all are compared in other ways.
        seed: seed of all random choices.
    """
    if len(some) < LEAST:
        return
    numbers = out.numbers
    context = _understood(embeddings, context)
    numbers |= _geometry(embeddings, context, some, seed)
    if {"projector_effective_rank", "projector_overlap"} <= set(numbers):
        numbers |= _start_rank(embeddings, context)
    some = some[:: max(1, len(some) // FEW)][:FEW]
    rows = {
        name: np.asarray(array[some], dtype=np.float64)
        for name in ("h", "h1", "h2", "z1", "z2")
        if (array := getattr(embeddings, name)) is not None
    }
    for space in ("h", "z"):
        if f"{space}1" in rows:
            prefix = "" if space == "h" else "z_"
            recall = lambda a, b: float(retrieval(a, b)["image_to_text"]["recall_1"])
            pair = rows[f"{space}1"], rows[f"{space}2"]
            control = shuffled(recall, *pair, repeats=1, seed=seed)
            out.controls[f"{prefix}recall_1"] = control
            numbers[f"{prefix}recall_1"] = control.value
    labels = None if embeddings.labels is None else np.asarray(embeddings.labels)[some]
    if labels is not None and (labels.min() < 0 or len(np.unique(labels)) < 2):
        labels = None
    if "h" in rows and np.ptp(rows["h"], axis=0).max() > 0:
        numbers |= _clusters(embeddings, rows["h"], labels, some, seed)
    if context.parameters is not None and "h1" in rows:
        numbers |= action_measures(embeddings, context.parameters, context.first_parameters, seed)
    if context.model is not None and context.inputs is not None:
        numbers |= _kernel(embeddings, context.model, context.inputs, seed)
    if context.task:
        semantic_measures(out, context.task, seed)


def _of_h(embeddings: Embeddings) -> np.ndarray | None:
    return embeddings.h1 if embeddings.h is None else embeddings.h


def _understood(embeddings: Embeddings, context: Context) -> Context:
    """Leave out a projector that has no affine maps: nothing here can take it apart."""
    h, projector = _of_h(embeddings), context.projector
    if projector is None or h is None:
        return context
    try:
        if weights_of(projector, h.shape[1]) is None:
            affine_maps(projector, h[:MAPPED])
    except InputError:
        return replace(context, projector=None, first_projector=None)
    return context


def _kernel(embeddings: Embeddings, model: Any, inputs: Any, seed: int) -> dict[str, Any]:
    """The neural kernel against classes, or else against the clusters of h."""
    if np.ndim(inputs) < 2:  # symbols, each with weights of its own: they share no kernel
        return {}
    if not any(p.requires_grad for p in model.parameters()):  # frozen: it has none
        return {}
    if any(p.dtype not in PRECISE for p in model.parameters()):
        return {}
    n = _affordable(model, inputs)
    if n < FEWEST:
        return {}
    K = sample_kernel(model, inputs[:n], seed=seed)
    labels = None if embeddings.labels is None else np.asarray(embeddings.labels)[: len(K)]
    if labels is None or labels.min() < 0 or len(np.unique(labels)) < 2:
        if embeddings.h is None or not np.ptp(embeddings.h[: len(K)], axis=0).any():
            return {}
        labels = graph_clusters(embeddings.h[: len(K)], rows=None, seed=seed).embedding
    if len(np.unique(labels)) < 2:
        return {}
    summary = cluster_kernel(K, labels)
    return {
        "kernel_alignment": summary.alignment,
        "kernel_within": summary.within,
        "kernel_between": summary.between,
        "kernel_size_exponent": summary.exponent,
    }


def _affordable(model: Any, inputs: Any) -> int:
    """Samples whose layers' outputs, and as many gradients as there are probes, fit in memory."""
    sizes: list[int] = []
    count = lambda module, given, made: sizes.append(made.nbytes if hasattr(made, "nbytes") else 0)
    leaves = [module for module in model.modules() if not any(module.children())]
    hooks = [module.register_forward_hook(count) for module in leaves]
    try:
        with torch.no_grad():
            model(inputs[:1])
    finally:
        for hook in hooks:
            hook.remove()
    return min(KERNEL, len(inputs), KERNEL_BYTES // max(1, (1 + PROBES) * sum(sizes)))


def _geometry(
    embeddings: Embeddings, context: Context, some: np.ndarray, seed: int
) -> dict[str, Any]:
    """What projector, two views and their parameters say, as far as each is there."""
    views = {name: getattr(embeddings, name) for name in ("h1", "h2", "z1", "z2")}
    if any(rows is None for rows in views.values()):
        return _one_layer(embeddings, context, some)
    few = embeddings.take(some)
    numbers: dict[str, Any] = {}
    projector: Any = context.projector
    if projector is None and few.h is not None and few.z is not None:
        projector, numbers = _fitted(few.h, few.z)
    of = lambda omega: None if omega is None else omega[some]
    two = of(context.parameters), of(context.first_parameters)
    measured = geometry(few, projector, *two, seed=seed)
    if numbers.get("projector_linearity", 1.0) < STRAIGHT:  # the rank of a poor fit is not its rank
        measured = {name: x for name, x in measured.items() if not name.startswith("projector_")}
    return numbers | measured


def _start_rank(embeddings: Embeddings, context: Context) -> dict[str, float]:
    """The effective rank that a linear projector began with."""
    h, first = _of_h(embeddings), context.first_projector
    W = None if h is None or first is None else weights_of(first, h.shape[1])
    return {} if W is None else {"projector_start_rank": effective_rank(W, centred=False)}


def _one_layer(embeddings: Embeddings, context: Context, some: np.ndarray) -> dict[str, Any]:
    """Without z of both views: how h moves, and the regions of a projector that is known."""
    numbers: dict[str, Any] = {}
    if embeddings.h1 is not None and embeddings.h2 is not None and context.parameters is not None:
        two = embeddings.h1[some], embeddings.h2[some]
        first = context.first_parameters
        moved = movement(*two, context.parameters[some], None if first is None else first[some])
        numbers["movement_ratio"] = moved.ratio
        numbers |= {f"movement_by_{name}": one.share for name, one in moved.effects.items()}
    if context.projector is not None and embeddings.h is not None:
        seen = regions(context.projector, embeddings.h[some])
        numbers |= {"regions_visited": seen.visited, "regions_units_off": seen.off}
    return numbers


def _fitted(h: Any, z: Any) -> tuple[np.ndarray | None, dict[str, float]]:
    """The best linear map from h to z, and how good it is; for who has no projector."""
    h, z = (np.asarray(x, dtype=np.float64) - np.mean(x, axis=0) for x in (h, z))
    if len(h) <= 2 * h.shape[1] or not h.any() or not z.any():
        return None, {}
    W = np.linalg.lstsq(h, z, rcond=1e-6)[0].T
    left = float(((z - h @ W.T) ** 2).sum() / (z**2).sum())
    return (W if W.any() else None), {"projector_linearity": 1 - left}


def _clusters(
    embeddings: Embeddings, h: np.ndarray, labels: np.ndarray | None, some: np.ndarray, seed: int
) -> dict[str, Any]:
    before = embeddings.layers.get("input")
    graph = None if before is None else np.asarray(before[some]).reshape(len(some), -1)
    clusters = graph_clusters(h, graph, labels, rows=None, seed=seed)
    numbers: dict[str, Any] = {
        "clusters_suggested": clusters.suggested,
        "cluster_agreement": clusters.ari,
    }
    if labels is not None:
        numbers |= {
            "cluster_agreement_labels": clusters.ari_labels,
            "homophily": clusters.homophily,
        }
    return numbers

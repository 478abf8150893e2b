"""The geometry of encoder and projector: the measures of [cosentino2022], all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.geometry.movement import movement, parameter_columns
from chiaroscuro.diagnostics.geometry.projector import augmentations, displacements, unexplained
from chiaroscuro.diagnostics.geometry.regions import BENT, affine_maps, local_unexplained, regions
from chiaroscuro.diagnostics.geometry.span import augmentation_span, predicted_rank
from chiaroscuro.diagnostics.rows import rows_of
from chiaroscuro.errors import need
from chiaroscuro.measures.spectrum import effective_rank, numerical_rank

__all__ = ["geometry", "overlap", "weights_of"]

POINTS = 4
"""Rows at which the map of a projector is compared."""


def weights_of(projector: nn.Module, d_enc: int) -> np.ndarray | None:
    """Return W of an affine projector z = W h + b; None for one with (leaky) ReLUs.

    A last standardisation is part of W, with the statistics that the projector keeps. W is taken at
    4 random rows: a projector with other maps there bends inside its `forward`, and is refused.

    Args:
        projector: projector of Linear, BatchNorm1d, ReLU and LeakyReLU.
        d_enc: dimension of h.

    Relations: `affine_maps` has the same W at every row.

    Example:
        >>> weights_of(nn.Linear(3, 2), 3).shape, weights_of(nn.Sequential(nn.ReLU()), 3)
        ((2, 3), None)
    """
    if any(isinstance(module, BENT) for module in projector.modules()):
        return None
    W = affine_maps(projector, np.random.default_rng(0).normal(size=(POINTS, d_enc))).W
    off = float(np.abs(W - W[0]).max())
    need(
        np.allclose(W, W[0], atol=1e-8 * float(np.abs(W[0]).max())),
        lambda: (
            f"`weights_of(projector)` needs one map for all h; at {POINTS} random rows its entries "
            f"differ by up to {off:.2g}. Make activations modules: `nn.ReLU()`."
        ),
    )
    return W[0]


def overlap(first: Any, second: Any) -> float:
    """Return the cosine of two arrays, entry by entry; 0 where one of them is 0.

    Args:
        first, second: of one shape; weights before and after training.

    Example:
        >>> overlap([3.0, 4.0], [6.0, 8.0]), overlap(np.eye(2), np.eye(2)[::-1])
        (1.0, 0.0)
    """
    a, b = np.asarray(first, dtype=np.float64).ravel(), np.asarray(second, np.float64).ravel()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else 0.0


def geometry(
    embeddings: Embeddings,
    projector: nn.Module | np.ndarray | None = None,
    parameters: Any = None,
    parameters2: Any = None,
    seed: int = 0,
) -> dict[str, float]:
    """Return measures of the projector against encoder and augmentation, by name.

    Of the two views alone: `hardest_distance` of h1 to its hardest negative and, with labels,
    `hardest_agreement` (and `_coarse`) with it [Figs. 5, 6]; `views_cosine_h`, `movement_ratio` and
    `z_movement_ratio`, the invariance of either layer, where 0 is invariant. With a projector,
    `displacement_unexplained` [eq. 10] by its map, or its local ones [Sec. 5], and
    `views_annihilated` beside `data_annihilated` [Sec. 4]. If it is linear, `projector_rank` (above
    1e-3 of the largest singular value) and `projector_effective_rank` [Fig. 1], `views_gain`,
    `views_cosine`, `views_off_ray`, `views_span` and `views_effective_span`; if it bends,
    `regions_visited` and its kin. With the parameters of the views, `span_dimension` and
    `span_explained`, `predicted_rank`, and the share `movement_by_<parameter>` of the movement.

    Relations: the numbers are those of `displacements`, `unexplained`, `local_unexplained`,
    `augmentations`, `regions`, `augmentation_span` and `movement`.

    Args:
        embeddings: with h1, h2, z1, z2; labels and coarse_labels if there are any.
        projector: a module from h to z, or the matrix W of a linear one.
        parameters: parameters of the second view, structured.
        parameters2: of the first.
        seed: seed of all random choices.

    References:
        cosentino2022

    Example:
        >>> h = np.random.default_rng(0).normal(size=(2, 100, 6))
        >>> two = Embeddings(h1=h[0], h2=h[1], z1=h[0][:, :2], z2=h[1][:, :2])
        >>> measured = geometry(two, np.eye(6)[:2])
        >>> measured["projector_rank"], round(measured["displacement_unexplained"], 1)
        (2, 0.7)
    """
    four = {name: getattr(embeddings, name) for name in ("h1", "h2", "z1", "z2")}
    missing = [name for name, value in four.items() if value is None]
    need(
        not missing,
        lambda: f"`geometry` needs two views, h1, h2, z1 and z2; missing are {missing}.",
    )
    x = {name: rows_of("geometry", value).numpy() for name, value in four.items()}
    apart = displacements(x["h1"], x["h2"], x["z1"], x["z2"], seed=seed)
    measures: dict[str, float] = {"hardest_distance": float(apart.distance.mean())}
    for ending, labels in (("", embeddings.labels), ("_coarse", embeddings.coarse_labels)):
        if labels is not None and (np.asarray(labels) >= 0).all():
            measures[f"hardest_agreement{ending}"] = apart.agreement(labels)
    if projector is not None:
        measures |= _projected(projector, x, apart.delta, apart.rows, seed)
    n = len(x["h1"])
    many = parameters is not None and 10 * len(parameter_columns("geometry", parameters, n)) > n
    if many:  # the noise of every coordinate, say: more numbers than rows to tell them by
        parameters = parameters2 = None
    measures |= _moved(x, parameters, parameters2)
    if parameters is not None:
        span = augmentation_span(x["h1"], x["h2"], parameters, parameters2, seed=seed)
        measures |= {"span_dimension": span.dimension, "span_explained": span.explained}
        d_proj, d_enc = x["z1"].shape[1], x["h1"].shape[1]
        measures["predicted_rank"] = predicted_rank(d_proj, d_enc, span.dimension)
    return measures


def _moved(x: Mapping[str, np.ndarray], second: Any, first: Any) -> dict[str, float]:
    """Invariance of both layers, and which parameter of a view moves h."""
    n = len(x["h1"])
    nothing = np.zeros(n, dtype=[("none", float)])
    h = movement(x["h1"], x["h2"], nothing if second is None else second, first)
    z = movement(x["z1"], x["z2"], nothing)
    measures = {"movement_ratio": h.ratio, "z_movement_ratio": z.ratio}
    if second is not None:
        measures |= {f"movement_by_{name}": one.share for name, one in h.effects.items()}
    return measures


def _projected(
    projector: Any, x: Mapping[str, np.ndarray], delta: np.ndarray, rows: np.ndarray, seed: int
) -> dict[str, float]:
    d_enc = x["h1"].shape[1]
    module = isinstance(projector, nn.Module)
    W = weights_of(projector, d_enc) if module else rows_of("geometry(W)", projector, 1).numpy()
    if W is None:
        return _bent(projector, x, delta, rows, seed)
    seen = augmentations(W, x["h1"], x["h2"], seed=seed)
    return {
        "projector_rank": numerical_rank(W, centred=False),
        "projector_effective_rank": effective_rank(W, centred=False),
        "displacement_unexplained": unexplained(W, delta, threshold=1e-3),
        "views_annihilated": seen.annihilated,
        "data_annihilated": seen.data,
        "views_gain": seen.gain,
        "views_cosine": seen.cosine,
        "views_cosine_h": seen.cosine_h,
        "views_off_ray": seen.off_ray,
        "views_span": seen.span,
        "views_effective_span": seen.effective_span,
    }


def _bent(
    projector: nn.Module,
    x: Mapping[str, np.ndarray],
    delta: np.ndarray,
    rows: np.ndarray,
    seed: int,
) -> dict[str, float]:
    visited = regions(projector, x["h1"], x["h2"], seed=seed)
    v = x["h2"] - x["h1"]
    centred = x["h1"] - x["h1"].mean(axis=0)
    local = lambda at, what: local_unexplained(projector, at, what, seed=seed)
    numbers: dict[str, float] = {
        "regions_visited": visited.visited,
        "regions_units": visited.units,
        "regions_units_off": visited.off,
        "displacement_unexplained": local(x["h1"][rows], delta),
        "views_annihilated": local(x["h1"], v),
        "data_annihilated": local(x["h1"], centred),
    }
    if visited.together is not None and visited.by_chance is not None:
        numbers |= {"regions_together": visited.together, "regions_by_chance": visited.by_chance}
    return numbers

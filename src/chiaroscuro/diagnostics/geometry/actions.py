"""Augmentations as actions on the embedding: the generators of those that move it most."""

from __future__ import annotations

from typing import Any

import numpy as np

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.geometry.generator import generator
from chiaroscuro.diagnostics.geometry.movement import movement, parameter_columns

__all__ = ["action_measures"]

ROWS, DIRECTIONS, FITTED = 2048, 16, 3
"""Pairs that are used; directions of h, and parameters, that a generator is fitted to."""


def action_measures(
    embeddings: Embeddings, second: Any, first: Any = None, seed: int = 0
) -> dict[str, float]:
    """Is what a parameter of the views does to h the action of a group? [cosentino2022, Sec. 4]

        h2 = exp(eps G) h1,   eps = the parameter, or its difference between the two views

    fitted for the parameters that move h most, one at a time, in the 16 directions in which h
    varies most: a generator has as many numbers as they squared. `generator_error_<parameter>` is
    the share of the movement that it does not foretell on held-out rows: 1 where it is of no use,
    as where other parameters do the moving. `generator_turns_<parameter>` is 1 for rotations.

    Args:
        embeddings: with h1 and h2.
        second, first: records of the two views; first is None where it did nothing.
        seed: seed of what is held out.
    """
    n = min(ROWS, embeddings.n)
    h1, h2 = (np.asarray(a, dtype=np.float64)[:n] for a in (embeddings.h1, embeddings.h2))
    middle = h1.mean(axis=0)
    if not np.ptp(h1, axis=0).any() or not (h2 - h1).any():
        return {}
    two = second[:n], None if first is None else first[:n]
    call = "action_measures(embeddings, second, first)"
    columns = parameter_columns(call, two[0], n)
    if two[1] is not None:
        before = parameter_columns(call, two[1], n)
        columns = {name: values - before[name] for name, values in columns.items()}
    main = np.linalg.svd(h1 - middle, full_matrices=False)[2][:DIRECTIONS].T
    a, b = (h1 - middle) @ main, (h2 - middle) @ main
    measures = {}
    for name in list(movement(h1, h2, *two).effects)[:FITTED]:
        eps = columns[name] / (columns[name].std() or 1.0)
        if eps.any():
            fit = generator(a, b, eps, rows=None, seed=seed)
            measures[f"generator_error_{name}"] = fit.error
            measures[f"generator_turns_{name}"] = fit.antisymmetry
    return measures

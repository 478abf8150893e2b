"""One law for every diagnostic: NaN rows are named, one row is refused, edges have numbers."""

import json
import math

import numpy as np
import pytest
import torch

from chiaroscuro.diagnostics import (
    Record,
    absolute_rank,
    alignment,
    anatomy,
    augmentations,
    closest,
    decay,
    dimensions,
    displacements,
    generator,
    graph_clusters,
    hubness,
    mean_cosine,
    movement,
    near_duplicates,
    norms,
    readout,
    singular_values,
    spectrum,
    survival,
    uniformity,
)
from chiaroscuro.errors import InputError

N = 12


def omega(n):
    rows = np.zeros(n, dtype=[("angle", float)])
    rows["angle"] = np.linspace(0, 1, n)
    return rows


OF_ROWS = {
    "spectrum": spectrum,
    "decay": decay,
    "singular_values": singular_values,
    "absolute_rank": lambda h: absolute_rank(h, 0.1),
    "dimensions": dimensions,
    "uniformity": uniformity,
    "mean_cosine": mean_cosine,
    "closest": lambda h: closest(h, 1),
    "hubness": lambda h: hubness(h, 1),
    "near_duplicates": near_duplicates,
    "readout": lambda h: readout(h, np.linspace(0, 1, len(h))),
    "survival": lambda h: survival({"h": h}, {"x": np.linspace(0, 1, len(h))}),
    "graph_clusters": graph_clusters,
    "alignment": lambda h: alignment(h, h[: len(h)] * 1.1),
    "anatomy": lambda h: anatomy(h, h * 1.1),
    "augmentations": lambda h: augmentations(np.eye(h.shape[1])[:1], h, h * 1.1),
    "displacements": lambda h: displacements(h, h * 1.1, h, h * 1.1),
    "movement": lambda h: movement(h, h * 1.1, omega(len(h))),
    "generator": lambda h: generator(h, h * 1.1, np.linspace(0.1, 1, len(h))),
    "norms": norms,
}
ALLOWED_ALONE = {"norms", "alignment"}


def rows(n=N, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_row_of_nan_is_named(name):
    h = rows()
    h[7, 1] = math.nan
    with pytest.raises(InputError, match="1 of 12 rows have NaN or infinity, the first is row 7"):
        OF_ROWS[name](h)


@pytest.mark.parametrize("name", sorted(set(OF_ROWS) - ALLOWED_ALONE))
def test_one_row_is_too_few(name):
    with pytest.raises(InputError, match=r"at least \d rows|at least 3 rows to fit"):
        OF_ROWS[name](rows(1))


@pytest.mark.parametrize("name", OF_ROWS)
@pytest.mark.parametrize("shape", [(N, 1), (N, 3), (N, 30)], ids=["d = 1", "d < n", "d > n"])
def test_any_shape_has_numbers_that_json_takes(name, shape):
    found = OF_ROWS[name](rows(*shape))
    if isinstance(found, Record):
        text = json.dumps(found.json(), allow_nan=False)
        assert json.loads(text)


@pytest.mark.parametrize("name", sorted(set(OF_ROWS) - {"graph_clusters"}))
def test_a_collapsed_embedding_is_no_accident(name):
    """Constant rows give numbers, not an exception: they are what a diagnosis is for."""
    found = OF_ROWS[name](np.full((N, 3), 0.7))
    if isinstance(found, Record):
        json.dumps(found.json(), allow_nan=False)


@pytest.mark.parametrize("name", OF_ROWS)
def test_tensors_and_arrays_and_precisions_are_alike(name):
    h = rows()
    of_array, of_tensor = OF_ROWS[name](h), OF_ROWS[name](torch.tensor(h))
    if isinstance(of_array, Record):
        assert of_array.json() == of_tensor.json()
    elif isinstance(of_array, float):
        assert of_array == of_tensor
    OF_ROWS[name](torch.tensor(h, dtype=torch.float16, requires_grad=True).detach())

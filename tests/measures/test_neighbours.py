"""Neighbours against a loop, on ties, cones, far clusters, zero rows and mass duplicates."""

import numpy as np
import pytest

from chiaroscuro.errors import InputError
from chiaroscuro.measures import Labelled, kmeans, knn_accuracy, nearest, neighbours, unit

rng = np.random.default_rng(0)


def loop(x, k, metric, queries=None, among=None):
    """Distances from differences in float64; ties by number."""
    rows = unit(x) if metric == "cosine" else x
    asked = rows if queries is None else (unit(queries) if metric == "cosine" else queries)
    allowed = range(len(x)) if among is None else among
    ids, far = [], []
    for i, a in enumerate(asked):
        others = [j for j in allowed if queries is not None or j != i]
        square = {j: float(((a - rows[j]) ** 2).sum()) for j in others}
        if metric == "cosine":
            square = {j: s + (not a.any()) + (not rows[j].any()) for j, s in square.items()}
        best = sorted(others, key=lambda j: (square[j], j))[:k]
        ids.append(best)
        far.append([square[j] ** 0.5 for j in best])
    return np.array(ids), np.array(far)


CASES = {
    "spread": rng.normal(size=(90, 7)),
    "a cone": 1e-5 * rng.normal(size=(90, 7)) + 1,
    "far from 0": rng.normal(size=(90, 7)) + 1e5,
    "two scales": rng.normal(size=(90, 7)) * np.where(np.arange(90) % 2, 1, 1e4)[:, None],
    "a grid with ties": np.stack(np.meshgrid(*[np.arange(3.0)] * 4), -1).reshape(-1, 4) + 1,
    "duplicates": np.repeat(rng.normal(size=(30, 7)), 3, axis=0),
    "zero rows": np.vstack([np.zeros((4, 7)), rng.normal(size=(60, 7))]),
    "one dimension": rng.normal(size=(50, 1)),
}


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("small", [False, True], ids=["one tile", "many tiles"])
def test_nearest_is_the_loop(name, metric, small, monkeypatch):
    if small:
        monkeypatch.setattr(neighbours, "_AT_ONCE", 300)
        monkeypatch.setattr(neighbours, "_GATHERED", 40)
    x = CASES[name]
    ids, far = loop(x, 5, metric)
    got = nearest(x, 5, metric)
    np.testing.assert_allclose(got.distances, far, rtol=1e-9, atol=1e-12)
    level = ("one dimension", "a grid with ties", "zero rows")  # cosines equal but for rounding
    if name not in level or metric == "euclidean":
        assert got.ids.tolist() == ids.tolist()


def test_blocks_of_maxima_miss_nothing():
    x = rng.normal(size=(700, 9))
    assert nearest(x, 12).ids.tolist() == loop(x, 12, "cosine")[0].tolist()


def test_queries_and_rows_that_may_be_neighbours():
    x, asked = rng.normal(size=(80, 5)), rng.normal(size=(9, 5))
    assert nearest(x, 6, queries=asked).ids.tolist() == loop(x, 6, "cosine", asked)[0].tolist()
    among = np.array([3, 8, 20, 41, 60, 7])
    got = nearest(x, 4, "euclidean", among=among).ids
    assert got.tolist() == loop(x, 4, "euclidean", among=sorted(among))[0].tolist()


def test_rows_that_are_all_level_are_in_order_and_cost_no_square():
    x = np.tile(rng.normal(size=(2, 6)), (900, 1))
    got = nearest(x, 3)
    assert got.ids[0].tolist() == [2, 4, 6]
    assert got.ids[1].tolist() == [3, 5, 7]
    assert (got.distances == 0).all()
    assert nearest(np.ones((500, 4)), 2).ids[9].tolist() == [0, 1]


def test_cosines_are_those_of_the_pairs():
    x = rng.normal(size=(40, 6))
    got = nearest(x, 4)
    u = unit(x)
    want = np.einsum("id,ikd->ik", u, u[got.ids])
    np.testing.assert_allclose(got.cosines, want, atol=1e-12)


def test_sentences():
    with pytest.raises(InputError, match="1 to 4 neighbours of 5 rows; received 5"):
        nearest(np.eye(5), 5)
    with pytest.raises(InputError, match="cosine, euclidean; received `manhattan`"):
        nearest(np.eye(5), 1, "manhattan")
    with pytest.raises(InputError, match="one dimension; received 5 and 4"):
        nearest(np.eye(5), 1, queries=np.eye(4))
    with pytest.raises(InputError, match="squares are finite"):
        nearest(np.eye(5) * 1e200, 1, "euclidean")


def test_euclidean_accuracy_differs_where_length_is_the_class():
    x = rng.normal(size=(200, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.arange(200) % 2
    both = Labelled(x * (1 + 2 * y)[:, None], y)
    assert knn_accuracy(both, both, 5, "majority", "euclidean") > 0.9
    assert knn_accuracy(both, both, 5, "majority") < 0.85


def test_kmeans_is_no_worse_than_many_plain_starts():
    x = np.repeat(rng.normal(size=(6, 5)) * 4, 30, axis=0) + rng.normal(size=(180, 5))
    found = kmeans(x, 6)
    least = np.inf
    for s in range(20):
        draw = np.random.default_rng(s)
        centres = x[draw.choice(180, 6, replace=False)]
        for _ in range(50):
            own = ((x[:, None] - centres) ** 2).sum(2).argmin(1)
            centres = np.stack(
                [x[own == c].mean(0) if (own == c).any() else centres[c] for c in range(6)]
            )
        least = min(least, float(((x - centres[own]) ** 2).sum()))
    assert found.inertia <= least * (1 + 1e-9)
    assert found.labels[0] == 0  # numbered by first rows
    own = found.centres[found.labels]
    assert float(((x - own) ** 2).sum()) == pytest.approx(found.inertia)

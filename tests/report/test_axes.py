"""Where points go, against dense linear algebra and loops."""

import numpy as np
import pytest

from chiaroscuro.errors import InputError
from chiaroscuro.measures import nearest
from chiaroscuro.report.axes import (
    aligned,
    principal_axes,
    similarity_graph,
    umap_of,
    unit_rows,
)

rng = np.random.default_rng(0)


def test_principal_axes_are_those_of_the_svd():
    x = rng.normal(size=(50, 7)) * np.arange(7, 0, -1)
    centred = x - x.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    ours = principal_axes(x)
    theirs = u[:, :2] * s[:2]
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), rtol=1e-9, atol=1e-9)


def test_principal_axes_do_not_depend_on_the_sign_of_a_solver():
    x = rng.normal(size=(30, 4))
    turned = principal_axes(x @ np.diag([-1.0, 1.0, -1.0, 1.0]))
    np.testing.assert_allclose(np.abs(turned), np.abs(principal_axes(x)), atol=1e-9)


def test_alignment_undoes_a_turn_of_every_epoch():
    last = rng.normal(size=(40, 2))
    frames = [last]
    for angle in (0.4, 2.0, -1.3):
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        frames.insert(0, frames[0] @ turn)
    frames[0] = frames[0] * [1, -1]  # and a mirror
    for frame in aligned(frames):
        np.testing.assert_allclose(frame, last, atol=1e-10)


def test_alignment_keeps_distances():
    frames = [rng.normal(size=(20, 2)) for _ in range(3)]
    for before, after in zip(frames, aligned(frames), strict=True):
        distances = [np.linalg.norm(x[:, None] - x[None], axis=2) for x in (before, after)]
        np.testing.assert_allclose(*distances, atol=1e-10)


def test_zero_and_infinite_rows_stay_finite():
    x = np.array([[0.0, 0.0], [np.inf, 1.0], [1e300, 1e300], [1e-300, 0.0]])
    u = unit_rows(x)
    assert np.isfinite(u).all()
    np.testing.assert_allclose(np.linalg.norm(u, axis=1), [0, 0, 1, 1], atol=1e-6)


def test_the_graph_has_the_eigenvalues_of_its_dense_laplacian():
    u = unit_rows(rng.normal(size=(60, 5)))
    graph = similarity_graph(u, 4)
    near = nearest(u, 10).ids
    weights = np.zeros((60, 60))
    for i in range(60):
        weights[i, near[i]] += 0.5
        weights[near[i], i] += 0.5
    weights += 0.02 * weights.sum() / 60 / 60
    degree = weights.sum(axis=1)
    laplacian = np.eye(60) - weights / np.sqrt(degree[:, None] * degree)
    np.testing.assert_allclose(graph.eigenvalues, np.linalg.eigvalsh(laplacian)[:5], atol=1e-8)
    walk = np.eye(60) - weights / degree[:, None]
    for k in range(4):
        v = graph.vectors[:, k]
        np.testing.assert_allclose(walk @ v, graph.eigenvalues[k + 1] * v, atol=1e-6)


def test_rows_that_are_no_landmarks_follow_them(monkeypatch):
    from chiaroscuro.report import axes

    monkeypatch.setattr(axes, "LANDMARKS", 40)
    centres = np.repeat(np.eye(4), 50, axis=0)
    u = unit_rows(centres + 0.05 * rng.normal(size=(200, 4)))
    graph = similarity_graph(u, 3)
    assert len(graph.rows) == 40
    middles = graph.vectors.reshape(4, 50, 3).mean(axis=1)
    far = np.linalg.norm(graph.vectors[:, None] - middles[None], axis=2)
    assert (far.argmin(axis=1) == np.repeat(np.arange(4), 50)).mean() > 0.99


def test_sentences():
    with pytest.raises(InputError, match="at least 3 rows; received 2"):
        similarity_graph(unit_rows(np.eye(2)))


@pytest.mark.extra("umap")
def test_umap_separates_what_is_separate():
    u = unit_rows(np.repeat(np.eye(2, 5), 30, axis=0) + 0.05 * rng.normal(size=(60, 5)))
    plan = umap_of(u)
    assert plan.shape == (60, 2)
    far = np.linalg.norm(plan[:30].mean(axis=0) - plan[30:].mean(axis=0))
    assert far > plan[:30].std()

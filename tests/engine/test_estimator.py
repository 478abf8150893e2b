"""The estimator keeps scikit-learn's promises, and learns."""

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from chiaroscuro import ContrastiveEmbedding
from chiaroscuro.errors import InputError
from chiaroscuro.views import SimCLR


@parametrize_with_checks([ContrastiveEmbedding(n_components=2, epochs=1)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_arrays():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = np.c_[rng.normal(size=(3, 4))[y] * 3, np.zeros(120)] + rng.normal(size=(120, 5)) * 0.3
    names = np.array(["a", "b", "c"])[y]
    model = ContrastiveEmbedding(n_components=4, epochs=5).fit(X[:90], names[:90])
    assert model.score(X[90:], names[90:]) > 0.9
    again = clone(model).fit(X[:90])
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    with pytest.raises(InputError, match="needs labels of the fitted rows"):
        again.score(X, names)
    piped = make_pipeline(StandardScaler(), clone(model)).fit_transform(X)
    assert piped.shape == (120, 4)


def test_pictures():
    X = np.random.default_rng(0).integers(0, 255, (12, 16, 16, 3), np.uint8)
    h = ContrastiveEmbedding(epochs=1).fit(X).transform(X)
    assert h.shape == (12, 128)
    with pytest.raises(InputError, match=r"received \(12, 16, 16, 3\) in float64"):
        ContrastiveEmbedding(epochs=1).fit(X / 255)


def test_pictures_are_embedded_as_they_were_trained_on():
    X = np.random.default_rng(0).integers(0, 255, (12, 16, 16, 3), np.uint8)
    view = "SimCLR(size=8, strength=0.0, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2))"
    model = ContrastiveEmbedding(epochs=1, view=view).fit(X)
    x = SimCLR(8, mean=(0.5, 0.4, 0.3), std=(0.2,) * 3).plain(torch.from_numpy(X).movedim(3, 1))
    with torch.no_grad():
        right = model.networks_.encode(x).numpy()
    np.testing.assert_allclose(model.transform(X), right, rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_what_was_fitted():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 5)), np.arange(12) % 2
    pictures = rng.integers(0, 255, (12, 8, 8, 3), np.uint8)
    arrays = ContrastiveEmbedding(n_components=2, epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        arrays.score(X, y[:3])
    with pytest.raises(InputError, match=r"fitted on, arrays \(n, d\); received shape \(12, 8, 8"):
        arrays.transform(pictures)
    seen = ContrastiveEmbedding(epochs=1).fit(pictures)
    with pytest.raises(InputError, match=r"fitted on, images \(n, h, w, 3\); received shape"):
        seen.transform(X)
    np.testing.assert_allclose(
        seen.transform(pictures[:1]), seen.transform(pictures)[:1], atol=1e-4
    )
    with pytest.raises(InputError, match="at least 2 images"):
        ContrastiveEmbedding(epochs=1).fit(pictures[:1])


def test_an_objective_of_labels_learns_from_y():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.array(["a", "b", "c"])[np.arange(60) % 3]
    make = lambda: ContrastiveEmbedding(3, objective="SupCon()", epochs=2)
    h = make().fit(X, y).transform(X)
    assert not np.allclose(h, make().fit(X, np.roll(np.sort(y), 7)).transform(X))
    with pytest.raises(InputError, match=r"SupCon.* takes labels: `fit\(X, y\)` needs `y`"):
        make().fit(X)
    plain = ContrastiveEmbedding(3, epochs=2)
    np.testing.assert_array_equal(plain.fit(X).transform(X), plain.fit(X, y).transform(X))

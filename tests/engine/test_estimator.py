"""The estimator keeps scikit-learn's promises, and learns."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from chiaroscuro import ContrastiveEmbedding
from chiaroscuro.errors import InputError


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

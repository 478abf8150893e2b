"""Linear probes: how well a linear classifier on frozen features names the class."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from chiaroscuro.diagnostics.rows import Labelled, labels_of, rows_of
from chiaroscuro.errors import need

__all__ = ["PROBES", "logistic_probe", "ridge_probe", "sgd_probe"]


def ridge_probe(train: Labelled, test: Labelled, penalty: float = 1.0) -> float:
    """Return the accuracy of a ridge classifier, in closed form.

        W = (X'X + penalty I)^-1 X'Y,   class = argmax of x'W

    with X the features standardised by the training side and Y = +1 for the class, -1 for others,
    centred. In [0, 1]; 1 where classes are separable and the penalty small.

    Relations: it is `sklearn.linear_model.RidgeClassifier(alpha=penalty)` on standardised features.

    Args:
        train, test: (h, labels) each.
        penalty: 1.0, the default of scikit-learn's.

    Numerics: float64; a feature that is constant on the training side counts for nothing.

    Example:
        >>> h = torch.tensor([[-1.0, 0.3], [-2.0, 0.1], [1.0, 0.2], [2.0, 0.3]])
        >>> both = Labelled(h, torch.tensor([0, 0, 1, 1]))
        >>> ridge_probe(both, both)
        1.0
    """
    need(penalty > 0, lambda: f"`ridge_probe` needs a penalty above 0; received {penalty}.")
    X, y, X_test, truth = _prepared("ridge_probe(train, test)", train, test)
    Y = 2 * F.one_hot(y).double() - 1
    Y_mean = Y.mean(dim=0)
    if X.shape[1] <= len(X):
        eye = torch.eye(X.shape[1], dtype=X.dtype)
        W = torch.linalg.solve(X.T @ X + penalty * eye, X.T @ (Y - Y_mean))
    else:  # the same by the smaller matrix
        eye = torch.eye(len(X), dtype=X.dtype)
        W = X.T @ torch.linalg.solve(X @ X.T + penalty * eye, Y - Y_mean)
    return _accuracy(X_test @ W + Y_mean, truth)


def logistic_probe(train: Labelled, test: Labelled, penalty: float = 1.0) -> float:
    """Return the accuracy of multinomial logistic regression, fitted by L-BFGS.

        minimise  sum_i cross-entropy(x_i'W + b, y_i) + penalty |W|^2 / 2

    on features standardised by the training side. In [0, 1].

    Relations: it is `sklearn.linear_model.LogisticRegression(C=1/penalty)` on standardised
    features.

    Args:
        train, test: (h, labels) each.
        penalty: 1.0, the default of scikit-learn's.

    Example:
        >>> h = torch.tensor([[-1.0, 0.3], [-2.0, 0.1], [1.0, 0.2], [2.0, 0.3]])
        >>> both = Labelled(h, torch.tensor([0, 0, 1, 1]))
        >>> logistic_probe(both, both)
        1.0
    """
    need(penalty > 0, lambda: f"`logistic_probe` needs a penalty above 0; received {penalty}.")
    X, y, X_test, truth = _prepared("logistic_probe(train, test)", train, test)
    n_classes = int(y.max()) + 1
    W = torch.zeros(X.shape[1], n_classes, dtype=X.dtype, requires_grad=True)
    b = torch.zeros(n_classes, dtype=X.dtype, requires_grad=True)
    solver = torch.optim.LBFGS(
        [W, b], max_iter=500, tolerance_grad=1e-7, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(X @ W + b, y) + penalty * W.square().sum() / (2 * len(X))
        loss.backward()
        return loss

    with torch.enable_grad():
        solver.step(closure)
    with torch.no_grad():
        return _accuracy(X_test @ W + b, truth)


def sgd_probe(train: Labelled, test: Labelled, seed: int = 0, epochs: int = 100) -> float:
    """Return the accuracy of a linear head trained by SGD [tan2024, Appendix B].

    SGD with learning rate 0.3 falling to 0 along a cosine, batches of 64, weight decay 1e-6, 100
    epochs, no augmentation, features as they come. The paper states no momentum: none is used. The
    accuracy is that of the last epoch, never the best; NaN if so high a rate diverged on features
    so large.

    Args:
        train, test: (h, labels) each.
        seed: seed of the order of samples and of the head's start.
        epochs: 100 [tan2024, Appendix B].

    References:
        tan2024

    Example:
        >>> h = torch.tensor([[-1.0, 0.3], [-2.0, 0.1], [1.0, 0.2], [2.0, 0.3]])
        >>> both = Labelled(h, torch.tensor([0, 0, 1, 1]))
        >>> sgd_probe(both, both)
        1.0
    """
    X, y, X_test, truth = _checked("sgd_probe(train, test)", train, test)
    X, X_test = X.float(), X_test.float()
    draw = torch.Generator().manual_seed(seed)
    n_classes = int(y.max()) + 1
    bound = 1 / math.sqrt(X.shape[1])  # torch's own start of a linear layer
    W = torch.empty(X.shape[1], n_classes).uniform_(-bound, bound, generator=draw)
    b = torch.empty(n_classes).uniform_(-bound, bound, generator=draw)
    batches = math.ceil(len(X) / 64)
    for epoch in range(epochs):
        for step, some in enumerate(torch.randperm(len(X), generator=draw).split(64)):
            done = (epoch * batches + step) / (epochs * batches)
            lr = 0.3 * (1 + math.cos(math.pi * done)) / 2
            x = X[some]
            # the gradient of the mean cross-entropy, written out: twice as fast as autograd here
            g = torch.softmax(x @ W + b, dim=1)
            g[torch.arange(len(x)), y[some]] -= 1
            g /= len(x)
            W -= lr * (x.T @ g + 1e-6 * W)
            b -= lr * (g.sum(dim=0) + 1e-6 * b)
    scores = X_test @ W + b
    return _accuracy(scores, truth) if bool(scores.isfinite().all()) else math.nan


PROBES: dict[str, Callable[[Labelled, Labelled], float]] = {
    "ridge": ridge_probe,
    "logistic": logistic_probe,
    "sgd": sgd_probe,
}
"""The probes by name; the protocol of each is in its docstring."""


def _checked(call: str, train: Labelled, test: Labelled) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    X, X_test = rows_of(call, train.h), rows_of(call, test.h, 1)
    y, truth = labels_of(call, train.labels, len(X)), labels_of(call, test.labels, len(X_test))
    need(
        X.shape[1] == X_test.shape[1],
        lambda: f"`{call}` needs one dimension; received {X.shape[1]} and {X_test.shape[1]}.",
    )
    need(
        len(y.unique()) > 1,
        lambda: f"`{call}` needs at least 2 classes to train on; received {len(y.unique())}.",
    )
    return X, y, X_test, truth


def _prepared(call: str, train: Labelled, test: Labelled) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Checked, and standardised by mean and deviation of the training side."""
    X, y, X_test, truth = _checked(call, train, test)
    mean, deviation = X.mean(dim=0), X.std(dim=0, correction=0)
    deviation = torch.where(deviation > 1e-12 * mean.abs(), deviation, torch.inf)
    return (X - mean) / deviation, y, (X_test - mean) / deviation, truth


def _accuracy(scores: Tensor, truth: Tensor) -> float:
    return float((scores.argmax(dim=1) == truth).double().mean())

"""`ContrastiveEmbedding`: training behind the interface of scikit-learn."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from chiaroscuro.data.extras import bring
from chiaroscuro.engine.embedding import embed
from chiaroscuro.engine.ingredients import as_objective
from chiaroscuro.engine.training import train
from chiaroscuro.errors import InputError, need

__all__ = ["ContrastiveEmbedding"]

_base = bring("sklearn.base", "`ContrastiveEmbedding`", "scikit-learn")
_Names: Any = _base.ClassNamePrefixFeaturesOutMixin
_Transformer: Any = _base.TransformerMixin
_Estimator: Any = _base.BaseEstimator
_validation = bring("sklearn.utils.validation", "`ContrastiveEmbedding`", "scikit-learn")


def _preserved_random_state() -> Any:
    """torch's random states, of all devices, end as they began."""
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()))


class ContrastiveEmbedding(_Names, _Transformer, _Estimator):
    """Contrastive embedding of arrays (n, d) or images (n, h, w, 3), as a scikit-learn transformer.

    Labels are optional, for objectives that use them.

    Arrays are standardised, augmented with noise and encoded by a small perceptron; images (uint8)
    are augmented as in SimCLR and encoded by a small residual network. `transform` returns the
    representation h.

    Args:
        n_components: dimension of h for arrays.
        objective: objective, its text, or any function `(z1, z2) -> scalar`; NT-Xent at tau 0.5
            [chen2020simclr, B.9].
        view: view, its text, or a function of one sample; None is `Jitter(noise=0.5)` for arrays
            and `SimCLR` at strength 0.5 for images.
        encoder: module, which is copied, or its text; None chooses one that fits the data.
        epochs, batch, lr: training settings of AdamW; our own defaults.
        random_state: seed of weights, order and views.

    Attributes:
        networks_: encoder and projector. n_features_in_: columns of an array.

    References:
        chen2020simclr

    Example:
        >>> X = np.random.default_rng(0).normal(size=(40, 5))
        >>> ContrastiveEmbedding(n_components=3, epochs=2).fit(X).transform(X).shape
        (40, 3)
    """

    def __init__(
        self,
        n_components: int = 16,
        *,
        objective: Any = "InfoNCE(kernel=Cosine(tau=0.5))",
        view: Any = None,
        encoder: Any = None,
        epochs: int = 20,
        batch: int = 128,
        lr: float = 3e-3,
        random_state: Any = 0,
    ):
        self.n_components = n_components
        self.objective = objective
        self.view = view
        self.encoder = encoder
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> ContrastiveEmbedding:
        """Train on X; y is for `score`, and for an objective of labels such as `SupCon`."""
        x = self._checked(X, fitting=True)
        if y is not None:
            y = np.asarray(y)
            _validation.check_consistent_length(x, y)
        supervised = "labels" in as_objective(self.objective).takes
        need(
            y is not None or not supervised,
            lambda: f"`{self.objective}` takes labels: `fit(X, y)` needs `y`; received None.",
        )
        draw = _validation.check_random_state(self.random_state)
        self.images_ = x.ndim == 4
        if not self.images_:
            self.mean_ = x.mean(axis=0)
            deviation = x.std(axis=0)
            self.scale_ = np.where(deviation > 0, deviation, 1.0)
        with _preserved_random_state():
            run = train(
                self._settings(x, int(draw.randint(2**31 - 1))),
                data=self._batch(x) | ({"labels": _numbered(y)} if supervised else {}),
                objective=copy.deepcopy(self.objective),
                view=_view(x) if self.view is None else self.view,
                encoder=self._encoder(x) if self.encoder is None else copy.deepcopy(self.encoder),
            )
        self.networks_, self.views_ = run.networks, run.views
        if not self.images_:
            self.networks_.double()  # a row's embedding then hardly depends on its batch
        self.h_ = self._embed(x)
        self.y_ = y
        self._n_features_out = self.h_.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the representations h of X, (n, d)."""
        _validation.check_is_fitted(self, "networks_")
        return self._embed(self._checked(X, fitting=False))

    def score(self, X: Any, y: Any) -> float:
        """Return the share of X whose 20 nearest fitted rows, by cosine, name its y by majority."""
        if getattr(self, "y_", None) is None:
            raise InputError("`score(X, y)` needs labels of the fitted rows: `fit(X, y)`.")
        _validation.check_consistent_length(X, y)
        unit = lambda h: h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
        similar = unit(self.transform(X)) @ unit(self.h_).T
        nearest = np.argsort(-similar, axis=1, kind="stable")[:, :20]
        classes, of = np.unique(self.y_, return_inverse=True)
        votes = [np.bincount(of[row], minlength=len(classes)).argmax() for row in nearest]
        return float(np.mean(classes[votes] == np.asarray(y)))

    def _checked(self, X: Any, fitting: bool) -> np.ndarray:
        least, shape = 2 if fitting else 1, getattr(X, "shape", None)
        images = shape is not None and len(shape) == 4
        need(
            fitting or images == self.images_,
            lambda: (
                "`ContrastiveEmbedding` needs what it was fitted on, "
                f"{'images (n, h, w, 3)' if self.images_ else 'arrays (n, d)'}; received "
                f"{'a ' + type(X).__name__ if shape is None else f'shape {tuple(shape)}'}."
            ),
        )
        if images:
            x = np.asarray(X)
            need(
                x.dtype == np.uint8 and x.shape[3] == 3 and len(x) >= least,
                lambda: (
                    f"`ContrastiveEmbedding` needs at least {least} images (n, h, w, 3) in "
                    f"uint8; received {x.shape} in {x.dtype}."
                ),
            )
            return x
        return _validation.validate_data(
            self, X, reset=fitting, dtype=np.float64, ensure_min_samples=least
        )

    def _batch(self, x: np.ndarray) -> dict[str, np.ndarray]:
        if self.images_:
            return {"images": x}
        return {"x": ((x - self.mean_) / self.scale_).astype(np.float32)}

    def _embed(self, x: np.ndarray) -> np.ndarray:
        if self.images_:
            embeddings = embed(self.networks_, {"images": x}, views=self.views_)
            return np.asarray(embeddings.h, dtype=np.float64)
        rows = torch.from_numpy((x - self.mean_) / self.scale_)
        with torch.no_grad():
            return self.networks_.encode(rows).numpy()

    def _encoder(self, x: np.ndarray) -> str:
        if x.ndim == 4:
            return "ResNet(depth=9, width=0.25, stem='small')"
        return f"MLP(d_in={x.shape[1]}, d={self.n_components}, depth=2, width=64)"

    def _settings(self, x: np.ndarray, seed: int) -> dict[str, Any]:
        return {
            "seed": seed,
            "epochs": self.epochs,
            "batch": min(self.batch, len(x)),
            "data": {"part": "all"},
            "network": {"projector": "Projector(d=32)"},
            "optimiser": {"name": "adamw", "lr": float(self.lr)},
            "schedule": {"warmup": 0.0},
        }


def _numbered(y: np.ndarray) -> np.ndarray:
    """Return classes of any kind as whole numbers from 0."""
    return np.unique(y, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _view(x: np.ndarray) -> str:
    if x.ndim == 4:
        return f"SimCLR(size={max(x.shape[1:3])}, strength=0.5)"
    return "Jitter(noise=0.5)"

"""Additive noise along given directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.views.view import View, alike, record, tensor

__all__ = ["LAWS", "Directions", "amounts"]

LAWS = ("normal", "uniform")


@dataclass(frozen=True, repr=False, eq=False)
class Directions(View):
    """Move samples at random along given directions.

        x_v = x + sum_k eps_k v_k,   eps_k ~ N(0, scale_k^2)  or  uniform in [-scale_k, scale_k]

    The linear model of an augmentation: what the two views of a sample differ in is exactly the
    span of the v_k, which a projector may learn to annihilate [cosentino2022, Sec. 4].

    Relations: `LieAction` of the nilpotent generator that maps a constant coordinate to v is the
    same motion.

    Args:
        directions: (k, d), or (d,) for one; used as they come, not normalised. A sample of any
            shape is flattened to d.
        scale: one number or one per direction, > 0.
        law: "normal" or "uniform".

    Numerics: computed in the batch's own precision; half precision rounds.

    References:
        cosentino2022

    Example:
        >>> import torch
        >>> x, parameters = Directions([[1.0, 0.0]], scale=0.5)(torch.zeros(2, 2), ids=[0, 1])
        >>> x[:, 1].tolist(), bool((x[:, 0].numpy() == parameters["eps"][:, 0]).all())
        ([0.0, 0.0], True)
    """

    directions: Any
    scale: float | tuple[float, ...]
    law: str = "normal"

    def __post_init__(self) -> None:
        V = np.array(getattr(self.directions, "tolist", lambda: self.directions)(), dtype=float)
        V = V[None] if V.ndim == 1 else V
        need(
            V.ndim == 2 and V.size > 0 and bool(np.isfinite(V).all()),
            lambda: f"`Directions` needs finite directions (k, d); received shape {V.shape}.",
        )
        object.__setattr__(self, "directions", _frozen(V))
        object.__setattr__(self, "scale", scales("Directions", self.scale, len(V)))
        check_law("Directions", self.law)

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Return the moved samples, and `eps` (n, k)."""
        x = tensor("Directions", batch, ids, "samples")
        k, d = self.directions.shape
        need(
            x.is_floating_point() and math.prod(x.shape[1:]) == d,
            lambda: (
                f"`Directions` in {d} dimensions needs floats of {d} numbers per sample; received "
                f"{x.dtype} of shape {tuple(x.shape)}."
            ),
        )
        eps = amounts(self, self.scale, self.law, k, (ids, seed, epoch, view)).astype(np.float32)
        moved = x.reshape(len(x), d)
        # one direction at a time: a matrix product would round differently in other batches
        for amount, v in zip(alike(eps, x).unbind(1), alike(self.directions, x), strict=True):
            moved = moved + amount[:, None] * v
        return moved.view_as(x), record(len(x), eps=eps)


def amounts(view: View, scale: Any, law: str, k: int, place: tuple[Any, int, int, int]) -> Any:
    """Return random amounts (n, k) of the law and scale."""
    draws = view.draws(*place)
    eps = draws.normal(k) if law == "normal" else 2 * draws.uniform(k) - 1
    return eps * np.asarray(scale)


def scales(name: str, scale: Any, k: int) -> float | tuple[float, ...]:
    """Return a scale as one number, or as one per direction."""
    values = np.asarray(getattr(scale, "tolist", lambda: scale)(), dtype=float)
    need(
        values.shape in ((), (k,)) and bool((values > 0).all() and np.isfinite(values).all()),
        lambda: (
            f"`{name}(scale={scale!r})` needs one scale above 0, or {k} of them; received "
            f"{values.tolist()}."
        ),
    )
    return float(values) if values.ndim == 0 else tuple(values.tolist())


def check_law(name: str, law: str) -> None:
    """Refuse a law that is not one of `LAWS`."""
    need(law in LAWS, lambda: f"`{name}(law={law!r})` needs {' or '.join(map(repr, LAWS))}.")


def _frozen(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values

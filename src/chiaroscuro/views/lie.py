"""Actions of Lie groups: exp(eps G) on vectors, and rigid motions of images."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from chiaroscuro.errors import need
from chiaroscuro.numerics import wide
from chiaroscuro.views.directions import amounts, check_law, scales
from chiaroscuro.views.reference import unit
from chiaroscuro.views.view import View, alike, record, tensor

__all__ = ["LieAction", "RigidMotion", "exp_action"]

_TERMS = {torch.float32: 12, torch.float64: 19}  # 1/12! and 1/19! are below the last digit
_FEW, _ROOM = 8, 1 << 22  # generators, and numbers of the matrices that are held at once
_BORDERS = ("zeros", "border", "reflection")


@dataclass(frozen=True, repr=False, eq=False)
class LieAction(View):
    """Act on vectors with a random element of the group that given generators span.

        x_v = exp(sum_k eps_k G_k) x,   eps_k ~ N(0, scale_k^2)  or  uniform in [-scale_k, scale_k]

    The model of an augmentation that acts on the representation [cosentino2022, Sec. 4]: to first
    order x moves along G_k x, a direction that depends on where it is.

    Relations: antisymmetric generators keep |x|; one G is a one-parameter group, so eps and then
    eps' is eps + eps'; for small scales it is x + sum_k eps_k G_k x.

    Args:
        generators: (k, d, d), or (d, d) for one.
        scale: one number or one per generator, > 0.
        law: "normal" or "uniform". The paper leaves it open: it takes eps_i as given.

    Numerics: the exponential's series on the vector itself, never of the matrix, in steps of norm
    at most 1: as exact as the dtype, at one product of (d, d) and each row for a term (k of them
    where few generators meet large batches). The products may round differently in batches of other
    sizes. Half precision is computed in float32.

    References:
        cosentino2022

    Example:
        >>> turn = LieAction([[0.0, -1.0], [1.0, 0.0]], scale=3.0, law="uniform")
        >>> x, parameters = turn(torch.tensor([[1.0, 0.0]]), ids=[4])
        >>> bool(torch.isclose(x[0, 0], torch.cos(torch.tensor(parameters["eps"][0, 0]))))
        True
    """

    generators: Any
    scale: float | tuple[float, ...]
    law: str = "normal"

    def __post_init__(self) -> None:
        got = self.generators
        G = np.array(getattr(got, "tolist", lambda: got)(), dtype=float)
        G = G[None] if G.ndim == 2 else G
        need(
            G.ndim == 3 and G.shape[1] == G.shape[2] and G.size > 0 and np.isfinite(G).all(),
            lambda: (
                "`LieAction` needs finite square generators (d, d) or (k, d, d); received shape "
                f"{G.shape}."
            ),
        )
        G.flags.writeable = False
        object.__setattr__(self, "generators", G)
        object.__setattr__(self, "scale", scales("LieAction", self.scale, len(G)))
        check_law("LieAction", self.law)

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Return the vectors acted upon, and `eps` (n, k)."""
        x = tensor("LieAction", batch, ids, "vectors")
        k, d = self.generators.shape[:2]
        need(
            x.is_floating_point() and x.ndim == 2 and x.shape[1] == d,
            lambda: (
                f"`LieAction` with {d} x {d} generators needs floats (n, {d}); received {x.dtype} "
                f"of shape {tuple(x.shape)}."
            ),
        )
        eps = amounts(self, self.scale, self.law, k, (ids, seed, epoch, view)).astype(np.float32)
        v = wide(x)
        moved = exp_action(alike(self.generators, v), alike(eps, v), v)
        return moved.to(x.dtype), record(len(x), eps=eps)


def exp_action(generators: Tensor, eps: Tensor, x: Tensor) -> Tensor:
    """exp(sum_k eps_ik G_k) x_i for each row i, without forming a matrix exponential.

    Example:
        >>> G = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])
        >>> exp_action(G, torch.tensor([[2.0]]), torch.tensor([[1.0, 1.0]]))
        tensor([[3., 1.]])
    """
    if not len(x):
        return x
    k, d = generators.shape[:2]
    # of each row, whatever the others: its generator's norm is at most the largest sum of a column
    steps = (eps.abs() @ generators.abs().sum(dim=1)).amax(dim=1).ceil().clamp(min=1)
    share = eps / steps[:, None]
    if k <= _FEW and len(x) * d * d > _ROOM:
        return _series(lambda on: _each(generators, share[on]), steps, x)
    moved = []
    for some in torch.arange(len(x), device=x.device).split(max(1, _ROOM // d**2)):
        A = (share[some] @ generators.flatten(1)).view(-1, d, d)
        moved.append(_series(lambda on, A=A: _whole(A[on]), steps[some], x[some]))
    return torch.cat(moved)


_Map = Callable[[Tensor], Tensor]


def _series(of: Callable[[Tensor], _Map], steps: Tensor, x: Tensor) -> Tensor:
    """exp(A_i)^steps_i x_i, where `of(rows)` maps those rows v_i to A_i v_i."""
    for step in range(int(steps.max())):
        on = (step < steps).nonzero()[:, 0]
        act = of(on)
        moved = term = x[on]
        for j in range(1, _TERMS[x.dtype] + 1):
            term = act(term) / j
            moved = moved + term
        x = x.index_copy(0, on, moved)
    return x


def _whole(A: Tensor) -> _Map:
    """A_i v_i, by the matrix of each row."""
    return lambda v: torch.bmm(A, v[:, :, None])[:, :, 0]


def _each(generators: Tensor, share: Tensor) -> _Map:
    """sum_k share_ik G_k v_i, without a matrix of each row."""
    images = lambda v: torch.einsum("kab,nb->nka", generators, v)
    return lambda v: torch.einsum("nk,nka->na", share, images(v))


@dataclass(frozen=True, repr=False, eq=False)
class RigidMotion(View):
    """Rotate and shift images at random, with bilinear interpolation.

        x_v(p) = x(R(-angle) (p - shift)),   p from the centre of the image

    Rotations and translations are the group SE(2) acting on the plane; on images they act through
    it, up to the blur of bilinear sampling and what leaves the frame.

    Relations: a quarter turn of a square image is `torch.rot90`; a shift by whole pixels moves
    pixels; angle and shift 0 leave the image as it is; all to rounding.

    Args:
        angle: rotations are uniform in [-angle, angle] radians, anticlockwise as one looks at it.
            pi covers the circle. No default: it depends on what the data are invariant to.
        shift: each of the two translations is uniform in [-shift, shift], in parts of the side.
        border: what lies outside: "zeros", "border" (the nearest pixel) or "reflection".

    Numerics: floats are sampled in their own precision; uint8 becomes floats in [0, 1].

    References:
        cosentino2022

    Example:
        >>> x = torch.arange(9.0).view(1, 1, 3, 3)
        >>> RigidMotion(angle=0.0, shift=0.0)(x, ids=[0])[0].equal(x)
        True
    """

    angle: float
    shift: float
    border: str = "zeros"

    def __post_init__(self) -> None:
        for name in ("angle", "shift"):
            value = getattr(self, name)
            need(
                isinstance(value, int | float) and 0 <= value < math.inf,
                lambda name=name, value=value: (
                    f"`RigidMotion({name}={value!r})` needs `{name} >= 0`; received `{value!r}`."
                ),
            )
        need(
            self.border in _BORDERS,
            lambda: f"`RigidMotion(border={self.border!r})` needs one of {', '.join(_BORDERS)}.",
        )

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Return the moved images, and `angle` (radians),
        `down` and `right` (parts of the side).
        """
        x = tensor("RigidMotion", batch, ids, "images")
        need(
            x.ndim == 4 and (x.dtype == torch.uint8 or x.is_floating_point()),
            lambda: (
                "`RigidMotion` needs images (n, c, h, w), uint8 or floats; received "
                f"{x.dtype} of shape {tuple(x.shape)}."
            ),
        )
        u = 2 * self.draws(ids, seed, epoch, view).uniform(3) - 1
        motion = record(
            len(x),
            angle=(self.angle * u[:, 0]).astype(np.float32),
            down=(self.shift * u[:, 1]).astype(np.float32),
            right=(self.shift * u[:, 2]).astype(np.float32),
        )
        return moved(unit(x), motion, self.border), motion


def moved(x: Tensor, motion: np.ndarray, border: str) -> Tensor:
    """Return images turned by `angle`, then shifted by `down` and `right`."""
    if not len(x):
        return x
    height, width = x.shape[2:]
    angle = motion["angle"].astype(np.float64)
    cos, sin = np.cos(angle), np.sin(angle)
    # where each pixel of the view comes from, in pixels from the centre: rows point down
    to_y, to_x = motion["down"] * float(height), motion["right"] * float(width)
    # in torch's coordinates the sides run from -1 to 1
    theta = np.empty((len(x), 2, 3))
    theta[:, 0, 0], theta[:, 0, 1] = cos, -sin * height / width
    theta[:, 1, 0], theta[:, 1, 1] = sin * width / height, cos
    theta[:, 0, 2] = -(cos * to_x - sin * to_y) * 2 / width
    theta[:, 1, 2] = -(sin * to_x + cos * to_y) * 2 / height
    grid = F.affine_grid(alike(theta, x), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode=border, align_corners=False)

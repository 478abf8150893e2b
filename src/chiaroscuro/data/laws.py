"""Laws of latents around a centre: marginals (the centre is the space's own) and conditionals."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from chiaroscuro.data.bells import Bell
from chiaroscuro.data.spaces import Box, Space, Sphere, rounding
from chiaroscuro.data.streams import Array, Stream
from chiaroscuro.errors import InputError, need

__all__ = [
    "Delta",
    "GeneralisedNormal",
    "Laplace",
    "Law",
    "Normal",
    "Uniform",
    "VonMisesFisher",
]

Scale = float | tuple[float, ...]


class Law(ABC):
    """Abstract distribution on a space, around a centre."""

    @abstractmethod
    def draw(self, centre: Array, space: Space, stream: Stream) -> Array:
        """One point around each row of centres (n, k)."""

    @abstractmethod
    def log_density(self, z: Array, centre: Array, space: Space) -> Array:
        """log p(z_i | centre_i), (n,), with respect to the volume (on a sphere: to the surface)."""


@dataclass(frozen=True)
class Delta(Law):
    """No variation: content [rusak2022, Sec. 2]. Its density is with respect to counting.

    Example:
        >>> Delta().log_density(np.array([[1.0], [2.0]]), np.array([[1.0], [1.0]]), Box(1))
        array([  0., -inf])
    """

    def draw(self, centre: Array, space: Space, stream: Stream) -> Array:
        return centre.copy()

    def log_density(self, z: Array, centre: Array, space: Space) -> Array:
        return np.where((z == centre).all(axis=1), 0.0, -np.inf)


@dataclass(frozen=True)
class Uniform(Law):
    """Uniform on the whole space, or within `width` of the centre, coordinate by coordinate.

    Args:
        width: half the side; None is all of a box or sphere. A box cuts what leaves it.

    Example:
        >>> float(Uniform().log_density(np.zeros((1, 3)), np.zeros((1, 3)), Box(3, -1, 1))[0])
        -2.0794415416798357
    """

    width: float | None = None

    def __post_init__(self) -> None:
        if self.width is not None:
            _positive("Uniform", "width", self.width)

    def draw(self, centre: Array, space: Space, stream: Stream) -> Array:
        if isinstance(space, Sphere):
            self._whole()
            v = stream.normal(centre.shape[1])
            return v * (_norm(centre) / _norm(v))
        low, high = self._sides(centre, space)
        return low + (high - low) * stream.uniform(centre.shape[1])

    def log_density(self, z: Array, centre: Array, space: Space) -> Array:
        if isinstance(space, Sphere):
            self._whole()
            k, radius = z.shape[1], _norm(centre)[:, 0]
            return np.where(_as_far(z, radius), -_log_area(k) - (k - 1) * np.log(radius), -np.inf)
        low, high = self._sides(centre, space)
        inside = ((z >= low) & (z <= high)).all(axis=1)
        return np.where(inside, -np.log(high - low).sum(axis=1), -np.inf)

    def _sides(self, centre: Array, space: Space) -> tuple[Array, Array]:
        low, high = np.full_like(centre, -np.inf), np.full_like(centre, np.inf)
        if isinstance(space, Box):
            low, high = np.full_like(centre, space.low), np.full_like(centre, space.high)
        if self.width is not None:
            low, high = np.maximum(low, centre - self.width), np.minimum(high, centre + self.width)
        need(
            self.width is not None or isinstance(space, Box),
            lambda: f"`Uniform()` on `{space}` needs a width; received None.",
        )
        need(
            bool((low <= high).all()),
            lambda: (
                f"`{self}` needs centres in `{space}`; {(low > high).any(axis=1).sum()} are not."
            ),
        )
        return low, high

    def _whole(self) -> None:
        need(
            self.width is None,
            lambda: f"`Uniform(width)` on a sphere needs None; received {self.width}.",
        )


@dataclass(frozen=True)
class Normal(Law):
    """Normal around the centre; in a box, `truncated` keeps it inside.

        p(z | c) = prod_k exp(-(z_k - c_k)^2 / (2 std_k^2)) / normaliser

    Relations: `GeneralisedNormal(2, sqrt(2) * std)`.

    Args:
        std: one, or one per coordinate of the block.
        truncated: cut at the walls of the box (and normalised there); else it may leave the box.

    Example:
        >>> from chiaroscuro.data import Euclidean
        >>> float(Normal(1.0).log_density(np.zeros((1, 1)), np.zeros((1, 1)), Euclidean(1))[0])
        -0.9189385332046727
    """

    std: Scale
    truncated: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", _scale("Normal", "std", self.std))

    def draw(self, centre: Array, space: Space, stream: Stream) -> Array:
        return _bell(self, 2.0, _times(self.std, math.sqrt(2))).draw(centre, space, stream)

    def log_density(self, z: Array, centre: Array, space: Space) -> Array:
        bell = _bell(self, 2.0, _times(self.std, math.sqrt(2)))
        return bell.log_density(z, centre, space)


@dataclass(frozen=True)
class Laplace(Law):
    """Laplace around the centre; in a box, `truncated` keeps it inside.

        p(z | c) = prod_k exp(-|z_k - c_k| / scale_k) / normaliser

    Relations: `GeneralisedNormal(1, scale)`.

    Args:
        scale: one, or one per coordinate of the block; the standard deviation is sqrt(2) scale.
        truncated: as for `Normal`.

    Example:
        >>> from chiaroscuro.data import Euclidean
        >>> float(Laplace(0.5).log_density(np.zeros((1, 1)), np.zeros((1, 1)), Euclidean(1))[0])
        0.0
    """

    scale: Scale
    truncated: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _scale("Laplace", "scale", self.scale))

    def draw(self, centre: Array, space: Space, stream: Stream) -> Array:
        return _bell(self, 1.0, self.scale).draw(centre, space, stream)

    def log_density(self, z: Array, centre: Array, space: Space) -> Array:
        return _bell(self, 1.0, self.scale).log_density(z, centre, space)


@dataclass(frozen=True)
class GeneralisedNormal(Law):
    """Generalised normal law; its InfoNCE kernel is `Lp(p, scale^p)` [zimmermann2021clica].

        p(z | c) = prod_k p / (2 scale_k Gamma(1/p)) exp(-|z_k - c_k|^p / scale_k^p)

    Args:
        p: the power.
        scale: one, or one per coordinate of the block; the variance is
            scale^2 Gamma(3/p) / Gamma(1/p).
        truncated: as for `Normal`.

    References:
        zimmermann2021clica

    Example:
        >>> from chiaroscuro.data import Euclidean
        >>> law, zero = GeneralisedNormal(1.0, 0.5), np.zeros((1, 1))
        >>> float(law.log_density(zero, zero, Euclidean(1))[0])
        0.0
    """

    p: float
    scale: Scale
    truncated: bool = False

    def __post_init__(self) -> None:
        _positive("GeneralisedNormal", "p", self.p)
        object.__setattr__(self, "scale", _scale("GeneralisedNormal", "scale", self.scale))

    def draw(self, centre: Array, space: Space, stream: Stream) -> Array:
        return _bell(self, self.p, self.scale).draw(centre, space, stream)

    def log_density(self, z: Array, centre: Array, space: Space) -> Array:
        return _bell(self, self.p, self.scale).log_density(z, centre, space)


@dataclass(frozen=True)
class VonMisesFisher(Law):
    """Von Mises-Fisher around the centre's direction; the centre's norm is kept.

        p(z | c) = C_k(kappa) exp(kappa cos(z, c)),   on the sphere of radius |c| in R^k

    so that the style of a latent on the sphere varies and the whole stays on it. Drawn by Wood's
    rejection. E cos = I_(k/2)(kappa) / I_(k/2-1)(kappa). In one dimension the sphere is two points.

    Args:
        kappa: concentration, at most 1e100; 0 is uniform.

    Numerics: drawn and evaluated by 1 - cos(z, c), so that a large kappa loses no digits.

    References:
        zimmermann2021clica

    Example:
        >>> c = np.array([[1.0, 0.0]])  # on the circle: exp(2) / (2 pi I_0(2))
        >>> round(float(np.exp(VonMisesFisher(2.0).log_density(c, c, Sphere(2))[0])), 4)
        0.5159
    """

    kappa: float

    def __post_init__(self) -> None:
        need(
            isinstance(self.kappa, (int, float))
            and not isinstance(self.kappa, bool)
            and 0 <= self.kappa <= 1e100,
            lambda: (
                "`VonMisesFisher(kappa)` needs a number from 0 to 1e100; received "
                f"`{self.kappa!r}`."
            ),
        )

    def draw(self, centre: Array, space: Space, stream: Stream) -> Array:
        _on_sphere(space)
        radius = _norm(centre)
        mean = centre / radius
        k = centre.shape[1]
        if k == 1:
            there = stream.uniform(1) < special.expit(2 * self.kappa)
            return np.where(there, centre, -centre)
        t = self._below_one(k, stream)[:, None]
        side = stream.normal(k)
        side -= (side * mean).sum(axis=1, keepdims=True) * mean
        side *= np.sqrt(t * (2 - t)) / _norm(side)
        side += (1 - t) * mean
        side *= radius / _norm(side)
        return side

    def _below_one(self, k: int, stream: Stream) -> Array:
        """1 - cos(z, c) of each row; s is Wood's 1 - x_0."""
        kappa, m = float(self.kappa), k - 1
        b = m / (2 * kappa + math.hypot(2 * kappa, m))
        s = 2 * b / (1 + b)
        draws = np.empty(stream.n)
        left = np.arange(stream.n)
        while len(left):
            beta = stream.beta(m / 2, 1)[:, 0]
            t = 2 * b * beta / (1 - (1 - b) * beta)
            log_u = np.log1p(-stream.uniform(1)[:, 0])
            good = kappa * (s - t) + m * np.log((s + t - s * t) / (s * (2 - s))) >= log_u
            draws[left[good]] = t[good]
            again = np.flatnonzero(~good)
            left, stream = left[again], stream.some(again)
        return draws

    def log_density(self, z: Array, centre: Array, space: Space) -> Array:
        _on_sphere(space)
        k, radius = z.shape[1], _norm(centre)[:, 0]
        apart = z / radius[:, None] - centre / radius[:, None]
        below_one = np.einsum("ij,ij->i", apart, apart) / 2  # 1 - cos, as both have one norm
        log_p = _log_constant(k, float(self.kappa)) - self.kappa * below_one
        return np.where(_as_far(z, radius), log_p - (k - 1) * np.log(radius), -np.inf)


def _bell(law: Normal | Laplace | GeneralisedNormal, p: float, scale: Scale) -> Bell:
    return Bell(repr(law), float(p), np.atleast_1d(np.asarray(scale, float)), law.truncated)


# ---- arithmetic ----


def _norm(z: Array) -> Array:
    return np.sqrt(np.einsum("ij,ij->i", z, z))[:, None]


def _log_area(k: int) -> float:
    """log of the surface of the unit sphere in R^k."""
    return math.log(2) + k / 2 * math.log(math.pi) - math.lgamma(k / 2)


def _as_far(z: Array, radius: Array) -> NDArray[np.bool_]:
    """Return which rows have this norm, up to rounding."""
    return np.abs(_norm(z)[:, 0] - radius) < rounding(z)


def _log_constant(k: int, kappa: float) -> float:
    """log C_k(kappa) + kappa of von Mises and Fisher: the log density at the centre."""
    if kappa == 0:
        return -_log_area(k)
    if k == 1:
        return -math.log1p(math.exp(-2 * kappa))
    order = k / 2 - 1
    return order * math.log(kappa) - k / 2 * math.log(2 * math.pi) - _log_ive(order, kappa)


def _log_ive(v: float, x: float) -> float:
    """log of I_v(x) exp(-x), also where scipy's is 0 or not a number (x beyond 2^31)."""
    scaled = float(special.ive(v, x))
    if scaled > 0:
        return math.log(scaled)
    if x**2 < 1e-12 * (v + 1):  # the first term of the series
        return v * math.log(x / 2) - math.lgamma(v + 1) - x
    # Debye's expansion for a large v or x, in powers of 1 / r; p = (v / r)^2
    r = math.hypot(v, x)
    p = (v / r) ** 2
    series = (3 - 5 * p) / (24 * r)
    series += (81 - 462 * p + 385 * p**2) / (1152 * r**2)
    series += (30375 - 369603 * p + 765765 * p**2 - 425425 * p**3) / (414720 * r**3)
    grows = v**2 / (r + x) + v * math.log(x / (v + r))  # and r - x is the first of them
    return grows - math.log(2 * math.pi * r) / 2 + math.log1p(series)


def _on_sphere(space: Space) -> None:
    need(
        isinstance(space, Sphere),
        lambda: f"`VonMisesFisher` needs a sphere; received `{space}`.",
    )


def _positive(call: str, name: str, x: object) -> None:
    if not (isinstance(x, (int, float)) and not isinstance(x, bool) and 0 < x < math.inf):
        raise InputError(f"`{call}({name})` needs a number above 0; received `{x!r}`.")


def _scale(call: str, name: str, scale: Scale) -> Scale:
    if not isinstance(scale, (list, tuple)):
        _positive(call, name, scale)
        return float(scale)
    need(len(scale) > 0, f"`{call}({name})` needs at least one number; received `{scale!r}`.")
    for x in scale:
        _positive(call, name, x)
    return tuple(map(float, scale))


def _times(scale: Scale, factor: float) -> Scale:
    return tuple(factor * x for x in scale) if isinstance(scale, tuple) else factor * scale

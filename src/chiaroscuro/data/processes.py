"""Data processes with known truth: content that a pair shares, style that varies, and a mixing."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chiaroscuro.data.dataset import Dataset, Samples
from chiaroscuro.data.laws import Delta, Law, Uniform
from chiaroscuro.data.mixings import Mixing
from chiaroscuro.data.spaces import Box, Space, Sphere
from chiaroscuro.data.streams import Array, Bulk, ByRow, Stream
from chiaroscuro.errors import need

__all__ = ["Process", "Sample"]


@dataclass(frozen=True, eq=False)
class Sample:
    """Positive pairs: true latents `z1`, `z2` and what is observed of them, `x1`, `x2`, (n, d)."""

    z1: Array
    z2: Array
    x1: Array
    x2: Array


@dataclass(frozen=True)
class Process:
    """Generate pairs of observations whose latents share their content [rusak2022, Sec. 2].

        z1 ~ marginal;  z2 = (kept(. | z1_c), style(. | z1_s));  x1 = g(z1), x2 = g(z2)

    The first `content` coordinates are content, the others style. With `kept = Delta()` content is
    the same in a pair; another law of small variance is content in the wider sense of [rusak2022,
    Sec. 2]. On a sphere the laws turn their block and keep its norm, so that z2 stays on it.

    As the source of a `Dataset` the latents of a row are fixed and its positives are drawn anew
    every epoch: view 0 is the anchor x1, view 1 a fresh x2.

    Relations:
        `parse(repr(process))` is the process again: `open_data(repr(process))` opens it.
        A fresh view of a row is the same in any batch.

    Args:
        space: where latents are.
        content: how many coordinates are content; 0 is all style.
        style: conditional law of the style block.
        kept: conditional law of the content block.
        marginal: of latents; uniform [rusak2022, Sec. 4.1].
        mixing: g; None observes the latents themselves.
        n: rows of the dataset.
        test: share of them held out.
        seed: seed of the dataset's latents; `sample` has its own.

    References:
        rusak2022, zimmermann2021clica

    Example:
        >>> from chiaroscuro.data import Box, LeakyMLP, Normal
        >>> process = Process(Box(10), content=4, style=Normal(0.3), mixing=LeakyMLP(10))
        >>> pairs = process.sample(1000, seed=0)
        >>> bool((pairs.z1[:, :4] == pairs.z2[:, :4]).all()), pairs.x2.shape
        (True, (1000, 10))
        >>> process.dataset()
        Dataset('process', 10000 rows: x (10000, 10) float32; 10 factors; 8000 train and 2000 test)
    """

    space: Space
    content: int
    style: Law
    kept: Law = field(default_factory=Delta)
    marginal: Law = field(default_factory=Uniform)
    mixing: Mixing | None = None
    n: int = 10_000
    test: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        need(
            isinstance(self.space, Space)
            and all(isinstance(law, Law) for law in (self.style, self.kept, self.marginal)),
            lambda: (
                "`Process(space, content, style)` needs a space and laws; received "
                f"{self.space!r}, {self.style!r}, {self.kept!r} and {self.marginal!r}."
            ),
        )
        need(
            _whole(self.content) and 0 <= self.content <= self.space.d,
            lambda: (
                f"`Process(content)` needs 0 to {self.space.d} of the {self.space.d} coordinates; "
                f"received {self.content}."
            ),
        )
        need(
            not (
                isinstance(self.space, Box) and getattr(self.marginal, "truncated", None) is False
            ),
            lambda: (
                f"`Process(marginal)` in a box needs a law that stays there; received "
                f"`{self.marginal}`. Add `truncated=True`."
            ),
        )
        need(
            self.mixing is None
            or (isinstance(self.mixing, Mixing) and self.mixing.d == self.space.d),
            lambda: (
                f"`Process(mixing)` needs a mixing of R^{self.space.d}; received {self.mixing!r}"
                f"{f', of R^{self.mixing.d}' if isinstance(self.mixing, Mixing) else ''}."
            ),
        )
        need(
            _whole(self.n) and self.n >= 2,
            lambda: f"`Process(n)` needs at least 2 rows; received {self.n}.",
        )
        for name in ("content", "n"):  # of numpy's kind, too; the notation has Python's
            object.__setattr__(self, name, int(getattr(self, name)))

    # ---- drawing ----

    def sample(self, n: int, seed: int = 0) -> Sample:
        """n positive pairs with their truth."""
        stream = _stream("sample", n, seed)
        z1 = self._latents(stream)
        z2 = self._positives(z1, stream)
        return Sample(z1, z2, self.observe(z1), self.observe(z2))

    def latents(self, n: int, seed: int = 0) -> Array:
        """n latents of the marginal."""
        return self._latents(_stream("latents", n, seed))

    def positives(self, z: Array, seed: int = 0) -> Array:
        """Return a positive for each latent."""
        z = self._rows("positives(z)", z)
        return self._positives(z, _stream("positives", len(z), seed))

    def observe(self, z: Array) -> Array:
        """x = g(z)."""
        z = self._rows("observe(z)", z)
        return z if self.mixing is None else self.mixing(z)

    def invert(self, x: Array) -> Array:
        """z = g^-1(x)."""
        x = self._rows("invert(x)", x)
        return x if self.mixing is None else self.mixing.inverse(x)

    def _rows(self, call: str, x: ArrayLike) -> Array:
        """x as an array (n, d) of finite numbers; else a sentence."""
        rows = np.asarray(x)
        rows = rows if rows.dtype.kind == "f" else rows.astype(np.float64)
        need(
            rows.ndim == 2 and rows.shape[1] == self.space.d,
            lambda: f"`{call}` needs rows (n, {self.space.d}); received shape {rows.shape}.",
        )
        bad = lambda: int((~np.isfinite(rows)).any(axis=1).sum())
        need(
            bool(np.isfinite(rows).all()),
            lambda: f"`{call}` needs finite numbers; {bad()} of {len(rows)} rows are not.",
        )
        return rows

    def _latents(self, stream: Stream) -> Array:
        return self.marginal.draw(self.space.centre(stream.n), self.space, stream)

    def _positives(self, z: Array, stream: Stream) -> Array:
        moved = np.empty_like(z)
        for part, law in self._blocks():
            block = z[:, part]
            moved[:, part] = law.draw(block, self.space.block(block.shape[1]), stream)
        return moved

    def _blocks(self) -> list[tuple[slice, Law]]:
        cut, d = self.content, self.space.d
        both = [(slice(0, cut), self.kept), (slice(cut, d), self.style)]
        return [(part, law) for part, law in both if part.stop > part.start]

    # ---- densities ----

    def log_marginal(self, z: Array) -> Array:
        """log p(z), row by row; -inf outside the space."""
        z = self._rows("log_marginal(z)", z)
        log_p = self.marginal.log_density(z, self.space.centre(len(z)), self.space)
        return np.where(self.space.contains(z), log_p, -np.inf)

    def log_conditional(self, z2: Array, z1: Array) -> Array:
        """log p(z2 | z1), row by row; of a `Delta` it is 0 where equal and -inf elsewhere."""
        z2, z1 = (self._rows("log_conditional(z2, z1)", z) for z in (z2, z1))
        need(
            len(z2) == len(z1),
            lambda: (
                f"`log_conditional(z2, z1)` needs pairs; received {len(z2)} and {len(z1)} rows."
            ),
        )
        total = np.zeros(len(z1))
        for part, law in self._blocks():
            block = self.space.block(part.stop - part.start)
            total += law.log_density(z2[:, part], z1[:, part], block)
        return total

    def log_density(self, x: Array) -> Array:
        """log p(x) = log p(g^-1(x)) - log |det dg/dz|, row by row; not on a sphere, whose image
        has no volume."""
        need(
            not isinstance(self.space, Sphere),
            lambda: f"`log_density(x)` needs latents with a volume; received `{self.space}`.",
        )
        z = self.invert(x)
        bent = 0.0 if self.mixing is None else self.mixing.log_det(z)
        return self.log_marginal(z) - bent

    # ---- as data ----

    @property
    def factor_names(self) -> tuple[str, ...]:
        """`content_0`, ..., `style_0`, ...: the columns of the latents."""
        counts = (("content", self.content), ("style", self.space.d - self.content))
        return tuple(f"{sort}_{k}" for sort, count in counts for k in range(count))

    def dataset(self) -> Dataset:
        """n anchors with their true latents as factors, split; fresh positives by `draw`."""
        z = self._truth
        columns = {"x": self.observe(z).astype(np.float32), "factors": z.astype(np.float32)}
        data = Dataset(columns, "process", factor_names=self.factor_names, source=self)
        return data.with_split(self.test, self.seed)

    @functools.cached_property
    def _truth(self) -> Array:
        return self._latents(ByRow(np.arange(self.n), self.seed))

    def draw(self, rows: NDArray[np.int64], *, seed: int, epoch: int, view: int) -> Samples:
        """Return the anchors of these rows (view 0) or fresh positives, with their true latents."""
        z = self._truth[rows]
        if view > 0:
            z = self._positives(z, ByRow(rows, seed, epoch, view))
        return {"x": self.observe(z).astype(np.float32), "factors": z.astype(np.float32)}


def _whole(x: Any) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def _stream(call: str, n: int, seed: int) -> Bulk:
    need(
        _whole(n) and n >= 0 and _whole(seed) and seed >= 0,
        lambda: (
            f"`{call}` needs whole numbers n >= 0 and seed >= 0; received n = {n!r} and "
            f"seed = {seed!r}."
        ),
    )
    return Bulk(np.random.default_rng(seed), int(n))

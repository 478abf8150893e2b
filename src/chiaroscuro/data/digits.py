"""Wandering digits: real handwriting at a random place, turn, size and colour. Bundled.

1,797 handwritten digits of 8 x 8 pixels, which scikit-learn ships, are drawn
into 32 x 32 colour images. The digit is the content; everything else is a nuisance whose value is
recorded. Raw pixels say little about the digit, a human eye reads it at once, and two drawings of
the same handwriting are a positive pair.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.counter import uniforms, words
from chiaroscuro.data.dataset import Column, Dataset, Samples
from chiaroscuro.data.extras import bring
from chiaroscuro.errors import need

__all__ = ["FACTORS", "WanderingDigits"]

FACTORS = (
    *("x", "y", "angle", "scale", "ink_hue", "paper_hue", "contrast", "lightness", "light_on_dark"),
    "clutter",
)
"""The nuisances, in the order of the columns of `factors`; hues are circular, in turns."""

GLYPH = 64  # pixels of the smooth enlargement: fine enough that its nearest pixel will do
GRID = 4  # control points of the clutter along each side: low frequencies only
TINT = 0.75  # how far a colour leaves the grey of its lightness
LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, as in ITU-R BT.601
AT_ONCE = 256  # images rendered together: they fit the cache


@dataclasses.dataclass(frozen=True)
class WanderingDigits:
    """Handwritten digits at random positions, angles, sizes and colours, each with its range.

        pixel(p) = paper(p) + ink(R(-angle) (p - (x, y)) / scale) (colour - paper(p))

    with p in [-1, 1]^2 and `ink` the enlarged handwriting. Sources are split before anything is
    drawn, stratified by digit: no handwriting is on both sides. (Who wrote which digit is not
    recorded, so a writer may be.) A drawing is a pure function of (seed, epoch, row, view) in
    integer arithmetic: the same image in any batch, worker and rank.

    Relations:
        `draw(rows)` equals `draw` of each row on its own, to the bit.
        With every nuisance off, two drawings of a row are equal.

    Args:
        scale: size of the digit as a share of the frame, log-uniform.
        shift: x and y are uniform in [-shift, shift]; the frame reaches from -1 to 1.
        angle: uniform in [-angle, angle], in radians.
        hue: width of the range of hues of ink and paper, in turns: 1 is any colour, 0 always red
            ink on cyan paper.
        contrast: difference in lightness of ink and paper, uniform.
        lightness: how much of the room that the contrast leaves in [0, 1] is used to move both; 0
            keeps them centred.
        light_on_dark: share of the images in which the ink is the lighter one.
        clutter: largest strength of the smooth random colours of the paper; each image has its
            own strength, uniform from 0.
        size: pixels of a side.
        renderings: drawings of each source in the fixed dataset, train and test.
        test: share of the sources held out.
        seed: seed of the split and of the fixed drawings.

    Sources:
        The digits: Alpaydin and Kaynak 1998, UCI "Optical Recognition of Handwritten Digits", test
        part. The ranges are ours; `chiaro demo` prints what neighbours of raw pixels, of an
        untrained and of a trained encoder name of the digits at these.

    Example:
        >>> data = WanderingDigits().dataset()
        >>> data
        Dataset('digits', 4312 rows: images (4312, 32, 32, 3) uint8; 10 classes; 10 ...)
        >>> pair = [data.draw([0, 1], seed=0, epoch=0, view=v)["images"] for v in (0, 1)]
        >>> pair[0].shape, bool((pair[0] == pair[1]).all())
        ((2, 32, 32, 3), False)
    """

    scale: tuple[float, float] = (1 / 1.6, 1 / 1.1)
    shift: float = 0.3
    angle: float = 0.4
    hue: float = 1.0
    contrast: tuple[float, float] = (0.25, 0.75)
    lightness: float = 1.0
    light_on_dark: float = 0.5
    clutter: float = 0.1
    size: int = 32
    renderings: tuple[int, int] = (2, 4)
    test: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (("scale", 0.05, 4.0), ("contrast", 0.0, 1.0)):
            pair = tuple(getattr(self, name))
            need(
                len(pair) == 2 and low <= pair[0] <= pair[1] <= high,
                lambda name=name, low=low, high=high, pair=pair: (
                    f"`WanderingDigits({name}=(low, high))` needs {low} <= low <= high <= {high}; "
                    f"received `{pair}`."
                ),
            )
            object.__setattr__(self, name, pair)
        for name, high in (
            *(("shift", 2.0), ("angle", 3.1416), ("hue", 1.0)),
            *(("lightness", 1.0), ("light_on_dark", 1.0), ("clutter", 1.0)),
        ):
            value = getattr(self, name)
            need(
                0 <= value <= high,
                lambda name=name, high=high, value=value: (
                    f"`WanderingDigits({name})` needs a number from 0 to {high}; received "
                    f"`{value}`."
                ),
            )
        object.__setattr__(self, "renderings", tuple(self.renderings))
        need(
            len(self.renderings) == 2 and min(self.renderings) >= 1,
            lambda: (
                "`WanderingDigits(renderings=(train, test))` needs two counts of at least 1; "
                f"received `{self.renderings}`."
            ),
        )
        need(
            8 <= self.size <= 512,
            lambda: f"`WanderingDigits(size)` needs 8 to 512 pixels; received `{self.size}`.",
        )

    # ---- the fixed dataset ----

    def dataset(self) -> Dataset:
        """Return the fixed drawings with labels, factors, split, and the source as `groups` and
        `ids`.
        """
        source, split = self._rows
        _, labels = _handwriting()
        images, factors = self.render(np.arange(len(source)), seed=self.seed, epoch=0, view=0)
        columns: dict[str, Column] = {
            "images": images,
            "labels": labels[source],
            "factors": factors,
            "groups": source,
            "split": split,
        }
        names = tuple(str(digit) for digit in range(10))
        return Dataset(columns, "digits", names, factor_names=FACTORS, source=self)

    @functools.cached_property
    def _rows(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The source and the side of every row of the fixed dataset."""
        glyphs, labels = _handwriting()
        every = {"x": np.arange(len(glyphs)), "labels": labels}
        side = Dataset(every).with_split(self.test, self.seed).column("split")
        counts = np.where(side == 0, *self.renderings)
        source = np.repeat(np.arange(len(glyphs)), counts)
        order = np.argsort(side[source], kind="stable")  # train first
        return source[order], side[source[order]]

    # ---- drawing ----

    def draw(self, rows: NDArray[np.int64], *, seed: int, epoch: int, view: int) -> Samples:
        """Fresh drawings of the handwriting of these rows, with their factors."""
        # view 0 of the stream is the fixed drawing: no fresh one repeats it
        images, factors = self.render(rows, seed=seed, epoch=epoch, view=view + 1)
        return {
            "images": images,
            "factors": factors,
            "labels": _handwriting()[1][self._rows[0][rows]],
            "groups": self._rows[0][rows],
        }

    def render(
        self, rows: NDArray[np.int64], *, seed: int, epoch: int, view: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Pictures (b, size, size, 3) and factors (b, 10) of these rows."""
        rows = np.asarray(rows, np.int64)
        images = np.empty((len(rows), self.size, self.size, 3), np.uint8)
        factors = np.empty((len(rows), len(FACTORS)), np.float32)
        for start in range(0, len(rows), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            f = self._nuisances(uniforms(len(FACTORS), seed, epoch, rows[some], view))
            noise = words(3 * GRID * GRID // 8, seed, epoch, rows[some], view, 1)
            ink = self._ink(self._rows[0][rows[some]], f)
            self._paint(images[some], ink, noise, f)
            factors[some] = np.stack([f[name] for name in FACTORS], axis=1)
        return images, factors

    def _nuisances(self, u: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Uniform numbers stretched to the ranges, by name."""
        v = dict(zip(FACTORS, u.T, strict=True))
        contrast = self.contrast[0] + (self.contrast[1] - self.contrast[0]) * v["contrast"]
        return {
            "x": self.shift * (2 * v["x"] - 1),
            "y": self.shift * (2 * v["y"] - 1),
            "angle": self.angle * (2 * v["angle"] - 1),
            "scale": self.scale[0] * (self.scale[1] / self.scale[0]) ** v["scale"],
            "ink_hue": self.hue * v["ink_hue"],
            "paper_hue": (0.5 + self.hue * v["paper_hue"]) % 1.0,
            "contrast": contrast,
            "lightness": (1 - contrast) * (0.5 + self.lightness * (v["lightness"] - 0.5)),
            "light_on_dark": (v["light_on_dark"] < self.light_on_dark).astype(np.float64),
            "clutter": self.clutter * v["clutter"],
        }

    def _ink(self, source: NDArray[np.int64], f: dict[str, NDArray[Any]]) -> NDArray[np.int16]:
        """Return how much ink is on each pixel, 0 to 128: the nearest pixel of the enlarged
        handwriting."""
        p = (2 * np.arange(self.size) + 1) / self.size - 1
        one = 1 << 16  # fixed point
        zoom = GLYPH / 2 * one / f["scale"]
        cos, sin = (zoom * np.cos(f["angle"]))[:, None], (zoom * np.sin(f["angle"]))[:, None]
        px, py = p - f["x"][:, None], p - f["y"][:, None]
        middle = (GLYPH / 2 + 1) * one
        whole = lambda real: real.astype(np.int32)
        across = whole(cos * px + middle)[:, None, :] + whole(sin * py)[:, :, None]
        down = whole(middle - sin * px)[:, None, :] + whole(cos * py)[:, :, None]
        for place in (across, down):
            place >>= 16
            np.clip(place, 0, GLYPH + 1, out=place)
        down *= GLYPH + 2
        down += across
        first = source * (GLYPH + 2) ** 2
        return _handwriting()[0].reshape(-1).take(down + first[:, None, None]).astype(np.int16)

    def _paint(
        self,
        out: NDArray[np.uint8],
        ink: NDArray[np.int16],
        noise: NDArray[np.uint64],
        f: dict[str, NDArray[Any]],
    ) -> None:
        light, dark = f["lightness"] + f["contrast"], f["lightness"]
        inverted = f["light_on_dark"] > 0
        colour = _colour(f["ink_hue"], np.where(inverted, light, dark))
        base = _colour(f["paper_hue"], np.where(inverted, dark, light))
        paper = self._clutter(noise, f["clutter"])
        paper += base[:, :, None, None]
        np.clip(paper, 0, 255, out=paper)
        change = colour[:, :, None, None] - paper
        change *= ink[:, None]  # at most 255 * 128: fits 16 bits
        change += 64
        change >>= 7
        paper += change
        for channel in range(3):
            out[..., channel] = paper[:, channel]

    def _clutter(self, noise: NDArray[np.uint64], strength: NDArray[Any]) -> NDArray[np.int16]:
        """Return random colours on a grid of 4 x 4, interpolated:
        (b, 3, size, size), 0 on average.
        """
        bytes_ = noise.astype("<u8").view(np.uint8).reshape(len(noise), 3, GRID, GRID)
        grid = (bytes_.astype(np.int16) - 128) * (2 * strength)[:, None, None, None]
        field = np.rint(grid).astype(np.int16)
        place = (np.arange(self.size) + 0.5) / self.size * (GRID - 1)
        left = np.minimum(place.astype(np.int64), GRID - 2)
        w = np.rint((place - left) * 64).astype(np.int16)
        for axis, weight in ((3, w), (2, w[:, None])):
            near = field.take(left, axis)
            far = field.take(left + 1, axis)
            near *= 64 - weight
            far *= weight
            near += far
            near >>= 6
            field = near
        return field


@functools.lru_cache(maxsize=1)
def _handwriting() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return every digit enlarged to 64 x 64 with a border of no ink, 0 to 128, and its label.

    A Gaussian of half a source pixel, then a soft threshold: smooth strokes instead of squares.
    """
    images, labels = _digits()
    place = (np.arange(GLYPH) + 0.5) / GLYPH * 8 - 0.5
    spread = np.exp(-((place[:, None] - np.arange(-2, 10)) ** 2) / (2 * 0.5**2))
    spread = (spread / spread.sum(axis=1, keepdims=True))[:, 2:-2]
    t = np.clip((spread @ (images / 16) @ spread.T - 0.24) / 0.4, 0, 1)
    glyphs = np.zeros((len(t), GLYPH + 2, GLYPH + 2), np.uint8)
    glyphs[:, 1:-1, 1:-1] = np.rint(128 * t * t * (3 - 2 * t))
    return glyphs, labels


def _digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the digits (n, 8, 8), 0 to 16, and which they are: `sklearn.datasets.load_digits`.

    Read from scikit-learn's own file where it is in its usual place, which spares the seconds that
    importing scikit-learn takes.
    """
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            table = np.loadtxt(file, delimiter=",", dtype=np.int64)
            return table[:, :-1].reshape(-1, 8, 8).astype(np.float64), table[:, -1]
    digits = bring("sklearn.datasets", "The bundled digits", "scikit-learn").load_digits()
    return digits.images, digits.target.astype(np.int64)


def _colour(hue: NDArray[Any], lightness: NDArray[Any]) -> NDArray[np.int16]:
    """Return the colour (b, 3), 0 to 255, of this hue whose luma is the lightness."""
    k = (6 * hue[:, None] + np.array([5, 3, 1])) % 6
    pure = 1 - np.clip(np.minimum(k, 4 - k), 0, 1)
    # a sum of three written out: the order of a matrix product may depend on the batch
    luma = (pure[:, 0] * LUMA[0] + pure[:, 1] * LUMA[1] + pure[:, 2] * LUMA[2])[:, None]
    grey = lightness[:, None]
    tinted = np.where(grey < luma, pure * grey / luma, 1 - (1 - pure) * (1 - grey) / (1 - luma))
    return np.rint(255 * (grey + TINT * (tinted - grey))).astype(np.int16)

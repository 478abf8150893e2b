"""How figures look, and how they are written: a palette that colour-blind readers can tell apart.

matplotlib is an extra (`pip install chiaroscuro[plots]`) and is imported when a figure is drawn.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chiaroscuro.extras import bring

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "GREY", "LOOK", "available", "axes", "canvas", "few_colours", "save"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, in the order we use it."""
GREY = "#8c8c8c"

LOOK: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.0,
    "svg.hashsalt": "chiaroscuro",
    "svg.fonttype": "none",
    "savefig.dpi": 130,
}
"""Of matplotlib's settings, those that are ours: `with matplotlib.rc_context(LOOK):`."""


def available() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def axes(ax: Any = None) -> Any:
    """Return the axes given, or those of a new figure of `pyplot`, which notebooks show."""
    if ax is not None:
        return ax
    pyplot = bring("matplotlib.pyplot", "Drawing", "'chiaroscuro[plots]'")
    return pyplot.subplots()[1]


def canvas(
    rows: int = 1,
    columns: int = 1,
    width: float = 3.2,
    height: float = 2.7,
    one_scale: bool = False,
) -> Any:
    """Return a figure and its axes, (rows, columns), each axis `width` by `height` inches.

    With `one_scale` the panels have their vertical axis in common.
    Without `pyplot`: nothing global is opened that must be closed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharey=one_scale)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Save the figure as PNG and SVG beside each other; the same numbers give the same bytes."""
    import matplotlib
    from PIL import Image

    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    with matplotlib.rc_context(LOOK):
        figure.savefig(paths[0], metadata={"Software": None})
        if not shows_photographs(figure):
            with Image.open(paths[0]) as picture:  # a palette makes it a third of the size
                few = few_colours(picture)
            few.save(paths[0], optimize=True)
        figure.set_layout_engine("none")  # the places just found serve both
        figure.savefig(paths[1], metadata={"Date": None, "Creator": None})
    return paths


def shows_photographs(figure: Figure) -> bool:
    """Return whether an image in the figure brings colours of its own, three numbers a pixel."""
    pictures = [image.get_array() for axis in figure.axes for image in axis.images]
    return any(pixels is not None and pixels.ndim == 3 for pixels in pictures)


def few_colours(picture: Any) -> Any:
    """Return the image in tints of our own colours and greys,
    no matter how few pixels have them.
    """
    from PIL import Image

    palette = []
    for colour in (*COLOURS, GREY):
        red_green_blue = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        for share in range(1, 11):
            palette += [round(255 + (x - 255) * share / 10) for x in red_green_blue]
    for grey in range(0, 256, 15):
        palette += [grey] * 3
    board = Image.new("P", (1, 1))
    board.putpalette(palette + [255] * (3 * 256 - len(palette)))
    return picture.convert("RGB").quantize(palette=board, dither=Image.Dither.NONE)

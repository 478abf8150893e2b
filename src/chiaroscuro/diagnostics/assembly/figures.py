"""A diagnosis as figures: spectra, and measures beside shuffled pairs.

matplotlib is an extra (`pip install chiaroscuro[plots]`) and is imported when a figure is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chiaroscuro import figures

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.diagnosis import Diagnosis

__all__ = ["draw", "draw_spectrum"]


def draw(diagnosis: Diagnosis, folder: str | Path) -> list[Path]:
    """Write the figures as PNG and SVG; none if matplotlib is not installed.

    Args:
        diagnosis: from `diagnose`.
        folder: where they go; it exists.
    """
    if not figures.available():
        return []
    import matplotlib

    paths = []
    with matplotlib.rc_context(figures.LOOK):
        for name, fill in (("spectrum", _spectrum), ("controls", _controls)):
            if name == "controls" and not diagnosis.controls:
                continue
            figure, axes = figures.canvas(width=5.0, height=3.2)
            fill(axes[0, 0], diagnosis)
            paths += figures.save(figure, Path(folder) / name)
    return paths


def draw_spectrum(diagnosis: Diagnosis, ax: Any = None) -> Any:
    """Draw the singular values into axes and return them.

    Args:
        diagnosis: from `diagnose`.
        ax: matplotlib axes; None makes new ones.
    """
    ax = figures.axes(ax)
    _spectrum(ax, diagnosis)
    return ax


def _spectrum(axes: Any, diagnosis: Diagnosis) -> None:
    for (space, s), colour in zip(diagnosis.spectra.items(), figures.COLOURS, strict=False):
        live = np.asarray(s, dtype=np.float64)
        live = live[live > 0]
        if len(live):
            rank = np.arange(1, len(live) + 1)
            axes.loglog(rank, live / live[0], color=colour, label=f"{space}, {len(s)} directions")
    axes.set_xlabel("direction, by rank")
    axes.set_ylabel("singular value / largest")
    axes.axhline(1e-3, color=figures.GREY, linewidth=0.8, linestyle=":")
    if axes.lines[:-1]:
        axes.legend()


def _controls(axes: Any, diagnosis: Diagnosis) -> None:
    names = list(diagnosis.controls)
    at = np.arange(len(names))
    controls = [diagnosis.controls[name] for name in names]
    axes.barh(
        at - 0.2, [one.value for one in controls], 0.38, color=figures.COLOURS[0], label="measured"
    )
    axes.barh(
        at + 0.2, [one.mean for one in controls], 0.38, color=figures.GREY, label="shuffled pairs"
    )
    axes.set_yticks(at, [name.replace("_", " ") for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("value")
    axes.legend()

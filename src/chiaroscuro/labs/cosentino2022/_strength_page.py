"""The figure of the lab `strength`: Figs. 1, 3, 5, 6 over training, six panels."""

from __future__ import annotations

from typing import Any

import numpy as np

from chiaroscuro.labs import style
from chiaroscuro.labs.cosentino2022.annihilated import by_squares

__all__ = ["page"]


def page(result: dict[str, Any]) -> Any:
    """Ranks of W and z, accuracy, loss and bound, distance and labels of the nearest."""
    canvas, axes = style.canvas(2, 3, width=3.2, height=2.7)
    squares = lambda m, name: by_squares(m["weights"] if name == "w" else m["spectra"][name])
    panels = (
        (axes[0, 0], lambda m: squares(m, "w"), "effective rank of $W$", "projector weights"),
        (axes[0, 1], lambda m: squares(m, "z"), "effective rank of $z$", "projector output"),
        (axes[0, 2], lambda m: 100 * m["knn"], "kNN accuracy of $h$, %", "encoder"),
        (axes[1, 1], lambda m: m["hardest_distance"], "distance in $h$", "hardest negative"),
        (axes[1, 2], lambda m: 100 * m["nearest"]["fine"], "same label, %", "nearest image"),
    )
    for axis, number, label, title in panels:
        for i, strength in enumerate(result["strengths"]):
            _curve(axis, result, strength, number, style.COLOURS[i])
        style.label(axis, "epoch", label, title)
    start = squares(result["runs"][0]["moments"][0], "w")
    axes[0, 0].axhline(start, color=style.GREY, linestyle=":", linewidth=1)
    last = result["epochs"]
    axes[0, 0].text(last, start, "random weights ", ha="right", va="bottom", color=style.GREY)
    both = axes[1, 0]
    for i, strength in enumerate(result["strengths"]):
        if strength in (min(result["strengths"]), max(result["strengths"])):
            _curve(both, result, strength, lambda m: m["loss"], style.COLOURS[i])
            _curve(both, result, strength, lambda m: m["bound"], style.COLOURS[i], "--")
    both.plot([], [], color=style.GREY, label="loss")
    both.plot([], [], "--", color=style.GREY, label="bound, eq. (3)")
    both.legend(loc="center right", bbox_to_anchor=(1.0, 0.68))  # above the losses
    style.label(both, "epoch", "nats", "loss and bound")
    lines = [
        style.patch(style.COLOURS[i], f"strength {s:g}") for i, s in enumerate(result["strengths"])
    ]
    canvas.legend(handles=lines, loc="outside lower center", ncols=len(lines))
    return canvas


def _curve(
    axis: Any, result: Any, strength: float, number: Any, colour: str, line: str = "-"
) -> None:
    """The mean over seeds of a number of the moments, with the range."""
    own = [run["moments"] for run in result["runs"] if run["strength"] == strength]
    epochs = [m["epoch"] for m in own[0]]
    rows = np.array([[number(m) for m in moments] for moments in own])
    axis.plot(epochs, rows.mean(axis=0), line, color=colour)
    axis.fill_between(epochs, rows.min(axis=0), rows.max(axis=0), color=colour, alpha=0.15, lw=0)

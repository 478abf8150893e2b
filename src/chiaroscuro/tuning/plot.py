"""Trials as a figure: how each went, and what was drawn against what came of it.

matplotlib is an extra (`pip install chiaroscuro[plots]`) and is imported when a figure is drawn.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chiaroscuro.tuning.space import Choice, LogUniform

if TYPE_CHECKING:
    from chiaroscuro.tuning.result import Found

__all__ = ["draw_trials"]

_COLOUR = {"complete": "#0072B2", "stopped": "#8c8c8c"}
_BEST = "#D55E00"
_STYLE: Any = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "chiaroscuro",
    "svg.fonttype": "none",
    "savefig.dpi": 130,
}


def draw_trials(found: Found, folder: str | Path) -> list[Path]:
    """Write `trials.png` and `trials.svg`; none, where matplotlib is missing or nothing was seen.

    The first panel has accuracy over epochs with the stops of the halving; one panel for each
    name of the space has the value drawn against the last accuracy. Complete trials are blue,
    stopped ones grey, the best one orange.

    Args:
        found: of `tune`, or `read_found`.
        folder: where they go; it exists.
    """
    seen = [trial for trial in found.trials if trial.curve]
    if importlib.util.find_spec("matplotlib") is None or not seen:
        return []
    import matplotlib
    from matplotlib.figure import Figure

    names = list(found.search.space)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(3.2 * (1 + len(names)), 2.9), layout="constrained")
        axes = figure.subplots(1, 1 + len(names), squeeze=False, sharey=True)[0]
        _curves(axes[0], found)
        for axis, name in zip(axes[1:], names, strict=True):
            _against(axis, found, name)
        paths = []
        for ending in ("png", "svg"):
            paths.append(Path(folder) / f"trials.{ending}")
            figure.savefig(paths[-1], metadata={"Date": None} if ending == "svg" else None)
    return paths


def _look(found: Found, trial: Any) -> tuple[str, int]:
    """Colour and layer of a trial."""
    if trial is found.best:
        return _BEST, 3
    return _COLOUR.get(trial.state, _COLOUR["stopped"]), 2 if trial.state == "complete" else 1


def _curves(axes: Any, found: Found) -> None:
    longest = max(trial.epochs for trial in found.trials)
    for epoch in found.search.stops(longest + 1):
        axes.axvline(epoch, color="#e6e6e6", linewidth=0.8, zorder=0)
    for trial in found.trials:
        if trial.curve:
            colour, layer = _look(found, trial)
            epochs, values = zip(*trial.curve, strict=True)
            axes.plot(epochs, values, color=colour, zorder=layer, linewidth=1, alpha=0.8)
            axes.plot(epochs[-1], values[-1], "o", color=colour, zorder=layer, markersize=3)
    axes.set_xlabel("epoch (grey: stops)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(f"{found.search.measure.replace('_', ' ')} accuracy")
    axes.set_title(
        f"{found.count('complete')} complete, {found.count('stopped')} stopped, "
        f"{found.count('failed')} failed",
        loc="left",
        fontsize=9,
    )


def _against(axes: Any, found: Found, name: str) -> None:
    law = found.search.space[name]
    options = law.options if isinstance(law, Choice) else ()
    for trial in found.trials:
        if trial.curve:
            colour, layer = _look(found, trial)
            x = trial.values[name]
            at = options.index(x) if options else x
            filled = trial.state == "complete"
            axes.scatter(
                at,
                trial.value,
                s=18,
                zorder=layer,
                color=colour if filled else "none",
                edgecolors=colour,
                linewidths=0.8,
            )
    if options:
        axes.set_xticks(range(len(options)), [str(option) for option in options])
    elif isinstance(law, LogUniform):
        axes.set_xscale("log")
    axes.set_xlabel(name)

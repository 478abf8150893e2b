"""Trials as a figure: how each went, and what was drawn against what came of it.

matplotlib is an extra (`pip install chiaroscuro[plots]`) and is imported when a figure is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from chiaroscuro import figures
from chiaroscuro.tuning.space import Choice, LogUniform

if TYPE_CHECKING:
    from chiaroscuro.tuning.result import SearchResult

__all__ = ["draw_trials"]

_COLOUR = {"complete": figures.COLOURS[0], "stopped": figures.GREY}
_BEST = figures.COLOURS[1]


def draw_trials(result: SearchResult, folder: str | Path) -> list[Path]:
    """Write `trials.png` and `trials.svg`; none if matplotlib is missing or there are no results.

    The first panel has accuracy over epochs with the stops of the halving; one panel for each
    name of the space has the value drawn against the last accuracy. Complete trials are blue,
    stopped ones grey, the best one orange.

    Args:
        result: result of `tune`, or `read_result`.
        folder: where they go; it exists.
    """
    seen = [trial for trial in result.trials if trial.curve]
    if not figures.available() or not seen:
        return []
    import matplotlib

    names = list(result.search.space)
    with matplotlib.rc_context(figures.LOOK):
        figure, ((*axes,),) = figures.canvas(1, 1 + len(names), height=2.9, one_scale=True)
        _curves(axes[0], result)
        for axis, name in zip(axes[1:], names, strict=True):
            _against(axis, result, name)
        return figures.save(figure, Path(folder) / "trials")


def _colour_and_layer(result: SearchResult, trial: Any) -> tuple[str, int]:
    """Colour and layer of a trial."""
    if trial is result.best:
        return _BEST, 3
    return _COLOUR.get(trial.state, _COLOUR["stopped"]), 2 if trial.state == "complete" else 1


def _curves(axes: Any, result: SearchResult) -> None:
    longest = max(trial.epochs for trial in result.trials)
    for epoch in result.search.stops(longest + 1):
        axes.axvline(epoch, color="#e6e6e6", linewidth=0.8, zorder=0)
    for trial in result.trials:
        if trial.curve:
            colour, layer = _colour_and_layer(result, trial)
            epochs, values = zip(*trial.curve, strict=True)
            axes.plot(epochs, values, color=colour, zorder=layer, linewidth=1, alpha=0.8)
            axes.plot(epochs[-1], values[-1], "o", color=colour, zorder=layer, markersize=3)
    axes.set_xlabel("epoch (grey: stops)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(f"{result.search.measure.replace('_', ' ')} accuracy")
    axes.set_title(
        f"{result.count('complete')} complete, {result.count('stopped')} stopped, "
        f"{result.count('failed')} failed",
        loc="left",
        fontsize=9,
    )


def _against(axes: Any, result: SearchResult, name: str) -> None:
    law = result.search.space[name]
    options = law.options if isinstance(law, Choice) else ()
    for trial in result.trials:
        if trial.curve:
            colour, layer = _colour_and_layer(result, trial)
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

"""The page of the lab `strength`: what happens over training, and against strength."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chiaroscuro.labs import style

__all__ = ["page"]

NAMED = {0.05: "small", 0.25: "moderate", 0.5: "large"}
COLOUR = dict(zip(NAMED, style.COLOURS, strict=False))


def page(result: dict[str, Any]) -> Any:
    """Six rows: three of the paper's figures, three of the sweep."""
    canvas, axes = style.canvas(6, 3, width=3.5, height=2.6)
    _training(axes[0], result)
    _spectra(axes[1], result)
    _negatives(axes[2], result)
    _ranks(axes[3], result)
    _layers(axes[4], result)
    _readouts(axes[5], result)
    return canvas


def _runs(result: dict[str, Any], strength: float) -> list[dict[str, Any]]:
    return [run for run in result["runs"] if run["strength"] == strength]


def _over_training(
    axis: Any, result: dict[str, Any], value: Callable[[dict[str, Any]], float], line: str = "-"
) -> None:
    """Mean and deviation over seeds, by epoch, of the three policies."""
    for strength, name in NAMED.items():
        runs = _runs(result, strength)
        if not runs:
            continue
        epochs = [moment["epoch"] for moment in runs[0]["moments"]]
        rows = np.array([[value(moment) for moment in run["moments"]] for run in runs])
        mean, spread = rows.mean(axis=0), rows.std(axis=0)
        colour = COLOUR[strength]
        axis.plot(epochs, mean, line, color=colour, label=name if line == "-" else None)
        axis.fill_between(epochs, mean - spread, mean + spread, color=colour, alpha=0.2, lw=0)


def _against(
    axis: Any,
    result: dict[str, Any],
    value: Callable[[dict[str, Any]], float],
    text: str,
    colour: int,
    line: str = "-",
) -> None:
    """Mean and deviation over seeds, by strength."""
    at = result["strengths"]
    rows = [[value(run) for run in _runs(result, strength)] for strength in at]
    mean = np.array([np.mean(row) for row in rows])
    spread = np.array([np.std(row) for row in rows])
    tone = style.COLOURS[colour % 7]
    axis.plot(at, mean, line, marker="o", color=tone, label=text)
    axis.fill_between(at, mean - spread, mean + spread, color=tone, alpha=0.15, lw=0)


def _last(name: str) -> Callable[[dict[str, Any]], float]:
    return lambda run: run["moments"][-1][name]


def _training(axes: Any, result: dict[str, Any]) -> None:
    _over_training(axes[0], result, lambda m: m["projector_effective_rank"])
    axes[0].legend(loc="best")
    style.label(axes[0], "epoch", "effective rank of W", "Fig. 1: projector")
    _over_training(axes[1], result, lambda m: m["knn"])
    style.label(axes[1], "epoch", "accuracy of 20 neighbours", "Fig. 1: encoder")
    _over_training(axes[2], result, lambda m: m["loss"])
    _over_training(axes[2], result, lambda m: m["bound"], "--")
    style.label(axes[2], "epoch", "loss; its bound (dashed)", "Fig. 3: bound, batch of 128")


def _spectra(axes: Any, result: dict[str, Any]) -> None:
    for axis, space, title in ((axes[0], "h", "Fig. 4: h"), (axes[1], "h1", "Fig. 9: h, views")):
        for strength, name in NAMED.items():
            runs = _runs(result, strength)
            if not runs:
                continue
            moments = runs[0]["moments"]
            for line, moment in ((":", moments[0]), ("--", half(moments))):
                axis.semilogy(_floor(moment["spectra"][space]), line, color=COLOUR[strength], lw=1)
            text = name if space == "h" else None
            axis.semilogy(_floor(moments[-1]["spectra"][space]), color=COLOUR[strength], label=text)
        style.label(axis, "number", "singular value", f"{title}: start :, half --, end -")
    axes[0].legend(loc="best")
    for i, strength in enumerate(result["strengths"][:7]):
        s = _runs(result, strength)[0]["moments"][-1]["weights"]
        shares = [x / s[0] for x in s]
        axes[2].semilogy(_floor(shares), color=style.COLOURS[i], label=strength)
    axes[2].legend(title="strength", ncols=2, loc="best")
    style.label(axes[2], "number", "singular value / largest", "W at the end")


def half(moments: list[dict[str, Any]]) -> dict[str, Any]:
    """The moment nearest to half of the training."""
    middle = moments[-1]["epoch"] / 2
    return min(moments, key=lambda moment: abs(moment["epoch"] - middle))


def _floor(values: list[float]) -> list[float]:
    return [max(x, 1e-8) for x in values]


def _negatives(axes: Any, result: dict[str, Any]) -> None:
    edges = np.linspace(0, 2, 61)
    middles = (edges[1:] + edges[:-1]) / 2
    for strength, name in NAMED.items():
        runs = _runs(result, strength)
        if runs:
            counts = np.sum([run["moments"][-1]["distances"] for run in runs], axis=0)
            axes[0].step(middles, counts / counts.sum(), color=COLOUR[strength], label=name)
    axes[0].legend(loc="best")
    axes[0].set_xlim(0, 1.5)
    style.label(axes[0], "|h1 - hardest negative|, unit vectors", "share", "Fig. 5, at the end")
    _over_training(axes[1], result, lambda m: m["hardest_agreement"])
    coarse = "hardest_agreement_coarse" in result["runs"][0]["moments"][0]
    if coarse:
        _over_training(axes[1], result, lambda m: m["hardest_agreement_coarse"], "--")
    text = "same label (coarse: dashed)" if coarse else "same label"
    style.label(axes[1], "epoch", text, "Fig. 6: of the hardest negative")
    _over_training(axes[2], result, lambda m: m["displacement_unexplained"])
    style.label(axes[2], "epoch", "delta-h unexplained by W", "Fig. 7, eq. (10)")


def _ranks(axes: Any, result: dict[str, Any]) -> None:
    ranks, fit, accuracy = axes
    last = lambda run: run["moments"][-1]
    share = lambda name: lambda run: last(run)[name] / run["d_proj"]
    _against(ranks, result, share("projector_effective_rank"), "W, effective", 0)
    _against(ranks, result, share("projector_rank"), "W, above 1e-3", 0, "--")
    _against(ranks, result, share("predicted_rank"), "W, predicted", 1, "--")
    _against(ranks, result, lambda r: last(r)["effective"]["h"] / r["d_enc"], "h, effective", 2)
    _against(ranks, result, lambda r: last(r)["ranks"]["h"] / r["d_enc"], "h, above 1e-3", 2, "--")
    ranks.set_ylim(0, 1.5)
    ranks.legend(handlelength=3, fontsize=6.5, ncols=2, loc="upper center")
    style.label(ranks, "strength", "rank / dimension", "ranks")
    for colour, (name, text) in enumerate(
        (
            ("displacement_unexplained", "delta-h unexplained"),
            ("views_annihilated", "views annihilated"),
            ("data_annihilated", "data annihilated"),
            ("span_explained", "views explained by parameters"),
        )
    ):
        _against(fit, result, _last(name), text, colour)
    fit.set_ylim(top=1.4 * fit.get_ylim()[1])
    fit.legend(handlelength=3, fontsize=6.5, loc="upper left")
    style.label(fit, "strength", "share", "what W reads")
    for colour, layer in enumerate(("encoder", "projector")):
        for line, name in (("-", "knn_20"), ("--", "linear")):
            value = lambda run, layer=layer, name=name: run["accuracy"][layer][name]
            _against(accuracy, result, value, f"{layer}, {name}", colour, line)
    accuracy.legend(handlelength=3, fontsize=6.5, loc="best")
    style.label(accuracy, "strength", "accuracy", "all pictures")


def _layers(axes: Any, result: dict[str, Any]) -> None:
    negatives, invariance, span = axes
    _against(negatives, result, _last("hardest_distance"), "distance", 0)
    _against(negatives, result, _last("hardest_agreement"), "same label", 1)
    if "hardest_agreement_coarse" in result["runs"][0]["moments"][0]:
        _against(negatives, result, _last("hardest_agreement_coarse"), "same coarse label", 2)
    negatives.legend(handlelength=3, fontsize=6.5, loc="best")
    style.label(negatives, "strength", "distance; share", "the hardest negative")
    _against(invariance, result, _last("movement_ratio"), "h, own views", 0)
    _against(invariance, result, _last("z_movement_ratio"), "z, own views", 1)
    large = lambda layer: lambda run: run["readouts"]["movement"][layer]
    _against(invariance, result, large("h"), "h, large views", 0, "--")
    _against(invariance, result, large("z"), "z, large views", 1, "--")
    invariance.legend(handlelength=3, fontsize=6.5, loc="best")
    style.label(invariance, "strength", "|h1 - h2|^2 / strangers'", "0: invariant")
    of = lambda name: lambda run: run["moments"][-1][name] / run["d_enc"]
    _against(span, result, of("span_dimension"), "told by parameters", 0)
    _against(span, result, of("views_effective_span"), "effective", 1)
    _against(span, result, of("views_span"), "above 1e-3", 1, "--")
    span.set_ylim(0, 1.05)
    span.legend(handlelength=3, fontsize=6.5, loc="best")
    style.label(span, "strength", "dimension / d_enc", "span of h2 - h1")


def _readouts(axes: Any, result: dict[str, Any]) -> None:
    """Every nuisance in h and in z, and the factors of the data where they are known."""
    panels = [(axes[0], "views", "h", "parameters of large views, in h")]
    panels.append((axes[1], "views", "z", "parameters of large views, in z"))
    if "factors" in result["runs"][0]["readouts"]:
        panels.append((axes[2], "factors", "h", "factors of the data, in h"))
    else:
        axes[2].axis("off")
    for axis, kind, layer, title in panels:
        for i, name in enumerate(result["runs"][0]["readouts"][kind][layer]):
            _against(axis, result, _read(kind, layer, name), name, i, "-" if i < 7 else "--")
        axis.set_ylim(-0.1, 1)
        axis.legend(handlelength=3, fontsize=6, ncols=2, loc="best")
        style.label(axis, "strength", "R^2", title)


def _read(kind: str, layer: str, name: str) -> Callable[[dict[str, Any]], float]:
    return lambda run: run["readouts"][kind][layer][name]

"""The search on Ray Tune, for clusters: the same trials, the same files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.artifacts.files import from_json, require_own, to_json
from chiaroscuro.errors import ChiaroError, install_command, need
from chiaroscuro.tuning.locks import held
from chiaroscuro.tuning.result import SearchResult, Trial, read_result, write_result
from chiaroscuro.tuning.search import Search, read_search
from chiaroscuro.tuning.trial import clear, folder_of, run_trial

__all__ = ["RAY", "needed_ray", "search_with_ray"]

RAY = "ray"
"""Its own folder inside that of the search."""


def search_with_ray(
    search: Search, n_trials: int, out: Path, say: Callable[[str], None]
) -> SearchResult:
    """Run the trials on Ray's workers, with its ASHA scheduler, and return the result.

    The folder has to be one that all workers see. Each trial leaves its curve beside its run
    folder, as `trials/0000.jsonl`, from which the result is made: it needs no Ray to be read.

    Args:
        search: what is searched.
        n_trials: how many trials the search has.
        out: its folder.
        say: told a sentence at the end.
    """
    tune = needed_ray()
    out = out.absolute()
    (out / "trials").mkdir(exist_ok=True)
    kept = out / RAY
    if (out / "trials.json").is_file():
        there = len(read_result(out).trials)
        need(
            n_trials == there,
            lambda: (
                f"`{out}` began with {there} trials, and Ray goes on with as many; received "
                f"{n_trials}."
            ),
        )
    else:
        write_result(_read_result(search, n_trials, out), out)
    trainable = tune.with_parameters(_train, out=str(out))
    if tune.Tuner.can_restore(str(kept)):
        tuner = tune.Tuner.restore(str(kept), trainable, resume_unfinished=True)
    else:
        epochs = max(search.settings(number).epochs for number in range(n_trials))
        scheduler = None
        if search.reduction:
            scheduler = tune.schedulers.ASHAScheduler(
                time_attr="epoch",
                max_t=epochs,
                grace_period=min(search.first, epochs),
                reduction_factor=search.reduction,
            )
        tuner = tune.Tuner(
            trainable,
            param_space={"number": tune.grid_search(list(range(n_trials)))},
            tune_config=tune.TuneConfig(metric="value", mode="max", scheduler=scheduler),
            run_config=tune.RunConfig(name=RAY, storage_path=str(out), verbose=0),
        )
    tuner.fit()
    result = _read_result(search, n_trials, out)
    write_result(result, out)
    for trial in result.trials:
        if trial.ended and trial is not result.best:
            clear(out, trial.number)
    counts = ", ".join(f"{result.count(s)} {s}" for s in ("complete", "stopped", "failed"))
    say(f"{n_trials} trials: {counts}")
    return result


def needed_ray() -> Any:
    """Ray Tune, or a sentence that says how to get it."""
    try:
        from ray import tune
        from ray.tune import schedulers  # noqa: F401 - an attribute of tune
    except ModuleNotFoundError:
        raise ChiaroError(
            f"The engine `ray` needs Ray Tune: `{install_command('ray')}`; the engine `optuna` "
            "is the default."
        ) from None
    return tune


def _train(config: dict[str, Any], out: str) -> None:
    """One trial, on a worker of Ray's. Ray ends it where its scheduler says so."""
    from ray import tune

    folder, number = Path(out), config["number"]
    search = read_search(folder / "search.toml")

    def report(epoch: int, value: float) -> bool:
        _append(folder, number, {"epoch": epoch, "value": value})
        tune.report({"epoch": epoch, "value": value})
        return True

    try:
        run_trial(search, number, folder, report)
    except ChiaroError as error:
        _append(folder, number, {"why": str(error)})


def _read_result(search: Search, n_trials: int, out: Path) -> SearchResult:
    return SearchResult(search, tuple(_record(search, number, out) for number in range(n_trials)))


def _lines_of(out: Path, number: int) -> Path:
    return folder_of(out, number).with_suffix(".jsonl")


def _append(out: Path, number: int, line: dict[str, Any]) -> None:
    path = _lines_of(out, number)
    require_own(path.parent, [path.name])
    with held(path.with_suffix(".lock")), path.open("ab") as file:
        file.write((to_json(line) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def _record(search: Search, number: int, out: Path) -> Trial:
    """Return what a trial's lines say; an epoch told again counts once.

    Ray also stops a trial that has just told its last epoch: that one is complete.
    """
    path = _lines_of(out, number)
    lines = read_regular(path).split(b"\n")[:-1] if path.is_file() else []
    try:
        rows = [from_json(line) for line in lines]
        curve = {int(row["epoch"]): float(row["value"]) for row in rows if "epoch" in row}
        why = next((str(row["why"]) for row in rows if "why" in row), "")
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError) as error:
        raise ChiaroError(f"`{path}` is damaged: {str(error)[:200]}.") from None
    complete = search.settings(number).epochs in curve
    state = "failed" if why else "complete" if complete else "stopped" if curve else "waiting"
    return Trial(number, state, search.values(number), tuple(sorted(curve.items())), why)

"""`tune`: random search with early stopping, stopped and resumed at will."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from chiaroscuro.artifacts.files import require_own, writing
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.tuning.result import SearchResult, write_text
from chiaroscuro.tuning.search import Search, read_search
from chiaroscuro.tuning.trial import check_data
from chiaroscuro.tuning.with_optuna import JOURNAL, needed_optuna, search_with_optuna
from chiaroscuro.tuning.with_ray import RAY, needed_ray, search_with_ray

__all__ = ["ENGINES", "tune"]


class Engine(NamedTuple):
    """Who runs the trials: whether it is installed, the search, and what it keeps to go on."""

    ready: Callable[[], Any]
    search: Callable[..., SearchResult]
    keeps: str


ENGINES = {
    "optuna": Engine(needed_optuna, search_with_optuna, JOURNAL),
    "ray": Engine(needed_ray, search_with_ray, RAY),
}


def tune(
    search: Any,
    trials: int,
    out: str | os.PathLike,
    resume: bool = False,
    engine: str = "optuna",
    progress: TextIO | None = None,
) -> SearchResult:
    """Search for good settings: train many of them briefly, and continue the best to the end.

    Writes to the folder: `search.toml`, the search space; `trials.json`, the results; `best.toml`,
    settings for `chiaro train`; run folders `trials/0000`, ..., of which only the best keeps its
    weights; and the state of the engine. A search that was stopped in any way, even by `kill -9`,
    continues with `resume`: no trial is lost or repeated, and with one process the result is
    identical. Several processes with `resume` share one search.

    Args:
        search: a preset's name, a TOML file of settings or of a search (see `read_search`), or a
            `Search`.
        trials: number of settings to try; 500 in [tan2024, App. B]. A resumed search may increase
            it.
        out: folder of the search: a new one, or with `resume` one of the same search.
        resume: continue the search in the folder.
        engine: "optuna", or "ray" for clusters; trials and files are the same. A search continues
            with the engine that it started with, and on Ray with the same number of trials.
        progress: stream for a line per finished trial; None prints nothing.

    References:
        li2020asha, tan2024

    Example:
        >>> import tempfile
        >>> from chiaroscuro.tuning import read_search
        >>> small = (
        ...     "epochs=2",
        ...     "data.source=digits(renderings=(1, 1), test=0.8)",
        ...     "network.encoder=ResNet(9, 0.125, stem='strided')",
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = tune(read_search("digits", small), 2, folder)
        ...     result.best.epochs, result.count("complete") + result.count("stopped")
        (2, 2)
    """
    chosen = read_search(search)
    need(
        engine in ENGINES,
        lambda: f"`engine` needs one of {', '.join(ENGINES)}; received {engine!r}.",
    )
    need(
        type(trials) is int and trials >= 1,
        lambda: f"`trials` needs a whole number of at least 1; received {trials!r}.",
    )
    for number in range(trials):
        chosen.settings(number)
    check_data(chosen)
    folder = Path(out)
    _same_engine(folder, engine)
    require_own(folder, ["trials", *(other.keeps for other in ENGINES.values())])
    ENGINES[engine].ready()
    _open(chosen, folder, resume)

    def say(sentence: str) -> None:
        if progress is not None:
            print(sentence, file=progress, flush=True)

    outcome = ENGINES[engine].search(chosen, trials, folder, say)
    if outcome.best is None and all(trial.ended for trial in outcome.trials):
        why = next((trial.why for trial in outcome.trials if trial.why), "all were stopped before.")
        raise ChiaroError(f"None of {len(outcome.trials)} trials was trained to its end: {why}")
    return outcome


def _same_engine(folder: Path, engine: str) -> None:
    """Refuse to go on with another engine, which would run again what has been run."""
    for name, other in ENGINES.items():
        need(
            name == engine or not (folder / other.keeps).exists(),
            lambda name=name, other=other: (
                f"`{folder}` has `{other.keeps}`: the search began with the engine `{name}` and "
                f"goes on with 1 engine only; received `{engine}`."
            ),
        )


def _open(search: Search, folder: Path, resume: bool) -> None:
    """The folder of the search: made, or found to hold this one."""
    path = folder / "search.toml"
    if path.is_file():
        need(
            resume,
            lambda: f"`{folder}` holds a search already; `--resume` goes on with it.",
        )
        then = read_search(path)
        for name in ("seed", "measure", "first", "reduction", "space", "table"):
            was, now = getattr(then, name), getattr(search, name)
            if was != now:
                key, was, now = _differs(name, was, now)
                raise InputError(
                    f"Resuming `{folder}` needs the search it began with; `{key}` was {was!r} and "
                    f"is {now!r} now."
                )
        return
    there = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
    need(
        not there,
        lambda: (
            f"A new search needs an empty folder; `{folder}` has {len(there)} entries, the first "
            f"is `{there[0]}`."
        ),
    )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(path, search.toml())


def _differs(name: str, was: Any, now: Any) -> tuple[str, Any, Any]:
    """Return the first place at which two values of a search differ."""
    if not (isinstance(was, dict) and isinstance(now, dict)):
        return name, was, now
    for key in [*was, *now]:
        if was.get(key) != now.get(key):
            label = key if name == "table" else f"{name}.{key}"
            return _differs(label, was.get(key), now.get(key))
    return name, was, now

"""The search on Optuna: trials in a journal file, which several processes may work through."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.errors import ChiaroError, install_command, need
from chiaroscuro.tuning.locks import JournalLock, held, taken
from chiaroscuro.tuning.result import SearchResult, Trial, read_result, write_result
from chiaroscuro.tuning.search import Search
from chiaroscuro.tuning.space import Choice, Distribution, Integers, LogUniform
from chiaroscuro.tuning.trial import clear, folder_of, run_trial

__all__ = ["JOURNAL", "goes_on", "needed_optuna", "search_with_optuna"]

JOURNAL = "journal.log"
STUDY = "search"
_STATES = {"waiting": "WAITING", "running": "RUNNING", "complete": "COMPLETE"}
_STATES |= {"stopped": "PRUNED", "failed": "FAIL"}


def goes_on(value: float, others: list[float], reduction: int) -> bool:
    """Return whether a trial is among the best 1/`reduction` of those that came so far.

        value >= the k-th largest of value and others,   k = max(1, (1 + len(others)) // reduction)

    Relations: the decision of Optuna's `SuccessiveHalvingPruner`, which stores a mark when it is
    asked and decides otherwise when asked again; this is a function of the accuracies alone, so a
    search that was killed decides as one that was not.

    Args:
        value: value of the trial at a stop.
        others: of the trials that were at this stop before it.
        reduction: of the search.

    References:
        li2020asha

    Example:
        >>> goes_on(0.5, [0.4, 0.6, 0.3], reduction=4), goes_on(0.7, [0.4, 0.6, 0.3], reduction=4)
        (False, True)
    """
    every = sorted([value, *others], reverse=True)
    return value >= every[max(1, len(every) // reduction) - 1]


def search_with_optuna(
    search: Search, n_trials: int, out: Path, say: Callable[[str], None]
) -> SearchResult:
    """Run trials until none is left that waits or was left behind, and return the result.

    Args:
        search: what is searched.
        n_trials: how many trials the search has.
        out: its folder.
        say: told a sentence for every trial that ends.
    """
    optuna = needed_optuna()
    study = _study(optuna, search, n_trials, out)
    while (claimed := _claim(optuna, study, out)) is not None:
        trial, lock = claimed
        try:
            state, why = _run(search, study, trial, out)
            trial.set_user_attr("why", why)
            value = _curve(trial)[-1][1] if state == "complete" else None
            study.tell(trial, value, state=optuna.trial.TrialState[_STATES[state]])
        finally:
            os.close(lock)
        result = _tidied(search, study, out)
        say(_sentence(result, trial.number))
    return _tidied(search, study, out)


def needed_optuna() -> Any:
    """Optuna, or a sentence that says how to get it."""
    try:
        import optuna
    except ModuleNotFoundError:
        raise ChiaroError(
            f"A search needs Optuna: `{install_command('tune')}`; or Ray Tune with `--engine ray`: "
            f"`{install_command('ray')}`."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _study(optuna: Any, search: Search, n_trials: int, out: Path) -> Any:
    """Return the study of the journal, with every trial in it from the start."""
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    path = out / JOURNAL
    lock: Any = JournalLock(out / f"{JOURNAL}.lock")
    with held(out / ".claim"):
        with held(lock.path):
            _mend(path)
        storage = _storage(
            path, lambda: JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
        )
        _check_nothing_is_lost(storage, out)
        study = optuna.create_study(
            storage=storage,
            study_name=STUDY,
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.RandomSampler(seed=search.seed),
            pruner=optuna.pruners.NopPruner(),  # `goes_on` decides
        )
        there = len(study.get_trials(deepcopy=False))
        need(
            n_trials >= there,
            lambda: f"`{out}` has {there} trials; it cannot go on with {n_trials}.",
        )
        for number in range(there, n_trials):
            study.enqueue_trial(search.values(number))
    return study


def _storage(path: Path, replay: Callable[[], Any]) -> Any:
    """Return what the journal holds, or a sentence if Optuna cannot replay it."""
    try:
        return replay()
    except (LookupError, AssertionError, ValueError, TypeError, AttributeError) as error:
        raise ChiaroError(
            f"`{path}` cannot be read: Optuna fails on one of its entries with "
            f"{type(error).__name__}: {error}. Restore it, or begin again in another folder."
        ) from None


def _check_nothing_is_lost(storage: Any, out: Path) -> None:
    """Refuse a journal that knows less than `trials.json`: its trials would be run again.

    The journal is always written first, so it can only be behind if it was emptied or cut.
    """
    if not (out / "trials.json").is_file():
        return
    ended = [trial for trial in read_result(out).trials if trial.ended]
    states = {theirs: ours for ours, theirs in _STATES.items()}
    there: dict[int, str] = {}
    for study in storage.get_all_studies():
        for one in storage.get_all_trials(study._study_id, deepcopy=False):
            there[one.number] = states[one.state.name]
    lost = [trial for trial in ended if there.get(trial.number) != trial.state]
    need(
        not lost,
        lambda: (
            f"`{out / JOURNAL}` was emptied or cut: it lacks {len(lost)} of the {len(ended)} ended "
            f"trials that `trials.json` lists, the first is trial {lost[0].number}. Restore the "
            "journal, or begin again in another folder."
        ),
    )


def _mend(path: Path) -> None:
    """Cut off the half line that a killed process may have left: what follows it would be lost.

    A whole line that is no entry is another thing: somebody else wrote there.
    """
    if not path.exists():
        return
    text = read_regular(path)
    whole = text.rfind(b"\n") + 1
    if whole < len(text):
        with path.open("rb+") as file:
            file.truncate(whole)
    for number, line in enumerate(text[:whole].splitlines(), start=1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not (isinstance(entry, dict) and "op_code" in entry):
            raise ChiaroError(
                f"`{path}` cannot be read: line {number} of {text[:whole].count(10)} is no entry "
                "of a journal. Take the line out, or begin again in another folder."
            )


def _claim(optuna: Any, study: Any, out: Path) -> tuple[Any, int] | None:
    """Return a trial that was left behind, or else the next that waits, with its lock; None if none
    is.
    """
    (out / "trials").mkdir(exist_ok=True)
    states = optuna.trial.TrialState
    with held(out / ".claim"):
        for frozen in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            lock = taken(_lock_of(out, frozen.number))
            if lock is None:
                continue
            now = study.get_trials(deepcopy=False)[frozen.number]
            if now.state == states.RUNNING:  # and did not end between the two looks
                return optuna.trial.Trial(study, frozen._trial_id), lock
            os.close(lock)
        if not study.get_trials(deepcopy=False, states=(states.WAITING,)):
            return None
        trial = study.ask()
        lock = taken(_lock_of(out, trial.number))
        if lock is None:
            raise ChiaroError(f"Trial {trial.number} of `{out}` waits and is locked.")
        return trial, lock


def _lock_of(out: Path, number: int) -> Path:
    return folder_of(out, number).with_suffix(".lock")


def _run(search: Search, study: Any, trial: Any, out: Path) -> tuple[str, str]:
    """Train the trial and report to the study; its state, and the sentence if it failed."""
    for name, law in search.space.items():
        _suggested(trial, name, law)
    epochs = search.settings(trial.number).epochs
    stops = search.stops(epochs)

    def report(epoch: int, value: float) -> bool:
        if epoch not in dict(_curve(trial)):  # it may be told again after a stop
            trial.report(value, epoch)
        if epoch not in stops:
            return True
        others = [
            one.intermediate_values[epoch]
            for one in study.get_trials(deepcopy=False)
            if one.number != trial.number and epoch in one.intermediate_values
        ]
        return goes_on(value, others, search.reduction)

    try:
        return run_trial(search, trial.number, out, report), ""
    except ChiaroError as error:  # it diverged, or cannot be trained: so do some in every search
        return "failed", str(error)


def _curve(trial: Any) -> list[tuple[int, float]]:
    """Return what the journal holds of a trial, by epoch."""
    frozen = trial.storage.get_trial(trial._trial_id)
    return sorted(frozen.intermediate_values.items())


def _suggested(trial: Any, name: str, law: Distribution) -> None:
    """The trial takes the value that waits for it, so that Optuna's own tools know it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(law, Choice):
            trial.suggest_categorical(name, law.options)
        elif isinstance(law, Integers):
            trial.suggest_int(name, law.low, law.high)
        else:
            trial.suggest_float(name, law.low, law.high, log=isinstance(law, LogUniform))


def _tidied(search: Search, study: Any, out: Path) -> SearchResult:
    """Write the result so far, and keep only the weights that may still be wanted."""
    with held(out / ".claim"):
        result = SearchResult(search, tuple(_records(search, study)))
        write_result(result, out)
        best = result.best
        for trial in result.trials:
            if trial.ended and trial is not best:
                clear(out, trial.number)
    return result


def _records(search: Search, study: Any) -> Iterator[Trial]:
    states = {theirs: ours for ours, theirs in _STATES.items()}
    for one in study.get_trials(deepcopy=False):
        yield Trial(
            number=one.number,
            state=states[one.state.name],
            values=search.values(one.number),
            curve=tuple(sorted(one.intermediate_values.items())),
            why=one.user_attrs.get("why", ""),
        )


def _describe(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )


def _sentence(result: SearchResult, number: int) -> str:
    trial = result.trials[number]
    ended = sum(one.ended for one in result.trials)
    came = f"{ended} of {len(result.trials)}: trial {number}, {_describe(trial.values)}: "
    if trial.state == "failed":
        return f"{came}failed. {trial.why}"
    epochs = result.search.settings(number).epochs
    how = "" if trial.state == "complete" else ", stopped"
    value = 0.0 if trial.value is None else trial.value
    return f"{came}{result.search.measure} {value:.4f} after {trial.epochs} of {epochs} epochs{how}"

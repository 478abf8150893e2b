"""What a page is about: a run, a folder of runs or labs, or an embeddings file, read from disk."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.artifacts.files import read_json
from chiaroscuro.errors import ChiaroError, need
from chiaroscuro.report.packing import quoted

__all__ = ["Frame", "Lab", "Subject", "diagnosis_of", "find_runs", "shorter", "subjects"]

_FRAME = re.compile(r"epoch-(\d{4,})\.npz")
_PREFERRED = ("all", "test", "train")
_DEPTH = 4  # folders below the given one that are looked into
_SEVERITIES = ("critical", "warning", "note")
_ROWS = 100_000  # of a finding
_LIST = re.compile(r"\[\s*([-+.\w]+(?:\s*,\s*[-+.\w]+)+)\s*\]")
_FIGURES = (".svg", ".png", ".gif")


@dataclass(frozen=True)
class Frame:
    """The embeddings of one epoch: 0 is before the first step."""

    epoch: int
    path: Path


@dataclass(frozen=True)
class Lab:
    """What `chiaro reproduce --out DIR` left of one lab: its JSON, and its figure if drawn."""

    record: Mapping[str, Any]
    figure: Path | None


@dataclass(frozen=True, eq=False)
class Subject:
    """One column of the page: a run or embeddings. Everything but the name is optional.

    Args:
        name: to show.
        run: the folder of a training.
        embeddings: what its model made of samples.
        source: the file that they are from.
        frames: the same samples at earlier epochs.
        diagnosis: as `diagnosis_of` gives it.
        evaluation: accuracy beside two controls, as `chiaro evaluate --json` prints it.
        labs: papers' experiments.
        notes: sentences about what was left out.
        settings, records: of a training that has no folder.
    """

    name: str
    run: Run | None = None
    embeddings: Embeddings | None = None
    source: Path | None = None
    frames: tuple[Frame, ...] = ()
    diagnosis: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None
    labs: tuple[Lab, ...] = ()
    notes: tuple[str, ...] = field(default=())
    settings: Mapping[str, Any] | None = None
    records: Sequence[Mapping[str, Any]] = ()


def subjects(what: Any, diagnosis: Mapping[str, Any] | None = None) -> list[Subject]:
    """Return the subjects of a page from runs, folders, embeddings files and objects.

    Args:
        what: one of them, or a list.
        diagnosis: of the first, if it is not in its folder.
    """
    several = isinstance(what, Sequence) and not isinstance(what, str | bytes)
    listed = [one for each in (what if several else [what]) for one in _subjects(each)]
    need(bool(listed), lambda: f"A report needs at least 1 run or file; received {what!r}.")
    if diagnosis is not None:
        listed[0] = _with(listed[0], diagnosis=diagnosis_of(diagnosis))
    return _distinct(listed)


def _subjects(what: Any) -> Iterator[Subject]:
    if isinstance(what, Embeddings):
        yield Subject("embeddings", embeddings=what)
        return
    if isinstance(what, Subject):
        yield what
        return
    if isinstance(what, Run):
        yield _of_run(what)
        return
    if hasattr(what, "verdict") and callable(getattr(what, "json", None)):  # a `Diagnosis`
        record = what.json()
        yield Subject(str(record.get("subject", "diagnosis")), diagnosis=diagnosis_of(record))
        return
    need(
        isinstance(what, str | os.PathLike),
        lambda: f"A report needs a run, a folder or a file; received `{type(what).__name__}`.",
    )
    path = Path(what)
    need(path.exists(), lambda: f"`{path}` does not exist.")
    if path.is_file():
        yield Subject(path.stem, embeddings=Embeddings.load(path), source=path)
        return
    runs = find_runs(path)
    for folder in runs:
        yield _of_run(Run.open(folder))
    labs = () if runs else find_labs(path)
    if labs:
        yield Subject(path.name or "labs", labs=labs)
    elif not runs:
        files = sorted(path.glob("*.npz"))
        need(
            bool(files),
            lambda: f"`{path}` holds no run (`settings.toml`), no `.npz` and no lab's JSON.",
        )
        for file in files:
            yield Subject(file.stem, embeddings=Embeddings.load(file), source=file)


def _with(subject: Subject, **changes: Any) -> Subject:
    return Subject(**{**subject.__dict__, **changes})


def _distinct(listed: list[Subject]) -> list[Subject]:
    """Return subjects with distinct names: the same name twice gets a number."""
    seen: dict[str, int] = {}
    out = []
    for subject in listed:
        seen[subject.name] = seen.get(subject.name, 0) + 1
        more = f" ({seen[subject.name]})" if seen[subject.name] > 1 else ""
        out.append(_with(subject, name=subject.name + more))
    return out


# ---- runs ----


def find_runs(folder: Path, depth: int = _DEPTH) -> list[Path]:
    """Return the run folders in a folder, itself included; links are not followed.

    Args:
        folder: where to look.
        depth: how many folders deep.
    """
    if (folder / "settings.toml").is_file():
        return [folder]
    try:
        with os.scandir(folder) as entries:
            below = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    except OSError as error:
        raise ChiaroError(f"`{folder}` cannot be read: {error.strerror or error}.") from None
    paths = []
    for name in below if depth else ():
        if not name.startswith("."):
            with contextlib.suppress(ChiaroError):  # removed meanwhile, or closed to us
                paths += find_runs(folder / name, depth - 1)
    return paths


def _of_run(run: Run) -> Subject:
    notes: list[str] = []
    folder = run.folder / "embeddings"
    here = sorted(folder.glob("*.npz")) if folder.is_dir() else []
    files = {path.stem: path for path in here if path.is_file()}
    frames = sorted(
        (Frame(int(match[1]), path) for path in files.values() if (match := _frame(path))),
        key=lambda frame: frame.epoch,
    )
    others = [name for name in files if not _frame(files[name]) and name != "rows"]
    source = next((files[name] for name in (*_PREFERRED, *others) if name in files), None)
    whole = Embeddings.load(source) if source else None
    if frames:
        source = source or frames[-1].path
        whole = _joined(Embeddings.load(frames[-1].path), files.get("rows"), whole, notes)
    evaluation = run.folder / "evaluation.json"
    diagnosis = run.diagnosis()
    return Subject(
        name=run.folder.resolve().name,
        run=run,
        embeddings=whole,
        source=source,
        frames=tuple(frames),
        diagnosis=None if diagnosis is None else diagnosis_of(diagnosis),
        evaluation=_object(evaluation) if evaluation.is_file() else None,
        labs=find_labs(run.folder / "labs") if (run.folder / "labs").is_dir() else (),
        notes=tuple(notes),
    )


def _frame(path: Path) -> re.Match[str] | None:
    return _FRAME.fullmatch(path.name)


def _joined(
    last: Embeddings, rows: Path | None, whole: Embeddings | None, notes: list[str]
) -> Embeddings:
    """Return the last snapshot with what other files know of its rows: found by their ids."""
    arrays = dict(last.arrays())
    for other in (Embeddings.load(rows) if rows else None, whole):
        if other is None or other.ids is None or last.ids is None:
            continue
        where = {one: at for at, one in enumerate(other.ids.tolist())}
        places = [where.get(one, -1) for one in last.ids.tolist()]
        if min(places) < 0:
            missing = sum(place < 0 for place in places)
            notes.append(
                f"{missing} of the {last.n} rows of the snapshots are not in the other embeddings, "
                "which were left aside."
            )
            continue
        taken = other.take(np.array(places)).arrays()
        arrays = {**{k: v for k, v in taken.items() if k not in _OF_A_MODEL}, **arrays}
    layers = {k.removeprefix("layer_"): v for k, v in arrays.items() if k.startswith("layer_")}
    return Embeddings(
        layers=layers, **{k: v for k, v in arrays.items() if not k.startswith("layer_")}
    )


_OF_A_MODEL = ("h", "z", "h1", "h2", "z1", "z2", "prompts", "prompt_z", "untrained_prompt_z")


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    need(isinstance(value, dict), lambda: f"`{path}` needs an object; it holds another value.")
    return value


# ---- labs ----


def find_labs(folder: Path) -> tuple[Lab, ...]:
    """Return the labs' JSON files in a folder, with their figures.

    Args:
        folder: the `--out` of `chiaro reproduce`.
    """
    labs = []
    for path in sorted(folder.rglob("*.json")):
        if path.name.endswith(".data.json") or path.is_symlink() or not path.is_file():
            continue
        try:
            record = read_json(path)
        except ChiaroError:
            continue  # another program's file
        if isinstance(record, dict) and {"lab", "claims"} <= set(record):
            near = (path.with_suffix(ending) for ending in _FIGURES)
            figure = next((one for one in near if one.is_file() and not one.is_symlink()), None)
            labs.append(Lab(record, figure))
    return tuple(labs)


# ---- diagnosis ----


def diagnosis_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `diagnosis.json`, as the page shows it: `verdict`, `measures` and `findings`.

    `state` and `n_checks` say what the verdict rests on; None and 0 where the record has neither.

    A finding has `name`, `severity`, `evidence`, `cause`, `advice`, `change` (options as one would
    type them), `expect`, `paper` and `rows` (ids); what is missing is empty. `lists` are all rows
    that the diagnosis lists, by name. What is not understood is left out.

    Example:
        >>> diagnosis_of({"findings": [{"name": "collapse", "settings": {"objective.tau": 0.2}}]})
        {'verdict': '1 note: collapse.', 'state': None, 'n_checks': 0, 'measures': {},
        'findings': [{'name': 'collapse', 'severity': 'note', 'evidence': '', 'cause': '',
        'advice': '', 'change': ['--set objective.tau=0.2'], 'expect': '', 'paper': '',
        'rows': []}], 'could_tell': [], 'lists': [], 'economy': None}
    """
    listed = record.get("findings") or []
    need(
        isinstance(listed, Sequence) and all(isinstance(one, Mapping) for one in listed),
        lambda: f"A diagnosis needs a list of findings; received {type(listed).__name__}.",
    )
    listing = record.get("rows")
    known = listing if isinstance(listing, Mapping) else {}
    findings = [_finding(one, _listed(one, known)) for one in listed]
    findings.sort(key=lambda one: _SEVERITIES.index(one["severity"]))
    measures = record.get("measures") or {}
    state, checks = record.get("state"), record.get("checks")
    return {
        "verdict": str(record.get("verdict") or _verdict(findings)),
        "state": state if isinstance(state, str) else None,
        "n_checks": len(checks) if isinstance(checks, list) else 0,
        "measures": {k: v for k, v in measures.items() if isinstance(v, int | float)},
        "findings": findings,
        "could_tell": [str(one) for one in record.get("could_tell") or []],
        "lists": [made for name, one in known.items() if (made := _list(str(name), one))],
        "economy": _economy(record.get("curves")),
    }


def _economy(curves: Any) -> dict[str, Any] | None:
    """Return what fewer dimensions keep: sizes, and a curve for each order; None where it is not
    told.
    """
    one = curves.get("economy") if isinstance(curves, Mapping) else None
    if not isinstance(one, Mapping) or not _numbers(one.get("sizes")):
        return None
    what = "accuracy" if one.get("accuracy") else "recall"
    given = one.get(what)
    known = given if isinstance(given, Mapping) else {}
    lines = {
        str(name): list(values)
        for name, values in known.items()
        if _numbers(values) and len(values) == len(one["sizes"])
    }
    return {"sizes": list(one["sizes"]), "what": what, "lines": lines} if lines else None


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(x, int | float) and not isinstance(x, bool) for x in values
    )


def _list(name: str, one: Any) -> dict[str, Any] | None:
    """Return a list of rows as the page shows it: its name, what it says, how many, the ids."""
    if not isinstance(one, Mapping) or not (ids := _ids(one)):
        return None
    total = one.get("total")
    total = total if isinstance(total, int) and not isinstance(total, bool) else len(ids)
    return {"name": name, "says": str(one.get("says") or ""), "total": total, "ids": ids}


def _finding(one: Mapping[str, Any], rows: Any = None) -> dict[str, Any]:
    severity = str(one.get("severity", "note"))
    settings = one.get("settings")
    settings = settings if isinstance(settings, Mapping) else {}
    change = [f"{key}={_value(value)}" for key, value in settings.items()]
    if not change and one.get("change"):
        given = one["change"]
        lines = given if isinstance(given, list) else [given]
        change = [str(line).strip().removeprefix("--set ").strip() for line in lines]
    return {
        "name": str(one.get("name", "finding")),
        "severity": severity if severity in _SEVERITIES else "note",
        "evidence": str(one.get("evidence") or ""),
        "cause": str(one.get("cause") or ""),
        "advice": str(one.get("advice") or ""),
        "change": [f"--set {quoted(shorter(line))}" for line in change],
        "expect": str(one.get("expect") or ""),
        "paper": str(one.get("paper") or ""),
        "rows": _ids(rows),
    }


def _listed(one: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """Return the rows of a finding: its own list, the list that it names,
    or the one of its name.
    """
    rows = one.get("rows")
    if isinstance(rows, str):
        return known.get(rows)
    return known.get(str(one.get("name"))) if rows is None else rows


def _ids(rows: Any) -> list[str]:
    """Return the ids of rows: a list of them, or an object whose `ids` are that list."""
    if isinstance(rows, Mapping):
        rows = rows.get("ids")
    if not isinstance(rows, list):
        return []
    return [str(one) for one in rows[:_ROWS] if isinstance(one, str | int)]


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def shorter(notation: str) -> str:
    """Write lists that repeat a value as a person would; the notation means the same.

    Example:
        >>> shorter("Cosine(tau=[0.2, 0.2, 0.2, 0.2, 0.4, 0.4, 0.4])")
        'Cosine(tau=[0.2]*4+[0.4]*3)'
    """
    return _LIST.sub(_runs_of, notation)


def _runs_of(match: re.Match[str]) -> str:
    runs = [(v, len(list(g))) for v, g in itertools.groupby(re.split(r"\s*,\s*", match[1]))]
    text = "+".join(f"[{value}]*{n}" if n > 1 else f"[{value}]" for value, n in runs)
    return text if len(text) < len(match[0]) else match[0]


def _verdict(findings: list[dict[str, Any]]) -> str:
    if not findings:
        return "No problem found."
    worst = findings[0]["severity"]
    names = [one["name"] for one in findings if one["severity"] == worst]
    return f"{len(names)} {worst}{'s' * (len(names) > 1)}: {', '.join(names)}."

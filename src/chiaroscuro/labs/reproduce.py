"""Run labs, judge their claims, draw their figures, and leave both in a folder."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from chiaroscuro import ChiaroError, InputError
from chiaroscuro.labs import style
from chiaroscuro.labs.claim import Claim
from chiaroscuro.labs.lab import SCALES, Lab, all_labs, chosen
from chiaroscuro.labs.pieces import Pieces
from chiaroscuro.labs.show import Show

__all__ = ["FORMAT", "Report", "compact", "draw", "reproduce", "written"]

FORMAT = 1
"""Of a lab's JSON file."""

_DIGITS = 7
"""Of each number of `result` in a lab's JSON file. With four, differences of neighbouring values of
a curve vanish, and claims about them get another verdict than they had in the run."""

_LARGEST_SEED = 2**31 - 1
"""The generators of numpy, torch and scikit-learn all take it, with a few thousand added."""


@dataclass(frozen=True)
class Report:
    """The result of one lab at one scale."""

    lab: Lab
    scale: str
    seeds: tuple[int, ...]
    seconds: float
    claims: tuple[Claim, ...]
    settings: dict[str, Any]
    files: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a claim fails."""
        return any(claim.verdict == "fails" for claim in self.claims)

    def record(self) -> dict[str, Any]:
        """As `chiaro reproduce --json` prints it."""
        return {
            "lab": self.lab.name,
            "paper": self.lab.paper,
            "scale": self.scale,
            "seeds": list(self.seeds),
            "seconds": round(self.seconds, 2),
            "claims": [claim.record() for claim in self.claims],
        }


def reproduce(
    what: str | Sequence[str] = (),
    scale: str = "quick",
    seed: int | None = None,
    out: str | Path | None = None,
    show: Show | None = None,
    jobs: int = 1,
) -> list[Report]:
    """Run labs and judge the claims of their papers.

    Args:
        what: labs' names, papers' keys or claims' ids (`"V4"`); all labs unless given.
        scale: "quick" (seconds), "laptop" (minutes), "long" (hours on two cores, over several
            sittings) or "paper" (the paper's own numbers).
        seed: the first of the seeds; the preset's own unless given.
        out: the folder for `<scale>/<paper>/<lab>` `.json` (claims, and the curves of the figure
            to seven digits), `.data.json` (everything), `.png` and `.svg`. A run that is stopped
            goes on from its pieces there. None writes nothing.
        show: where progress goes.
        jobs: labs at the same time, each in a process of its own with one thread. Python starts
            them afresh: a script that asks for several needs `if __name__ == "__main__":`.

    Example:
        >>> (report,) = reproduce("V4")
        >>> any(claim.verdict == "fails" for claim in report.claims)
        False
    """
    if scale not in SCALES:
        raise InputError(f"`scale` needs one of {', '.join(SCALES)}; received {scale!r}.")
    if jobs < 1:
        raise InputError(f"`jobs` needs an integer of at least 1; received {jobs}.")
    if seed is not None and not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"`seed` needs a whole number from 0 to {_LARGEST_SEED}; received {seed}.")
    show = show or Show(None)
    labs = chosen([what] if isinstance(what, str) else what) if what else all_labs()
    folder = None if out is None else Path(out) / scale
    if folder is not None:
        for lab in labs:
            _ready(folder / lab.paper)
    done = show.piece if min(jobs, len(labs)) == 1 else None  # a process has no terminal
    one = partial(_one, scale=scale, seed=seed, folder=folder, done=done)
    reports = []
    with _at_once(one, labs, jobs) as running:
        for lab in labs:
            show.begin(lab, scale)
            reports.append(running(lab))
            show.end(reports[-1].claims, reports[-1].seconds)
    if out is not None and not style.available():
        show.say("no figures: they need matplotlib, `pip install chiaroscuro[plots]`.")
    return reports


@contextmanager
def _at_once(
    one: Callable[[Lab], Report], labs: Sequence[Lab], jobs: int
) -> Iterator[Callable[[Lab], Report]]:
    """The report of a lab, by the lab: run when it is asked for, or by processes ahead of that."""
    if min(jobs, len(labs)) == 1:
        yield one
        return
    pool = ProcessPoolExecutor(min(jobs, len(labs)), get_context("spawn"), _one_thread)
    promised = {lab: pool.submit(one, lab) for lab in labs}
    try:
        yield lambda lab: promised[lab].result()
    except BaseException:  # the others would go on for hours
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _one_thread() -> None:
    """What a process does first: Ctrl-C is the parent's to hear, and threads would be too many."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def _ready(folder: Path) -> None:
    """Make the folder, fit to be written to: asked before anything is computed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = error.strerror or error
        raise ChiaroError(f"`{folder}` cannot be written: {why} (errno {error.errno}).") from None


def _one(
    lab: Lab,
    scale: str,
    seed: int | None,
    folder: Path | None,
    done: Callable[[str, float], None] | None,
) -> Report:
    settings = lab.settings(scale)
    if seed is not None:
        seeds = tuple(range(seed, seed + len(settings.seeds)))
        settings = dataclasses.replace(settings, seeds=seeds)
    stem = None if folder is None else folder / lab.paper / lab.name
    pieces = Pieces(stem and stem.with_name(f"{lab.name}.pieces"), settings, done)

    began = time.perf_counter()
    result = lab.module.run(settings, pieces)
    seconds = time.perf_counter() - began + pieces.before
    report = Report(
        lab=lab,
        scale=scale,
        seeds=settings.seeds,
        seconds=seconds,
        claims=tuple(lab.module.claims(result)),
        settings=dataclasses.asdict(settings),
    )
    if stem is None:
        return report
    stem.with_name(f"{lab.name}.data.json").write_text(json.dumps(result), encoding="utf-8")
    files = tuple(path.name for path in draw(lab, result, stem)) if style.available() else ()
    report = dataclasses.replace(report, files=files)
    curves = getattr(lab.module, "curves", lambda result: result)(result)
    record = {"format": FORMAT, **report.record(), **_around(report), "result": compact(curves)}
    stem.with_name(f"{lab.name}.json").write_text(written(record), encoding="utf-8")
    pieces.clear()
    return report


def compact(value: Any) -> Any:
    """Return results as a record keeps them: seven digits of each number, None for NaN.

    They are enough to draw the figure again, and to judge the claims again: on them
    `lab.module.claims(result)` gives the verdicts of the run, and a test says so.

    Example:
        >>> compact({"loss": [1.23456789, float("nan")], "steps": 123456789})
        {'loss': [1.234568, None], 'steps': 123456789}
    """
    match value:
        case dict():
            return {name: compact(one) for name, one in value.items()}
        case list() | tuple():
            return [compact(one) for one in value]
        case float():
            return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value


def written(record: dict[str, Any]) -> str:
    """Return a record as text: a line a number, but the curves of the figure on one line."""
    rest = {name: value for name, value in record.items() if name != "result"}
    text = json.dumps(rest, indent=1)
    if "result" in record:
        line = json.dumps(record["result"], separators=(",", ":"))
        text = f'{text[:-2]},\n "result": {line}\n}}'
    return text + "\n"


def draw(lab: Lab, result: Any, stem: Path) -> list[Path]:
    """The lab's figure as PNG and SVG, and its animation as GIF if it has one."""
    paths = style.save(lab.module.figure(result), stem)
    if hasattr(lab.module, "animation"):
        paths.append(stem.with_name(f"{stem.name}.gif"))
        lab.module.animation(result, paths[-1])
    return paths


def _around(report: Report) -> dict[str, Any]:
    """What else a file should say: settings, versions, figures."""
    import torch

    return {
        "settings": report.settings,
        "figures": list(report.files),
        "environment": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
        },
    }

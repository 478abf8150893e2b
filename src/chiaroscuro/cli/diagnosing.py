"""`chiaro evaluate`, `chiaro diagnose` and `chiaro report`."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from chiaroscuro.errors import ChiaroError, InputError

__all__ = ["diagnose", "evaluate", "report"]


def evaluate(call: argparse.Namespace) -> int:
    from chiaroscuro.diagnostics import table
    from chiaroscuro.verbs import evaluate, is_run

    if is_run(call.subject):
        from chiaroscuro.engine import Passing, joined_ranks

        with joined_ranks():
            passing = Passing(workers=call.workers, spread=True)
            results = evaluate(call.subject, template=call.template, on=call.on, passing=passing)
        if not results:  # another rank speaks
            return 0
    else:
        results = evaluate(call.subject, template=call.template, on=call.on)
    if call.on:
        return _evaluate_on(results, call.json)
    if skipped := results["protocol"].get("skipped"):
        print(skipped, file=sys.stderr)
    if call.json:
        import json

        print(json.dumps(results, indent=2))
    else:
        print(table(results))
    return 0


def _evaluate_on(results: dict[str, Any], as_json: bool) -> int:
    """Print the results of `evaluate` on each of several datasets."""
    import json

    from chiaroscuro.diagnostics import table

    if as_json:
        print(json.dumps(results, indent=2))
        return 0
    for name, one in results.items():
        print(f"{name}\n{table(one)}\n")
    return 0


def diagnose(call: argparse.Namespace) -> int:
    import json

    import chiaroscuro
    from chiaroscuro.artifacts.sources import parse_names
    from chiaroscuro.diagnostics import draw, page, read_task
    from chiaroscuro.verbs import is_run

    subject = call.subjects[0]
    alone = len(call.subjects) > 1 or not is_run(subject)
    if alone and int(os.environ.get("RANK", "0")) > 0:  # the first rank does it
        return 0
    if len(call.subjects) > 1:
        return _compare(call)
    if is_run(subject) and (call.objective is not None or call.batch is not None):
        raise InputError(
            f"`--objective` and `--batch` describe a file of embeddings; the run `{subject}` has "
            "both in its settings."
        )
    objective = None if call.objective is None else chiaroscuro.parse(call.objective)
    task = read_task(call.task)
    with contextlib.ExitStack() as stack, _refused_data(call):
        passing = None
        if is_run(subject):
            from chiaroscuro.engine import Passing, joined_ranks

            stack.enter_context(joined_ranks())
            passing = Passing(workers=call.workers, spread=True)
        diagnosis = chiaroscuro.diagnose(
            subject,
            objective,
            call.batch,
            call.rows,
            task=task or None,
            names=parse_names(call.map) or None,
            labels=call.labels,
            pairs=call.pairs,
            against=call.against,
            metric=call.metric,
            history=call.history,
            settings=call.settings,
            progress=_Progress(),
            passing=passing,
        )
    if diagnosis is None:  # another rank speaks
        return 0
    if call.json:
        print(json.dumps(diagnosis.json(), indent=2))
    else:
        page(diagnosis)
    if call.out is not None:
        os.makedirs(call.out, exist_ok=True)
        path = os.path.join(call.out, "diagnosis.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(diagnosis.json(), file, indent=2)
        for written in (path, *draw(diagnosis, call.out)):
            print(f"diagnosis: {written}", file=sys.stderr)
    return _failed(call.fail_on, [diagnosis])


@contextlib.contextmanager
def _refused_data(call: argparse.Namespace) -> Iterator[None]:
    """Tell data of which no diagnosis is made from a wrong call."""
    try:
        yield
    except InputError as error:
        given = (call.labels, call.pairs, call.against, call.history, call.settings)
        paths = (call.subjects[0], *given)
        if all(os.path.exists(path) for path in paths if path is not None):
            raise ChiaroError(str(error)) from None
        raise


def _compare(call: argparse.Namespace) -> int:
    """Compare two runs or files."""
    import json

    import chiaroscuro

    names = ("objective", "batch", "task", "labels", "pairs", "against", "map", "history")
    given = [f"--{name}" for name in (*names, "settings") if getattr(call, name) is not None]
    if len(call.subjects) > 2 or given:
        raise InputError(
            f"`chiaro diagnose` compares two subjects; received {len(call.subjects)}"
            + (f" and {', '.join(given)}, which are for one." if given else ".")
        )
    for subject in call.subjects:
        if not os.path.exists(subject):
            raise InputError(f"`{subject}` does not exist.")
    try:
        comparison = chiaroscuro.compare(*call.subjects, rows=call.rows, metric=call.metric)
    except InputError as error:
        raise ChiaroError(str(error)) from None
    if call.json:
        print(json.dumps(comparison.json(), indent=2))
    else:
        comparison.page()
    if call.out is not None:
        os.makedirs(call.out, exist_ok=True)
        path = os.path.join(call.out, "comparison.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(comparison.json(), file, indent=2)
        print(f"comparison: {path}", file=sys.stderr)
    return _failed(call.fail_on, [comparison.first, comparison.second])


def _failed(limit: str | None, diagnoses: list[Any]) -> int:
    """Return status 1, with a sentence, where a finding is as severe as the limit."""
    from chiaroscuro.diagnostics.advice import SEVERITIES

    if limit is None:
        return 0
    least = SEVERITIES.index(limit)
    grave = [
        one.name
        for each in diagnoses
        for one in each.findings
        if SEVERITIES.index(one.severity) >= least
    ]
    if grave:
        count = f"{len(grave)} finding{'s' * (len(grave) != 1)}"
        print(f"--fail-on {limit}: {count}: {', '.join(grave)}", file=sys.stderr)
    return int(bool(grave))


class _Progress:
    """Says what is being done and how long it may take, where that is more than two seconds."""

    def __init__(self) -> None:
        import time

        self.clock = time.monotonic
        self.what = ""
        self.began = self.said = self.clock()

    def __call__(self, what: str, share: float) -> None:
        now = self.clock()
        if what != self.what:
            self.what, self.began = what, now
        if now - self.said < 2:
            return
        self.said = now
        left = f", about {(now - self.began) * (1 - share) / share:.0f} s left" if share else ""
        done = f" {100 * share:.0f} %" if share else ""
        print(f"{what}{done}{left}", file=sys.stderr)


def report(call: argparse.Namespace) -> int:
    from chiaroscuro.report import report
    from chiaroscuro.verbs import complete_run, is_run

    out = call.out
    for subject in call.subjects:
        if not os.path.exists(subject):
            raise InputError(f"`{subject}` does not exist: no run, folder or file has that name.")
    if out is None:
        one = call.subjects[0]
        if len(call.subjects) > 1 or not os.path.isfile(os.path.join(one, "settings.toml")):
            raise InputError(
                f"`chiaro report` needs `--out FILE.html` for {len(call.subjects)} "
                f"subject{'s' * (len(call.subjects) != 1)}, the first of which is `{one}`; only a "
                "single run has a place of its own for the page."
            )
        out = os.path.join(one, "report.html")
    for run in filter(is_run, call.subjects):
        if call.no_diagnose:
            print(_left_out(run), end="", file=sys.stderr)
        else:
            for sentence in complete_run(run):
                print(sentence, file=sys.stderr)
    maps = [name for name in call.map or ["tsne"] if name != "none"]
    print(f"report: {report(call.subjects, out, call.points, maps)}")
    return 0


def _left_out(folder: str) -> str:
    """Return which commands would add to the page of a run, as a sentence."""
    from chiaroscuro.artifacts import Run

    run = Run.open(folder)
    verbs = {"diagnose": run.diagnosis(), "evaluate": run.evaluation()}
    missing = [f"`chiaro {verb} {folder}`" for verb, done in verbs.items() if done is None]
    return f"`{folder}` is shown without what {' and '.join(missing)} adds.\n" if missing else ""

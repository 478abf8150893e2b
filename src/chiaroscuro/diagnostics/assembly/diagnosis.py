"""`diagnose`: everything that given embeddings allow to be said, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.artifacts.pieces import blocks
from chiaroscuro.diagnostics.advice import SEVERITIES, Facts, Finding, checks, findings
from chiaroscuro.diagnostics.assembly.inputs import ROWS, Inputs, Reading, read
from chiaroscuro.diagnostics.assembly.lists import list_of, scanned
from chiaroscuro.diagnostics.assembly.measuring import (
    LEAST,
    PAIRS,
    PAIRWISE,
    Context,
    Measured,
    measure,
)
from chiaroscuro.diagnostics.assembly.verdict import state_of, verdict
from chiaroscuro.display import html_table
from chiaroscuro.errors import InputError, need
from chiaroscuro.extras import bring
from chiaroscuro.measures import Drift, Listed, Scan, scan
from chiaroscuro.measures.record import Record, plain

__all__ = ["DIAGNOSIS_FORMAT", "Diagnosis", "diagnose"]

DIAGNOSIS_FORMAT = 1

PLACES = ("length_change_at", "pair_shift_from", "pair_shift_to")
"""Measures that are the number of a row: in the whole file, also where rows are drawn."""

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done."""


@dataclass(frozen=True, eq=False)
class Diagnosis(Record):
    """Result of `diagnose`: measures, findings and lists of rows.

    Args:
        subject: the name of the file, the run or the arrays.
        state: "something is wrong", "nothing found" by the checks, or "cannot judge".
        verdict: the state in a sentence or two.
        checks: names of the rules that had what they need.
        findings: the gravest first.
        measures: numbers by name; of z under `z_`.
        controls: measures of pairs beside their values under shuffled pairs.
        intervals: measures with a 95 % interval.
        spectra: singular values of h and z.
        lists: rows worth a look, by name: `duplicates`, `hubs`, `far`, ...; see `rows`.
        given: the arrays and facts that were there, by name.
        could_tell: what more could be said, and what it takes.
        sampling: how many rows were looked at.
        curves: what neighbours keep of fewer dimensions and coarser numbers: `economy`.
        drift: against earlier embeddings, where there are any.
    """

    subject: str
    state: str
    verdict: str
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]
    measures: dict[str, Any]
    controls: dict[str, Any]
    intervals: dict[str, Any]
    spectra: dict[str, np.ndarray]
    lists: dict[str, Listed]
    given: dict[str, str]
    could_tell: tuple[str, ...]
    sampling: dict[str, Any]
    curves: dict[str, Any] = field(default_factory=dict)
    drift: Drift | None = None

    @property
    def severity(self) -> str | None:
        """The gravest severity; None where nothing was found."""
        return self.findings[0].severity if self.findings else None

    def json(self) -> dict[str, Any]:
        """The diagnosis as plain numbers, lists and dictionaries, with its `format`."""
        document = {"format": DIAGNOSIS_FORMAT, **super().json()}
        del document["lists"]
        for made, one in zip(document["findings"], self.findings, strict=True):
            made["change"] = one.change
            made["confidence"] = one.confidence
            made["rows"] = list_of(one.name, self.lists)
        return {**document, "rows": {name: one.json() for name, one in self.lists.items()}}

    def rows(self, name: str) -> Any:
        """Return the rows of a list as a pandas `DataFrame`, the worst first.

        Needs `chiaroscuro[notebook]`; `lists[name].table()` gives the same columns without pandas.

        Args:
            name: name of a list, such as "duplicates" or "label_errors"; or of a finding.
        """
        listed = list_of(name, self.lists)
        need(
            listed is not None,
            lambda: (
                f"`Diagnosis.rows(name)` needs one of {', '.join(self.lists) or 'no lists'}; "
                f"received `{name}`."
            ),
        )
        pandas = bring("pandas", "`Diagnosis.rows`", "'chiaroscuro[notebook]'")
        return pandas.DataFrame(self.lists[str(listed)].table())

    def plot(self, ax: Any = None) -> Any:
        """Draw the singular values of h and z; needs `chiaroscuro[plots]`.

        Args:
            ax: matplotlib axes; None makes new ones.
        """
        from chiaroscuro.diagnostics.assembly.figures import draw_spectrum

        return draw_spectrum(self, ax)

    def _repr_html_(self) -> str:
        rows = [(one.severity, one.name, one.evidence) for one in self.findings]
        numbers = [
            ("measure", name, f"{value:.4g}")
            for name, value in self.measures.items()
            if isinstance(value, int | float)
        ]
        return html_table(f"{self.subject}: {self.verdict}", [*rows, *numbers[:12]])

    def __str__(self) -> str:
        from chiaroscuro.diagnostics.assembly.page import text

        return text(self)


def diagnose(
    subject: Any,
    context: Context | None = None,
    rows: int = ROWS,
    seed: int = 0,
    inputs: Inputs | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Diagnose embeddings with every check that the given arrays allow.

    Rules turn the measures into findings, the gravest first; each has its evidence, its cause and
    what to change. Measures of pairs stand beside their values under shuffled pairs. With fewer
    than 64 rows the measures are given and nothing is judged.

    Args:
        subject: `Embeddings`, a matrix, a dictionary of arrays, a table, or a file of any kind that
            `read` knows. Of a file with more than `rows` rows all are scanned once for twins,
            zeros and lengths.
        context: what is known of the training: the loss, the batch, settings and history.
        rows: look at so many at most, drawn by the seed; 10,000 of them where all pairs are
            compared, 2,048 pairs of views.
        seed: seed of all random choices.
        inputs: names, labels and pairs that are not in the file.
        progress: called with what is being done and the share of it that is done, from 0 to 1.

    Example:
        >>> diagnosis = diagnose(np.random.default_rng(0).normal(size=(500, 16)))
        >>> diagnosis.severity, diagnosis.measures["numerical_rank"]
        (None, 16)
        >>> diagnose(np.ones((500, 16))).findings[0].name
        'full_collapse'
    """
    context = Context() if context is None else context
    reading = read(subject, rows, seed, inputs)
    embeddings = reading.embeddings
    context = _of_rows(context, reading)
    seen = _scanned(reading, progress)
    done = lambda share: None if progress is None else progress("measuring", share)
    done(0.0)
    measured = measure(embeddings, context, seed, done)
    places = {name: measured.numbers[name] for name in PLACES if name in measured.numbers}
    measured.numbers |= {name: int(reading.rows[at]) for name, at in places.items()}
    lists = _lists(measured, reading, seen)
    enough = embeddings.n >= LEAST
    facts = Facts(measured.numbers, flat(context.settings))
    listed = findings(facts) if enough else [_too_few(embeddings)]
    made = checks(facts) if enough else []
    return Diagnosis(
        subject=reading.name,
        state=state_of(listed, facts, embeddings.n),
        verdict=verdict(listed, facts, embeddings.n, made),
        checks=tuple(made),
        findings=tuple(listed),
        measures=plain(measured.numbers),
        controls=dict(measured.controls),
        intervals=dict(measured.intervals),
        spectra=measured.spectra,
        lists=lists,
        given=_given(embeddings, context),
        could_tell=tuple(_could_tell(embeddings, context, enough)),
        sampling={
            "n": reading.n,
            "rows": embeddings.n,
            "rows_of_all_pairs": min(PAIRWISE, embeddings.n),
            "pairs_of_views": min(PAIRS, embeddings.n),
            "scanned": reading.n if seen is not None else embeddings.n,
            "metric": context.metric,
            "seed": seed,
        },
        curves=dict(measured.curves),
    )


def flat(settings: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """Nested settings by dotted keys, as `--set` takes them.

    Example:
        >>> flat({"epochs": 5, "data": {"source": "digits"}})
        {'epochs': 5, 'data.source': 'digits'}
    """
    values: dict[str, Any] = {}
    for key, value in settings.items():
        inside = isinstance(value, Mapping)
        values |= flat(value, f"{under}{key}.") if inside else {f"{under}{key}": value}
    return values


def _of_rows(context: Context, reading: Reading) -> Context:
    """What is known of each row, of the rows that were drawn."""
    if len(reading.rows) == reading.n:
        return context
    names = ("inputs", "parameters", "first_parameters")
    given = {name: value for name in names if (value := getattr(context, name)) is not None}
    for name, value in given.items():
        need(
            len(value) == reading.n,
            lambda name=name, value=value: (
                f"`Context({name})` needs one for each of {reading.n} rows, of which "
                f"{len(reading.rows)} are looked at; received {len(value)}."
            ),
        )
    return replace(context, **{name: value[reading.rows] for name, value in given.items()})


def _scanned(reading: Reading, progress: Progress | None) -> Scan | None:
    """One pass over all rows, where only some of them are drawn."""
    if len(reading.rows) == reading.n:
        return None
    name = "h" if "h" in reading.source.arrays else "z"
    array, n = reading.source.arrays[name], reading.n

    def rows() -> Iterator[tuple[int, np.ndarray]]:
        for start, block in blocks(array):
            if progress is not None:
                progress(f"scanning {n:,} rows", start / n)
            yield start, block

    scanned = scan(rows(), n)
    if scanned.n_bad:
        first = ", ".join(str(int(row)) for row in scanned.bad[:5])
        raise InputError(
            f"`diagnose` needs finite numbers; {scanned.n_bad} of {n} rows of `{name}` of "
            f"`{reading.name}` have NaN or infinity: {'row' if scanned.n_bad == 1 else 'rows'} "
            f"{first}{' and more' if scanned.n_bad > 5 else ''}."
        )
    return scanned


def _lists(measured: Measured, reading: Reading, seen: Scan | None) -> dict[str, Listed]:
    """The rows that were singled out, by their numbers and ids in the whole."""
    gathered = {name: one.of(reading.rows).first() for name, one in measured.lists.items()}
    if seen is not None:
        numbers, lists = scanned(seen, reading.source.arrays.get("split"))
        measured.numbers |= numbers
        share = (seen.exact - seen.n_zero * (seen.n_zero > 1)) / seen.n
        if share > measured.numbers.get("near_duplicates", 1.0):
            measured.numbers |= {"near_duplicates": share, "exact_duplicates": seen.exact}
        else:
            lists.pop("duplicates", None)
        gathered |= lists
    if "ids" not in reading.source.arrays:
        return gathered
    return {name: one.named(reading.ids) for name, one in gathered.items()}


# ---- words ----


def _too_few(embeddings: Embeddings) -> Finding:
    n = embeddings.n
    return Finding(
        name="too_few_rows",
        severity=SEVERITIES[0],
        evidence=f"{n} rows; no rank can exceed {n - 1}, and neighbours are few",
        cause="so few rows look collapsed or spread by chance",
        advice=f"embed at least {LEAST} samples, better a thousand",
        expect="a judgement",
        paper="politis1999subsampling",
    )


def _given(embeddings: Embeddings, context: Context) -> dict[str, str]:
    given = {name: f"{a.shape} {a.dtype}" for name, a in embeddings.arrays().items()}
    if context.loss is not None:
        given["objective"] = f"{context.loss.kernel!r}, {context.loss.negatives!r}"
    if context.batch is not None:
        given["batch"] = str(context.batch)
    if context.settings:
        given["settings"] = "of the run"
    if context.history:
        given["history"] = f"{len(context.history)} records"
    return given


def _could_tell(embeddings: Embeddings, context: Context, enough: bool) -> list[str]:
    here = set(embeddings.arrays())
    views = bool(here & {"h1", "z1"})
    wanted = [
        (not enough, f"with at least {LEAST} rows: whether anything is wrong at all"),
        (
            "labels" not in here,
            "with `labels`: accuracy of neighbours and probes, false negatives, leaks, the sizes "
            "of classes",
        ),
        (
            not views,
            "with two views (`z1` and `z2`, or `h1` and `h2`): alignment, mispaired, too weak and "
            "too strong views",
        ),
        (
            context.loss is None,
            "with the objective (`--objective`) and two views: whether the temperature fits, and "
            "the loss taken apart",
        ),
        (context.batch is None, "with the batch size (`--batch`): whether negatives are too few"),
        ("z" not in here, "with `z`, the projector's output: what the projector does to h"),
        ("h" not in here, "with `h`, the encoder's output: what is used afterwards"),
        (
            "layer_untrained" not in here,
            "with `layer_untrained`, h before training: what training added",
        ),
        ("factors" not in here, "with `factors`: which of them survive, style against content"),
        (
            context.projector is None,
            "with the projector itself: its regions, and which directions it does not see",
        ),
        (
            context.model is None,
            "with the model and its inputs: whether its neural kernel sees the classes",
        ),
        (not context.history, "with the history of a run: whether training left its start"),
    ]
    return [sentence for missing, sentence in wanted if missing]

"""A diagnosis as a page for the terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chiaroscuro.measures import CATALOGUE

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.advice import Finding
    from chiaroscuro.diagnostics.assembly.diagnosis import Diagnosis

__all__ = ["page", "sparkline", "text"]

_BARS = "▁▂▃▄▅▆▇█"
_ASCII = ".:-=+*#@"
_COLOURS = {"critical": "bold red", "warning": "yellow", "note": "cyan", None: "green"}
_SIGNS = {"critical": "X", "warning": "!", "note": "i"}
_ALONE = (
    *("near_duplicates", "hub_skewness", "loss", "bound", "effective_negatives", "false_mass"),
    *("cluster_agreement_labels", "projector_rank", "projector_effective_rank"),
    *("views_annihilated", "data_annihilated", "displacement_unexplained", "hardest_agreement"),
    *("span_dimension", "untrained_agreement", "paired_neighbours", "paired_agreement"),
)
_BESIDE = ("linear_accuracy", "recall_1", "norm_stretch", "dead_dimensions")


def sparkline(values: Any, width: int = 40, ascii_only: bool = False) -> str:
    """Singular values as bars, in powers of ten from a millionth of the largest.

    Args:
        values: in falling order.
        width: characters at most; of more values evenly spaced ones are shown.

    Example:
        >>> sparkline([1.0, 1e-3, 0.0], ascii_only=True)
        '@+.'
    """
    s = np.asarray(values, dtype=np.float64)
    bars = _ASCII if ascii_only else _BARS
    if len(s) == 0 or s[0] <= 0:
        return bars[0] * min(width, len(s))
    s = s[np.linspace(0, len(s) - 1, min(width, len(s))).round().astype(int)]
    level = 1 + np.log10(np.maximum(s / s[0], 1e-6)) / 6
    return "".join(bars[int(x)] for x in np.floor(level * (len(bars) - 1) + 0.5))


def page(diagnosis: Diagnosis, out: TextIO | None = None, width: int | None = None) -> None:
    """Print a diagnosis: the verdict, spectra, measures beside their controls, findings.

    Args:
        diagnosis: from `diagnose`.
        out: standard output unless given. Without a terminal it is plain text.
        width: characters of a line; the terminal's unless given.
    """
    console = Console(file=out, width=width, highlight=False)
    ascii_only = "utf" not in (console.encoding or "").lower()
    if ascii_only and isinstance(console.file, io.TextIOWrapper):
        console.file.reconfigure(errors="replace")  # a sign that it cannot show is a question mark
    colour = _COLOURS[_worst(diagnosis)]
    console.print(
        Panel(Text(diagnosis.verdict), title=diagnosis.subject, border_style=colour, padding=(0, 1))
    )
    for space, values in diagnosis.spectra.items():
        line = Text(f"  spectrum of {space}  ", style="dim")
        line.append(sparkline(values, ascii_only=ascii_only), style=colour)
        line.append(f"  {len(values)} values, log scale", style="dim")
        console.print(line)
    console.print(_measures(diagnosis))
    for number, one in enumerate(diagnosis.findings, start=1):
        console.print(Padding(_finding(number, one), (0, 2)))
    for title, lines in (
        ("Rows worth a look", _lists(diagnosis)),
        ("Smaller embeddings", _economy(diagnosis)),
        ("Against the earlier embeddings", _drift(diagnosis)),
    ):
        if lines:
            console.print(Text(f"\n{title}", style="bold"))
            for words in lines:
                console.print(Padding(Text(words), (0, 2)))
    console.print(_sampling(diagnosis), style="dim")
    if diagnosis.could_tell:
        console.print(Text("\nFurther checks with more input", style="bold"))
        for sentence in diagnosis.could_tell:
            console.print(Padding(Text(sentence), (0, 2)), style="dim")


def text(diagnosis: Diagnosis, width: int = 100) -> str:
    """The page as plain text.

    Example:
        >>> from chiaroscuro.diagnostics import diagnose
        >>> "full collapse" in text(diagnose(np.ones((100, 4))))
        True
    """
    out = io.StringIO()
    page(diagnosis, out, width)
    return out.getvalue()


def _worst(diagnosis: Diagnosis) -> str | None:
    severity = diagnosis.severity
    return None if severity == "note" else severity


def _measures(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("")  # wraps on a narrow terminal: numbers do not
    spaces = list(diagnosis.spectra)
    controlled = bool(diagnosis.controls)
    for space in spaces:
        table.add_column(space, justify="right", no_wrap=True)
        if controlled:
            table.add_column("shuffled", justify="right", style="dim", no_wrap=True)
    computed = [name for name, one in CATALOGUE.items() if one.of and name not in _ALONE]
    for key in (*computed, *_BESIDE):
        name = CATALOGUE[key].label
        cells = [
            cell
            for space in spaces
            for cell in _cells(diagnosis, space, key)[: 2 if controlled else 1]
        ]
        if any(cells):
            table.add_row(name, *cells)
    for key in _ALONE:
        name = CATALOGUE[key].label
        value = diagnosis.measures.get(key)
        if value is not None:
            control = diagnosis.controls.get(key)
            table.add_row(
                name, _number(value), *([] if control is None else [_number(control.mean)])
            )
    return table


def _cells(diagnosis: Diagnosis, space: str, key: str) -> tuple[str, str]:
    name = key if space == "h" else f"{space}_{key}"
    value, control = diagnosis.measures.get(name), diagnosis.controls.get(name)
    if value is None:
        return "", ""
    interval = diagnosis.intervals.get(name)
    around = "" if interval is None else f" ± {_number((interval.high - interval.low) / 2)}"
    of = diagnosis.measures.get("room" if space == "h" else f"{space}_room")
    room = f" of {of}" if key in ("effective_rank", "numerical_rank") else ""
    return _number(value) + around + room, "" if control is None else _number(control.mean)


def _number(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _finding(number: int, one: Finding) -> Group:
    colour = _COLOURS[one.severity]
    head = Text(f"\n{number} {_SIGNS[one.severity]} {one.name.replace('_', ' ')}", style=colour)
    head.append(f"  {one.severity}", style="dim")
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(style="dim", min_width=8)
    table.add_column(overflow="fold")
    for name, words in (
        *(("evidence", one.evidence), ("sure", one.confidence), ("cause", one.cause)),
        *(("advice", one.advice), ("numpy", one.line)),
    ):
        if words:
            table.add_row(name, Text(words))
    for line in one.change:
        table.add_row("change", Text(f"--set {_quoted(line)}", style="bold"))
    table.add_row("expect", Text(one.expect))
    table.add_row("paper", Text(one.paper))
    return Group(head, table)


def _lists(diagnosis: Diagnosis) -> list[str]:
    """Each list of rows: its name, how many, and the first ids."""
    lines = []
    for name, one in diagnosis.lists.items():
        ids = one.rows if one.ids is None else one.ids
        total = len(one) if one.total is None else one.total
        first = ", ".join(str(x) for x in ids[:6].tolist())
        more = ", ..." if total > 6 else ""
        lines.append(f"{name} ({total:,}): rows that {one.says}: {first}{more}")
    return lines


def _economy(diagnosis: Diagnosis) -> list[str]:
    """What may be left out, in sentences."""
    economy = diagnosis.curves.get("economy")
    if economy is None:
        return []
    d = int(economy.sizes[-1])
    what = "accuracy" if economy.accuracy else "recall of neighbours"
    ways = {"first": "first", "variance": "of largest variance", "principal": "principal"}
    kept = ", ".join(f"{economy.enough[way]} {words}" for way, words in ways.items())
    return [
        f"dimensions needed, of {d}, to lose at most 1 point of {what}: {kept}",
        f"recall of ten neighbours: {_number(economy.int8)} in 8 bits, "
        f"{_number(economy.binary)} in 1 bit, {_number(economy.rescored)} in 1 bit with "
        f"re-ranking, {_number(economy.index)} by an approximate index",
    ]


def _drift(diagnosis: Diagnosis) -> list[str]:
    drift = diagnosis.drift
    if drift is None:
        return []
    rows = "row by row" if drift.paired else "as two sets, whose rows are not paired"
    lines = [f"compared {rows}", f"encoder: {drift.encoder} ({drift.reason})"]
    if drift.test is not None:
        test = drift.test
        seen = (
            f"it would find a shift of {test.detectable:g} of the spread in 80 % of cases"
            if test.detectable is not None
            else "it would not find a shift of the whole spread"
        )
        law = "another law" if test.p_value < 0.05 else "no difference of law is seen"
        lines.append(f"{law}: p = {test.p_value:.2g}, {test.n} and {test.m} rows; {seen}")
        lines.append(f"the mean moved by {_number(drift.mean_shift)} of the spread")
    return lines


def _quoted(line: str) -> str:
    """A setting as a shell takes it; a long list of temperatures is cut for the eye."""
    shown = line if len(line) <= 200 else f"{line[:120]} ... {line[-40:]}"
    return f'"{shown}"' if set(line) & set(" ()[]'") else shown


def _sampling(diagnosis: Diagnosis) -> str:
    s = diagnosis.sampling
    whole = "all" if s["rows"] == s["n"] else f"{s['rows']:,} of"
    return (
        f"\n  {whole} {s['n']:,} rows; all pairs among {s['rows_of_all_pairs']:,} of them"
        + (
            f", {s['pairs_of_views']:,} pairs of views"
            if any(name.endswith("alignment") for name in diagnosis.measures)
            else ""
        )
        + f"; seed {s['seed']}"
    )

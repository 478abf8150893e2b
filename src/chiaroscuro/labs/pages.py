"""Write the pages `claims.md`, `gallery.md` and `verdicts.md` from the results kept beside them.

    python -m chiaroscuro.labs.pages docs                  the pages
    python -m chiaroscuro.labs.pages docs judge [LAB ...]  judge the kept numbers by today's rules
    python -m chiaroscuro.labs.pages docs draw [LAB ...]   redraw figures from the kept curves

reads `docs/results/<scale>/<paper>/<lab>.json`, as `chiaro reproduce --out docs/results` leaves
them. `docs/results/first.json` holds the first verdict of each claim, `docs/results/reasons.toml`
why it changed. A test compares the pages with the results.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from chiaroscuro import InputError
from chiaroscuro.labs import style
from chiaroscuro.labs.claim import UNSAID, Claim, Erratum, Remark, Stated, judged, spread
from chiaroscuro.labs.lab import SCALES, Lab, all_labs, chosen
from chiaroscuro.labs.reproduce import draw, written
from chiaroscuro.labs.show import brief, numbers, tally

__all__ = [
    "claims_page", "counts", "gallery_page", "group", "judge_again", "main", "moved", "redraw",
    "results", "title", "verdicts_page",
]  # fmt: skip

SCALE = "laptop"
"""The scale that is judged here."""
BESIDE = {"long": "at the scale `long`", "paper": "at the paper's own scale"}
"""Other scales, shown beside it where they were run."""
EARLIER = (
    "These numbers are of an earlier preset of the lab. Claims whose rule has changed since keep "
    "the rule and the verdict of that run until it is made again."
)
EXPLAINED = """\
An *identity* is mathematics, verified to 1e-10. *Other checks* are mathematics too, by an order
of convergence, an ordering or a tolerance that the rule states. An *empirical* claim is decided
by a measurement; it is *ours* where the paper does not say it. An *erratum* is a mathematical
statement that fails as printed while the corrected one holds, both measured; they are listed
[below](#errata) with the sentence and why it cannot be read otherwise. A *typo* is a slip of
the pen that the paper has right elsewhere, or a wrong word in passing from which nothing follows;
typos are listed [below](#typos) too. A *remark* is our own; the paper does not contradict it. A
*definition* cannot be refuted by an experiment. None of the last four counts as a hold.

A rule such as `mean(gain) > 0` is judged by the 95 % interval of a mean over seeds (Student's t),
`mean(a) > mean(b)` by that of the differences a - b, paired by seed. Both are printed like this:
`gain_mean 0.3 +- 0.2 (se 0.06)`, the mean, half the width of its interval, its standard error.
If the whole interval obeys, the comparison holds; if none of it does, it fails. If the bound lies
inside the interval, it matters whether the rule states the effect that the paper reports. With an
effect, the claim is *inconclusive* if the interval holds the effect too (too few runs to tell),
and it fails if not. Without one it is *inconclusive* whatever the width of the interval: a wide
one means too few runs, a narrow one hardly any difference, and only the printed width tells
which. Of the {means} claims about means {stated} state an effect; the other rules were written
without one. A comparison without `mean` must hold for every number.

A rule was written down before the run, and the JSON of each run holds it with the numbers and
the curves of the figure; where a pilot at another scale or seed changed a rule, the header of
the lab says so. Verdicts that are not the first ones are listed among the [changed
verdicts](verdicts.md), each with the reason. Seconds are of one thread on a busy machine."""
HERE = Path(__file__).parent
_MARK = {
    "holds": "holds",
    "fails": "**fails**",
    "erratum": "*erratum*",
    "inconclusive": "inconclusive",
    "not_run": "not run",
    "typo": "typo",
    "remark": "remark (ours)",
    "definition": "definition",
}
FIRST = (
    (
        "tsne",
        "Fig. 1 of calder2025",
        "t-SNE of MNIST pixels (clusters by class), of CIFAR-10 pixels (none) and of a SimCLR "
        "embedding of CIFAR-10 (clear clusters)",
    ),
    (
        "strength",
        "Fig. 1 of cosentino2022",
        "the effective rank of the projector falls with the strength of augmentation (about 128, "
        "60, 20 for small, moderate, large) while the accuracy of the encoder rises",
    ),
    (
        "pictures",
        "Table 1 of tan2024",
        "CIFAR-10, CIFAR-100 and TinyImageNet: kernels of Kernel-InfoNCE mostly 0.4 to 4.1 points "
        "above SimCLR, the simple sum best on average",
    ),
    (
        "words",
        "Fig. 9 of semantic2025",
        "artificial synonyms converge to a small distance, natural synonyms lie in between, "
        "unrelated words stay apart",
    ),
)
"""The figures a reader of the papers looks for first: the lab, the place, and what it shows."""


def results(folder: Path, scale: str = SCALE) -> dict[Lab, dict[str, Any] | None]:
    """Return every lab with what was kept of its run at a scale, or None."""
    kept: dict[Lab, dict[str, Any] | None] = {}
    for lab in all_labs():
        path = folder / scale / lab.paper / f"{lab.name}.json"
        kept[lab] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return kept


def group(row: dict[str, Any]) -> str:
    """Return what a claim is counted as: its kind, but identities by tolerance, the rest by author.

    An identity is `exact` if its rule bounds an error, and by at most 1e-10; otherwise it is a
    `check`. An empirical claim is `ours` if its place says so or the paper does not say it.

    Example:
        >>> group({"kind": "identity", "rule": "error < 1e-10 and control > 0.1"})
        'exact'
        >>> group({"kind": "identity", "rule": "slope > 0.9 and slope < 1.1"})
        'check'
    """
    if row["kind"] == "identity":
        bounds = [float(bound) for bound in re.findall(r"<=? (\d\S*)", row["rule"])]
        return "exact" if bounds and 0 < max(bounds) <= 1e-10 else "check"
    if row["kind"] == "empirical":
        own = row["paper"] in UNSAID or re.search(r"\bours\b|\bbeyond\b", row["where"])
        return "ours" if own else "empirical"
    return row["kind"]


_GROUPS = {
    "exact": ("identity to 1e-10", "identities to 1e-10"),
    "check": ("other check of mathematics", "other checks of mathematics"),
    "empirical": ("empirical claim of the papers", "empirical claims of the papers"),
    "ours": ("empirical claim of ours", "empirical claims of ours"),
    "erratum": ("erratum", "errata"),
    "typo": ("typo", "typos"),
    "remark": ("remark of ours", "remarks of ours"),
    "definition": ("definition", "definitions"),
}


def counts(rows: Iterable[dict[str, Any]]) -> str:
    """Return how many claims of each group there are, and their verdicts.

    Example:
        >>> row = {"kind": "empirical", "verdict": "holds", "where": "Fig. 1", "paper": "falls"}
        >>> counts([row, row, {"kind": "identity", "verdict": "holds", "rule": "error < 1e-10"}])
        '1 identity to 1e-10, verified; 2 empirical claims of the papers: 2 hold'
    """
    by: dict[str, list[str]] = {name: [] for name in _GROUPS}
    for row in rows:
        by[group(row)].append(row["verdict"])
    said = []
    for name, words in _GROUPS.items():
        own = by[name]
        if own and name in ("exact", "check"):
            wrong = sum(verdict != "holds" for verdict in own)
            verified = f"{wrong} not" if wrong else "all" * (len(own) > 1)
            said.append(f"{_many(len(own), words)}, {f'{verified} verified'.strip()}")
        elif own and name in ("empirical", "ours"):
            plural = {"holds": "hold", "fails": "fail"}
            each = ", ".join(
                f"{(n := own.count(verdict))} "
                + (plural.get(verdict, verdict) if n > 1 else verdict).replace("_", " ")
                for verdict in ("holds", "fails", "inconclusive", "not_run")
                if verdict in own
            )
            said.append(f"{_many(len(own), words)}: {each}")
        elif own:
            if shown := own.count(name):
                said.append(_many(shown, words))
            if others := tally([verdict for verdict in own if verdict != name]):
                said.append(f"{_many(len(own) - shown, words)} not confirmed ({others})")
    return "; ".join(said)


def _many(n: int, words: tuple[str, str]) -> str:
    return f"{n} {words[n != 1]}"


def claims_page(folder: Path) -> str:
    """Return all claims with verdict, the paper's value, ours, seeds, seconds and command."""
    kept = results(folder)
    beside = {scale: results(folder, scale) for scale in BESIDE}
    rows = [claim for record in kept.values() if record for claim in record["claims"]]
    means = [row for row in rows if row["kind"] == "empirical" and "mean(" in row["rule"]]
    stated = sum("(the paper's effect: " in row["rule"] for row in means)
    lines = [
        "# Claims",
        "",
        "<!-- made by `make pages` from docs/results; do not edit -->",
        "",
        f"**At the scale `{SCALE}`: {counts(rows) or 'nothing yet'}.**",
        "",
        EXPLAINED.format(means=len(means), stated=stated),
    ]
    for paper in dict.fromkeys(lab.paper for lab in kept):
        own = [record for lab, record in kept.items() if lab.paper == paper and record]
        said = counts([row for record in own for row in record["claims"]])
        lines += ["", f"## {paper}", "", f"{title(paper)}: {said or 'nothing yet'}."]
        for lab, record in kept.items():
            if lab.paper == paper:
                lines += ["", f"### {', '.join(lab.topics)}: {lab.title}", "", *_lab(lab, record)]
                for scale, others in beside.items():
                    lines += _other(lab, others[lab], scale, record)
    for verdict, heading in (("erratum", "Errata"), ("typo", "Typos")):
        lines += ["", f"## {heading}", "", *_misprints(rows, verdict)]
    return "\n".join(lines) + "\n"


def _misprints(rows: Sequence[dict[str, Any]], verdict: str) -> list[str]:
    """Every erratum or typo: the sentence, why it is one, the counterexample."""
    why = "why no other reading" if verdict == "erratum" else "why a slip"
    lines = [f"| claim | the paper says | {why} | counterexample |", "|---|---|---|---|"]
    for row in rows:
        if row["verdict"] == verdict:
            wrong = row["printed"]
            said = f"{row['where']}: “{wrong['quote']}”" if "quote" in wrong else row["where"]
            shown = f"{wrong['says']} Measured: {numbers(wrong['ours'])}."
            lines.append(_row(row["id"], said, wrong.get("why", ""), shown))
    return lines


def title(paper: str) -> str:
    """Return what a paper is about, from the first line of its folder's header.

    Example:
        >>> title("tan2024")
        'Contrastive learning is spectral clustering on the similarity graph'
    """
    header = ast.get_docstring(ast.parse((HERE / paper / "__init__.py").read_text("utf-8"))) or ""
    _, colon, said = header.split("\n")[0].partition(f"Labs of {paper}: ")
    if not colon:
        raise InputError(f"the labs of `{paper}` need a header `Labs of {paper}: ...`.")
    return said[:1].upper() + said[1:].rstrip(".")


def _lab(lab: Lab, record: dict[str, Any] | None) -> list[str]:
    command = f"`chiaro reproduce {lab.name} --scale {SCALE}`"
    if record is None:
        return [f"Not run at this scale yet. {command}"]
    table = ["| claim | verdict | where | statement | paper | ours | rule |"]
    table += ["|---|---|---|---|---|---|---|"]
    for row in record["claims"]:
        claim = Claim(**row)
        erratum = claim.printed is not None
        cells = (
            claim.id,
            _MARK[claim.verdict],
            claim.where,
            claim.statement,
            "see printed" if erratum else str(claim.paper),
            brief(claim),
            _worded(claim.rule),
        )
        table.append(_row(*cells))
    early = [] if current(lab, record, SCALE) else [EARLIER]
    said = [*early, *discussed(lab), f"{_seeds(record)}, {record['seconds']:.0f} s. {command}"]
    return [*table, *(line for paragraph in said for line in ("", paragraph))]


def current(lab: Lab, record: dict[str, Any], scale: str) -> bool:
    """Return whether a record is of the preset that the lab has now."""
    return json.loads(json.dumps(dataclasses.asdict(lab.settings(scale)))) == record["settings"]


def _other(
    lab: Lab, record: dict[str, Any] | None, scale: str, beside: dict[str, Any] | None
) -> list[str]:
    """The verdicts at another scale, where it was run; the rule, if it is not the one above."""
    if record is None:
        return []
    above = {row["id"]: row["rule"] for row in beside["claims"]} if beside else {}
    table = [f"| {BESIDE[scale]} | verdict | ours |", "|---|---|---|"]
    for row in record["claims"]:
        own = "" if row["rule"] == above.get(row["id"]) else f"; rule: {_worded(row['rule'])}"
        table.append(_row(row["id"], _MARK[row["verdict"]], _brief(row) + own))
    command = f"`chiaro reproduce {lab.name} --scale {scale}`"
    early = [] if current(lab, record, scale) else ["", EARLIER]
    return ["", *table, *early, "", f"{_seeds(record)}, {record['seconds']:.0f} s. {command}"]


def _seeds(record: dict[str, Any]) -> str:
    """The seeds of a record; of one seed, what its intervals stand on."""
    seeds = record["seeds"]
    if len(seeds) > 1:
        return f"seeds {seeds[0]} to {seeds[-1]}"
    averaged = [
        (row["ours"], re.findall(r"mean\((\w+)\)", row["rule"])) for row in record["claims"]
    ]
    parts = {len(ours[name]) for ours, names in averaged for name in names if name in ours}
    if not parts:
        return f"seed {seeds[0]}"
    return (
        f"seed {seeds[0]} alone: intervals stand on one training, over {max(parts)} parts of its "
        "data, and say nothing of other seeds"
    )


def discussed(lab: Lab) -> list[str]:
    """Return what the header of a lab says of its results: paragraphs that begin with `Results`.

    Example:
        >>> discussed(next(lab for lab in all_labs() if lab.name == "atoms"))
        []
    """
    path = HERE / lab.paper / f"{lab.name}.py"
    header = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    paragraphs = (" ".join(text.split()) for text in header.split("\n\n"))
    return [text for text in paragraphs if text.startswith("Results")]


def _row(*cells: str) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _worded(rule: str) -> str:
    """A rule for readers."""
    return rule.replace("(to judge at all: ", "(judged only if ")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def gallery_page(folder: Path) -> str:
    """Return all figures, each with the claims it shows; the four best known first."""
    kept = results(folder)
    beside = {scale: results(folder, scale) for scale in BESIDE}
    lines = ["# Gallery", "", "<!-- made by `make pages` from docs/results; do not edit -->"]
    lines += [
        "",
        f"One figure per experiment, at the scale `{SCALE}` unless another is named. The page of",
        "[claims](claims.md) explains the verdicts and lists the rules and numbers behind them.",
        "",
        "## Main figures of the papers",
    ]
    for name, place, shows in FIRST:
        lab = next(lab for lab in kept if lab.name == name)
        run_at = [(s, beside[s][lab]) for s in ("paper", "long")] + [(SCALE, kept[lab])]
        records = [(scale, one) for scale, one in run_at if one]
        # a table of which the larger scale has a part is shown at both
        shown = records if name == "pictures" else records[:1]
        if not shown:
            continue
        lines += ["", f"### {place}", "", f"*The paper*: {shows}.", ""]
        for scale, one in shown:
            lines += [f"*Here* (scale `{scale}`, {_seeds(one)}): {_verdicts(one)}.", ""]
        lines += [text.removeprefix("Results. ") for text in discussed(lab)]
        lines += ["", *(line for scale, one in shown for line in _shown(lab, one, scale))]
    papers: list[str] = []
    for lab, record in kept.items():
        if record is None:
            continue
        if lab.paper not in papers:
            papers.append(lab.paper)
            lines += ["", f"## {lab.paper}", "", f"{title(lab.paper)}."]
        lines += ["", f"### {lab.name}: {lab.title}", ""]
        lines += [f"{', '.join(lab.topics)}: {counts(record['claims'])}.", ""]
        lines += _shown(lab, record, SCALE)
        for scale, others in beside.items():
            if large := others[lab]:
                words = BESIDE[scale][0].upper() + BESIDE[scale][1:]
                lines += ["", f"{words}:", "", *_shown(lab, large, scale)]
    return "\n".join(lines) + "\n"


def _verdicts(record: dict[str, Any]) -> str:
    """The empirical claims of a record with their verdicts."""
    own = [row for row in record["claims"] if row["kind"] == "empirical"]
    return ", ".join(f"{row['id']} {_MARK[row['verdict']]}" for row in own)


def _shown(lab: Lab, record: dict[str, Any], scale: str) -> list[str]:
    names = [name for name in record["figures"] if name.endswith((".png", ".gif"))]
    return [f"![{lab.title}](results/{scale}/{lab.paper}/{name})" for name in names]


def verdicts_page(folder: Path) -> str:
    """Return every claim whose verdict at the laptop scale is not its first one, and why."""
    rows = moved(folder)
    changed = [row for row in rows if row[1] and row[2]]
    lines = [
        "# Changed verdicts",
        "",
        "<!-- made by `make pages` from docs/results; do not edit -->",
        "",
        f"Of the first results committed at the scale `{SCALE}`, {len(changed)} verdicts are no",
        f"longer the same, {sum(not row[2] for row in rows)} claims were dropped, and "
        f"{sum(not row[1] for row in rows)} were added later.",
        "A rule is given where it changed. The page of [claims](claims.md) explains the verdicts.",
        "",
        "| claim | first verdict and numbers | verdict and numbers now | reason |",
        "|---|---|---|---|",
    ]
    lines += [_row(row[0], row[1] or "new", row[2] or "dropped", row[3]) for row in rows]
    return "\n".join(lines) + "\n"


def moved(folder: Path) -> list[tuple[str, str, str, str]]:
    """Return claims by id with their first and present verdict, if these differ, and the reason.

    A claim that is new has no first verdict, one that was dropped has none now.
    """
    first = json.loads((folder / "first.json").read_text(encoding="utf-8"))
    groups = tomllib.loads((folder / "reasons.toml").read_text(encoding="utf-8"))["group"]
    reasons = {name: one["reason"] for one in groups for name in one["claims"]}
    kept = [record for record in results(folder).values() if record]
    now = {row["id"]: row for record in kept for row in record["claims"]}
    rows = []
    for name in [*now, *(name for name in first if name not in now)]:
        before, row = first.get(name), now.get(name)
        if before and row and before["verdict"] == row["verdict"]:
            continue
        then = f"{_MARK[before['verdict']]}: {before['ours']}" if before else ""
        today = f"{_MARK[row['verdict']]}: {_brief(row)}" if row else ""
        if before and row:
            if row["kind"] == "empirical" and before["rule"] != row["rule"]:
                then, today = (
                    f"{text} ({_worded(one['rule'])})"
                    for text, one in ((then, before), (today, row))
                )
            if _bare(before["ours"]) == _bare(_brief(row)):
                today = f"{_MARK[row['verdict']]}: the same numbers"
        rows.append((name, then, today, reasons.get(name, "")))
    return rows


def _bare(ours: str) -> str:
    """Numbers of two forms, whatever the forms are called."""
    return ours.replace("expected: ", "printed: ").replace("measured: ", "corrected: ")


def _brief(row: dict[str, Any]) -> str:
    return brief(Claim(**row))


def judge_again(folder: Path, names: Sequence[str] = ()) -> list[str]:
    """Judge the kept numbers by the rules the labs have now; return what changed or cannot be.

    A claim whose rule asks for a number that the record lacks, or that is new, needs a run; until
    then it is judged by the rule of its record.
    """
    said = []
    labs = chosen(names) if names else all_labs()
    for scale in SCALES:
        for lab, record in results(folder, scale).items():
            if record is None or lab not in labs:
                continue
            same = current(lab, record, scale)
            rows, before = [], {row["id"]: row for row in record["claims"]}
            for stated in lab.module.CLAIMS:
                row = before.get(stated.id)
                claim = row and _judged_again(stated, row, same)
                if claim is None:
                    said.append(f"{scale}/{lab.name}: {stated.id} needs a run")
                if row is None:
                    continue
                claim = claim or _as_recorded(row)
                rows.append(claim.record())
                if row["verdict"] != claim.verdict:
                    change = f"{row['verdict']} -> {claim.verdict}"
                    said.append(f"{scale}/{lab.name}: {stated.id} {change}")
            record["claims"] = rows
            path = folder / scale / lab.paper / f"{lab.name}.json"
            path.write_text(written(record), encoding="utf-8")
    return said


def _as_recorded(row: dict[str, Any]) -> Claim:
    """The claim by the rule of its record."""
    claim = Claim(**row)
    if "missing" in row["ours"] or claim.printed or claim.expected:
        return claim
    ours = _numbers(row["ours"])
    verdict = judged(row["rule"], ours)
    if verdict == "holds" and claim.kind in ("definition", "remark"):
        verdict = claim.kind
    return dataclasses.replace(claim, ours={**ours, **spread(row["rule"], ours)}, verdict=verdict)


def _judged_again(
    stated: Stated | Erratum | Remark, row: dict[str, Any], same: bool
) -> Claim | None:
    """The claim by its rule of today, from the numbers of a record; None if that takes a run.

    A rule about means over seeds cannot judge numbers of a preset that has changed since.
    """
    try:
        if isinstance(stated, Erratum | Remark):
            first = row["expected"] if "expected" in row else row["printed"]
            return stated.judge(_numbers(first["ours"]), _numbers(row["ours"]))
        if "missing" in row["ours"]:
            return stated.not_run(row["ours"]["missing"])
        ours = _numbers(row["ours"])
        averaged = re.findall(r"mean\((\w+)\)", stated.rule)
        if "printed" in row or (averaged and not same):
            return None
        if not all(isinstance(ours[name], list) for name in averaged):
            return None
        return stated.judge(**ours)
    except (InputError, KeyError):
        return None


def _numbers(ours: dict[str, Any]) -> dict[str, Any]:
    """Kept numbers as they were measured: JSON has no NaN, it is kept as a word."""
    odd = ("nan", "inf", "-inf")
    added = {
        f"{name[:-3]}_{end}"
        for name in ours
        if name.endswith("_se")
        for end in ("mean", "se", "half")
    }
    return {
        name: [float(x) if x in odd else x for x in value]
        if isinstance(value, list)
        else (float(value) if value in odd else value)
        for name, value in ours.items()
        if name not in added
    }


def redraw(folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Draw the figures of kept results again, from the curves in their JSON."""
    paths = []
    labs = chosen(names) if names else all_labs()
    for scale in SCALES:
        for lab, record in results(folder, scale).items():
            if lab in labs and record and "result" in record and style.available():
                stem = folder / scale / lab.paper / lab.name
                paths += draw(lab, record["result"], stem)
    return paths


def main(docs: str = "docs", task: str = "pages", *names: str) -> None:
    """Write the pages into the folder `docs`; before that judge again, or draw again."""
    folder = Path(docs)
    if not (folder / "results").is_dir():
        raise InputError(
            f"the pages need results in `{folder / 'results'}`; there is no such folder."
        )
    if task not in ("pages", "judge", "draw"):
        raise InputError(f"the pages know the tasks pages, judge and draw; received {task!r}.")
    if task == "judge":
        print("\n".join(judge_again(folder / "results", names)))
    if task == "draw":
        print("\n".join(f"figure: {path}" for path in redraw(folder / "results", names)))
    every = (("claims", claims_page), ("gallery", gallery_page), ("verdicts", verdicts_page))
    for name, page in every:
        path = folder / f"{name}.md"
        path.write_text(page(folder / "results"), encoding="utf-8")
        print(f"page: {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])

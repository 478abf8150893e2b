"""Write the pages `claims.md`, `gallery.md` and `verdicts.md` from the results kept beside them.

    python -m chiaroscuro.labs.pages docs                  the pages
    python -m chiaroscuro.labs.pages docs judge [LAB ...]  judge the kept numbers by today's rules
    python -m chiaroscuro.labs.pages docs draw [LAB ...]   redraw figures from the kept curves

reads `docs/results/<scale>/<paper>/<lab>.json`, as `chiaro reproduce --out docs/results` leaves
them. `docs/results/first.json` holds the first verdict and rule of each claim,
`docs/results/reasons.toml` why they changed. Tests compare the pages with the results, and the
verdicts with what the labs of today make of the kept data.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chiaroscuro import InputError
from chiaroscuro.labs import style
from chiaroscuro.labs.claim import UNSAID, Claim, Erratum, Remark, Stated, judged, spread
from chiaroscuro.labs.lab import SCALES, Lab, all_labs, chosen
from chiaroscuro.labs.reproduce import draw, written
from chiaroscuro.labs.show import brief, numbers, tally

__all__ = [
    "amended", "by_scale", "claims_page", "counts", "deciding", "earlier", "gallery_page", "group",
    "judge_again", "main", "moved", "redraw", "results", "title", "verdicts_page",
]  # fmt: skip

SCALE = "laptop"
"""The scale that is judged here."""
BESIDE = {"long": "at the scale `long`", "paper": "at the paper's own scale"}
"""Longer scales, from short to long, shown beside it where they were run."""
MEAN = "the whole interval of each mean must obey now"
"""Why a rule is another one if it differs from the first in `mean` alone."""
UNDECIDED = ("inconclusive", "not_run")
EARLIER = (
    "These numbers are of an earlier version of the lab: {changed}. A claim whose rule has changed "
    "keeps the rule and the verdict of that run until it is made again."
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
the lab says so. Where a rule was changed after the first results at the scale `laptop`, the page of
[changed verdicts](verdicts.md) shows both rules, and gives the reason if the verdict changed too.
Seconds are of one thread on a busy machine."""
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


def by_scale(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what was kept of each claim that the labs state, by id and then by scale.

    Scales go from short to long; one at which a claim was not run is left out.
    """
    runs = {scale: results(folder, scale) for scale in (SCALE, *BESIDE)}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for lab in all_labs():
        for scale, kept in runs.items():
            record = kept[lab]
            for row in record["claims"] if record else ():
                if row["id"] in lab.claims:
                    found.setdefault(row["id"], {})[scale] = row
    return found


def deciding(rows: Mapping[str, dict[str, Any]]) -> str:
    """Return the longest scale at which a claim is decided; the shortest if it is at none.

    Args:
        rows: of one claim by scale, from short to long.

    Example:
        >>> holds, left_open = {"verdict": "holds"}, {"verdict": "inconclusive"}
        >>> deciding({"laptop": left_open, "long": holds})
        'long'
        >>> deciding({"laptop": holds, "long": left_open})
        'laptop'
        >>> deciding({"laptop": left_open, "long": {"verdict": "not_run"}})
        'laptop'
    """
    decided = [scale for scale, row in rows.items() if row["verdict"] not in UNDECIDED]
    return decided[-1] if decided else next(iter(rows))


def _which_run(claims: Mapping[str, Mapping[str, dict[str, Any]]]) -> list[str]:
    """The run by which claims count, and those whose verdict depends on the run."""
    longer = [name for name, rows in claims.items() if deciding(rows) != SCALE]
    alone = [
        name
        for name in longer
        if SCALE not in claims[name] or claims[name][SCALE]["verdict"] in UNDECIDED
    ]
    differ, left_open = [], []
    for name, rows in claims.items():
        said = ", ".join(f"{_MARK[row['verdict']]} at `{scale}`" for scale, row in rows.items())
        verdicts = [row["verdict"] for row in rows.values()]
        decided = [verdict for verdict in verdicts if verdict not in UNDECIDED]
        longer_ones = verdicts[list(rows).index(deciding(rows)) + 1 :]
        if len(set(decided)) > 1:
            differ.append(f"{name} ({said})")
        if decided and "inconclusive" in longer_ones:
            left_open.append(f"{name} ({said})")
    scales = " and ".join(f"`{scale}`" for scale in BESIDE)
    return [
        f"Each claim counts by the longest run that decides it: {scales} are longer than "
        f"`{SCALE}`, and a run decides a claim if its verdict is neither inconclusive nor not "
        f"run. A claim that no run decides counts by its verdict at `{SCALE}`. {len(longer)} of "
        f"{len(claims)} claims are decided by a run longer than `{SCALE}`, {len(alone)} of them "
        f"by such a run only{_colon(alone)}.",
        "",
        "- Decided at two scales with different verdicts, the longer run counts: "
        f"{', '.join(differ) or 'none'}.",
        "- Decided by a run and left open by a longer one, the shorter run counts: "
        f"{', '.join(left_open) or 'none'}.",
    ]


def _not_held(claims: Mapping[str, Mapping[str, dict[str, Any]]]) -> list[str]:
    """The ids of claims that fail or are not decided, those of the papers and ours apart."""
    lines = []
    words = {"fails": "Fail", "inconclusive": "Inconclusive", "not_run": "Not run"}
    for verdict, word in words.items():
        own: dict[str, list[str]] = {"of the papers": [], "of ours": [], "remarks of ours": []}
        for name, rows in claims.items():
            scale = deciding(rows)
            if rows[scale]["verdict"] == verdict:
                author = {"ours": "of ours", "remark": "remarks of ours"}
                whose = author.get(group(rows[scale]), "of the papers")
                own[whose].append(name if scale == SCALE else f"{name} (at `{scale}`)")
        each = "; ".join(f"{whose} {', '.join(names)}" for whose, names in own.items() if names)
        lines += [f"- {word}: {each}."] if each else []
    return lines


def _colon(names: Sequence[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def claims_page(folder: Path) -> str:
    """Return all claims with verdict, the paper's value, ours, seeds, seconds and command."""
    kept = results(folder)
    beside = {scale: results(folder, scale) for scale in BESIDE}
    claims = by_scale(folder)
    counted = {name: one[deciding(one)] for name, one in claims.items()}
    rows = list(counted.values())
    means = [row for row in rows if row["kind"] == "empirical" and "mean(" in row["rule"]]
    stated = sum("(the paper's effect: " in row["rule"] for row in means)
    lines = [
        "# Claims",
        "",
        "<!-- made by `make pages` from docs/results; do not edit -->",
        "",
        f"**{counts(rows) or 'Nothing yet'}.**",
        "",
        *_which_run(claims),
        *_not_held(claims),
        "",
        EXPLAINED.format(means=len(means), stated=stated),
    ]
    for paper in dict.fromkeys(lab.paper for lab in kept):
        own = [name for lab in kept if lab.paper == paper for name in lab.claims]
        said = counts(counted[name] for name in own if name in counted)
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
    said = [
        *_early(lab, record, SCALE),
        *discussed(lab),
        f"{_seeds(record)}, {record['seconds']:.0f} s. {command}",
    ]
    return [*table, *(line for paragraph in said for line in ("", paragraph))]


def earlier(lab: Lab, record: dict[str, Any], scale: str) -> list[str]:
    """Return what has changed in a lab since the run of a record; nothing if the record is current.

    A record is current if its settings, the ids of its claims and their rules are those of the lab,
    and if the lab can judge the data in it.
    """
    rows = {row["id"]: row for row in record["claims"]}
    rules = {one.id: _rule(one) for one in lab.module.CLAIMS}
    settings, before = _preset(lab, scale), record["settings"]
    other = [name for name in {**before, **settings} if _differ(name, before, settings)]
    changed = [name for name in rules if name in rows and rules[name] != rows[name]["rule"]]
    said = {
        "changed settings": [f"`{name}`" for name in other],
        "changed rules": changed,
        "new claims": [name for name in rules if name not in rows],
        "dropped claims": [name for name in rows if name not in rules],
    }
    named = [f"{what} {', '.join(names)}" for what, names in said.items() if names]
    return named + _unjudged(lab, record)


def _unjudged(lab: Lab, record: dict[str, Any]) -> list[str]:
    """Why the lab of today cannot judge the data of a record, if it cannot."""
    if "result" not in record:
        return ["its file holds no data to judge again"]
    try:
        lab.module.claims(record["result"])
    except KeyError as error:
        return [f"its data lack `{error.args[0]}`, by which the lab judges now"]
    except (IndexError, TypeError, ValueError) as error:  # other shapes; rules of other numbers
        said = f"{type(error).__name__}: {str(error).rstrip('.')}"
        return [f"its data cannot be judged again ({said})"]
    return []


def _differ(name: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    return name not in one or name not in two or one[name] != two[name]


def _preset(lab: Lab, scale: str) -> dict[str, Any]:
    """The settings of a lab at a scale, as a record holds them."""
    return json.loads(json.dumps(dataclasses.asdict(lab.settings(scale))))


def _rule(stated: Stated | Erratum | Remark) -> str:
    """The whole rule of a claim, as a record holds it."""
    if isinstance(stated, Stated):
        return stated.text
    text = (
        f"printed fails {stated.printed_rule}; corrected obeys {stated.corrected_rule}"
        if isinstance(stated, Erratum)
        else f"{stated.rule}; expected fails {stated.expected_rule}"
    )
    return f"{text} (to judge at all: {stated.enough})" if stated.enough else text


def _early(lab: Lab, record: dict[str, Any], scale: str) -> list[str]:
    """The paragraph that marks a record of an earlier version of its lab, if it is one."""
    changed = earlier(lab, record, scale)
    return [EARLIER.format(changed="; ".join(changed))] if changed else []


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
    early = [line for one in _early(lab, record, scale) for line in ("", one)]
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
    """Return claims whose verdict or rule at the laptop scale is not the first one, and why."""
    rows, rules = moved(folder), amended(folder)
    only = sum(row[4] == MEAN for row in rules)
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
        f"This page covers the scale `{SCALE}` only; runs at `long` that were replaced are listed",
        "in `CHANGELOG.md` under *Numbers that moved*. A claim that was added later has no first",
        "verdict or rule to compare with.",
        "",
        "| claim | first verdict and numbers | verdict and numbers now | reason |",
        "|---|---|---|---|",
    ]
    lines += [_row(row[0], row[1] or "new", row[2] or "dropped", row[3]) for row in rows]
    lines += [
        "",
        "## Changed rules, same verdict",
        "",
        f"{len(rules)} claims have their first verdict by a rule that was changed since; {only} of",
        "these rules differ in the mean alone, whose whole 95 % interval must obey now.",
        "",
        "| claim | verdict | first rule | rule now | reason |",
        "|---|---|---|---|---|",
    ]
    lines += [_row(*row) for row in rules]
    return "\n".join(lines) + "\n"


def moved(folder: Path) -> list[tuple[str, str, str, str]]:
    """Return claims by id with their first and present verdict, if these differ, and the reason.

    A claim that is new has no first verdict, one that was dropped has none now.
    """
    first, now, reasons = _first(folder)
    rows = []
    for name in [*now, *(name for name in first if name not in now)]:
        before, row = first.get(name), now.get(name)
        if before and row and before["verdict"] == row["verdict"]:
            continue
        then = f"{_MARK[before['verdict']]}: {before['ours']}" if before else ""
        today = f"{_MARK[row['verdict']]}: {_brief(row)}" if row else ""
        if before and row:
            if _bare(before["ours"]) == _bare(_brief(row)):
                today = f"{_MARK[row['verdict']]}: the same numbers"
            if _forms(before["rule"]) != _forms(row["rule"]):
                then, today = (
                    f"{text} ({_worded(one['rule'])})"
                    for text, one in ((then, before), (today, row))
                )
        rows.append((name, then, today, reasons.get(name, "")))
    return rows


def amended(folder: Path) -> list[tuple[str, str, str, str, str]]:
    """Return claims by id that have their first verdict by another rule.

    With each stand the verdict, both rules and the reason, if `reasons.toml` gives one.
    """
    first, now, reasons = _first(folder)
    rows = []
    for name, row in now.items():
        before = first.get(name)
        if before and before["verdict"] == row["verdict"]:
            then, today = _forms(before["rule"]), _forms(row["rule"])
            if then != today:
                plain = tuple(re.sub(r"mean\((\w+)\)", r"\1", form) for form in today)
                reason = reasons.get(name, MEAN if plain == then else "")
                rules = (_worded(before["rule"]), _worded(row["rule"]))
                rows.append((name, _MARK[row["verdict"]], *rules, reason))
    return rows


def _first(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """The first rows of claims by id, those of now, and reasons why they differ."""
    first = json.loads((folder / "first.json").read_text(encoding="utf-8"))
    groups = tomllib.loads((folder / "reasons.toml").read_text(encoding="utf-8"))["group"]
    reasons = {name: one["reason"] for one in groups for name in one["claims"]}
    kept = [record for record in results(folder).values() if record]
    return first, {row["id"]: row for record in kept for row in record["claims"]}, reasons


def _forms(rule: str) -> tuple[str, str, str]:
    """What holds, what fails, and when a rule judges at all, whatever the forms are called.

    The rule of an erratum and that of a remark say the same in different words.
    """
    text, _, when = rule.partition(" (")
    if text.startswith("printed fails "):
        fails, _, holds = text.removeprefix("printed fails ").partition("; corrected obeys ")
    else:
        holds, _, fails = text.partition("; expected fails ")
    return holds, fails, when


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
            same = _preset(lab, scale) == record["settings"]
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

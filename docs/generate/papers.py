"""Write the claims of each paper, with verdicts, figures and the code of each formula."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docstrings import escaped

SCALE = "laptop"
WORDS = {"not_run": "not run"}


def _records(root: Path, paper: str) -> dict[str, dict[str, Any]]:
    folder = root / "docs" / "results" / SCALE / paper
    paths = (path for path in sorted(folder.glob("*.json")) if "." not in path.stem)
    return {path.stem: json.loads(path.read_text()) for path in paths}


def _decided(root: Path, paper: str) -> str:
    """The counts of a paper's claims, each by the longest run that decides it."""
    from chiaroscuro import labs
    from chiaroscuro.labs import pages

    own = {claim for lab in labs.all_labs() if lab.paper == paper for claim in lab.claims}
    rows = {name: one for name, one in pages.by_scale(root / "docs/results").items() if name in own}
    return pages.counts(one[pages.deciding(one)] for one in rows.values())


def _count(claims: list[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for claim in claims:
        counts[claim["verdict"]] = counts.get(claim["verdict"], 0) + 1
    order = ("holds", "fails", "erratum", "typo", "remark", "inconclusive", "not_run")
    known = [name for name in order if name in counts] + [n for n in counts if n not in order]
    return ", ".join(f"{counts[name]} {WORDS.get(name, name)}" for name in known)


def claims(root: Path, paper: str) -> str:
    """Return the experiments of one paper: what is judged, the figures, every claim."""
    from chiaroscuro import labs
    from chiaroscuro.labs.claim import Claim
    from chiaroscuro.labs.show import brief

    by_name = {lab.name: lab for lab in labs.all_labs() if lab.paper == paper}
    records = _records(root, paper)
    lines = [
        f"{_decided(root, paper)}. Each claim counts by the longest run that decides it; below "
        f"stand the runs at the scale `{SCALE}`. *Erratum* means that the statement as printed "
        "fails and a corrected one holds, both measured; open an experiment for the figures and "
        "numbers.",
        "",
    ]
    for name, record in records.items():
        lab = by_name.get(name)
        if lab is None:
            continue
        lines += [f'??? note "{lab.title} ({_count(record["claims"])})"', ""]
        inner = [f"`chiaro reproduce {name} --scale {SCALE}`, {_seeds(record)}.", ""]
        for figure in record["figures"]:
            if figure.endswith((".png", ".gif")):
                inner += [f"![{lab.title}](../results/{SCALE}/{paper}/{figure}){{.figure}}", ""]
        inner += ["| claim | verdict | where | statement | ours |", "|---|---|---|---|---|"]
        for claim in record["claims"]:
            ours = _cell(brief(Claim(**claim)))
            inner.append(
                f"| {claim['id']} | {WORDS.get(claim['verdict'], claim['verdict'])} "
                f"| {_cell(claim['where'])} | {_cell(claim['statement'])} | {ours} |"
            )
        lines += ["    " + line if line else "" for line in inner]
        lines.append("")
    return "\n".join(lines)


def _seeds(record: dict[str, Any]) -> str:
    seeds = record.get("seeds") or []
    count = len(seeds) if isinstance(seeds, list) else seeds
    return f"{count} seeds, {record.get('seconds', 0):.0f} s"


def _cell(text: Any) -> str:
    return escaped(str(text).replace("\n", " "))


def table(root: Path) -> str:
    """Return the list of the five papers with their counts."""
    from chiaroscuro.references import bibliography

    lines = ["| paper | claims |", "|---|---|"]
    order = re.findall(r"papers/(\w+)\.md", (root / "mkdocs.yml").read_text(encoding="utf-8"))
    for paper in (one for one in order if one != "index"):
        title = re.search(r"title\s*=\s*\{(.*?)\}", bibliography()[paper])
        name = title[1] if title else paper
        lines.append(f"| [{name}]({paper}.md) | {_decided(root, paper)} |")
    return "\n".join(lines)


def code(root: Path, paper: str) -> str:
    """Return the experiments of a paper with the file that states and judges each formula."""
    from chiaroscuro import labs

    lines = ["| experiment | claims | code |", "|---|---|---|"]
    for lab in labs.all_labs():
        if lab.paper == paper:
            topics = ", ".join(lab.topics)
            path = f"src/chiaroscuro/labs/{paper}/{lab.name}.py"
            lines.append(f"| {_cell(lab.title)} | {topics} | `{path}` |")
    return "\n".join(lines)

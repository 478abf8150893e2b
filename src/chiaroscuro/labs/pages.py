"""The pages `claims.md` and `gallery.md`, made of the results that are kept beside them.

    python -m chiaroscuro.labs.pages docs

reads `docs/results/<scale>/<paper>/<lab>.json`, as `chiaro reproduce --out docs/results` leaves
them, and writes both pages. A test compares the pages with the results.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

from chiaroscuro import InputError
from chiaroscuro.labs.claim import VERDICTS, Claim
from chiaroscuro.labs.lab import Lab, found
from chiaroscuro.labs.show import brief, tally

__all__ = ["claims_page", "gallery_page", "main", "results", "title"]

SCALE, WHOLE = "laptop", "paper"
"""The scale that is judged here, and that of the papers, shown beside it where it was run."""
HERE = Path(__file__).parent
_MARK = {
    "holds": "holds",
    "fails": "**fails**",
    "erratum": "*erratum*",
    "inconclusive": "inconclusive",
    "not_run": "not run",
}


def results(folder: Path, scale: str = SCALE) -> dict[Lab, dict[str, Any] | None]:
    """Every lab with what was kept of its run at a scale, or None."""
    kept: dict[Lab, dict[str, Any] | None] = {}
    for lab in found():
        path = folder / scale / lab.paper / f"{lab.name}.json"
        kept[lab] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return kept


def claims_page(folder: Path) -> str:
    """All claims with verdict, the paper's value, ours, seeds, seconds and command."""
    kept, whole = results(folder), results(folder, WHOLE)
    rows = [claim for record in kept.values() if record for claim in record["claims"]]
    counts = tally([row["verdict"] for row in rows])
    lines = [
        "# Claims",
        "",
        "<!-- made by `make pages` from docs/results; do not edit -->",
        "",
        f"What the papers claim, judged at the scale `{SCALE}`: {counts or 'nothing yet'}.",
        "",
        "Verdicts: " + ", ".join(_MARK[verdict] for verdict in VERDICTS) + ". A rule was written",
        "down before the run, and the JSON of each run holds it with the numbers; where a pilot at",
        "another scale or seed changed a rule, the header of the lab says so. *Erratum*: the",
        "statement as printed fails and the corrected one holds, both measured. Seconds are of one",
        "thread on a busy machine.",
    ]
    for paper in dict.fromkeys(lab.paper for lab in kept):
        own = [record for lab, record in kept.items() if lab.paper == paper and record]
        verdicts = tally([row["verdict"] for record in own for row in record["claims"]])
        lines += ["", f"## {paper}", "", f"{title(paper)}: {verdicts or 'nothing yet'}."]
        for lab, record in kept.items():
            if lab.paper == paper:
                lines += ["", f"### {', '.join(lab.topics)}: {lab.title}", "", *_lab(lab, record)]
                lines += _whole(lab, whole[lab])
    return "\n".join(lines) + "\n"


def title(paper: str) -> str:
    """What a paper is about, from the first line of its folder's header.

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
            claim.rule,
        )
        table.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    said = [*came_out(lab), f"{_seeds(record)}, {record['seconds']:.0f} s. {command}"]
    return [*table, *(line for paragraph in said for line in ("", paragraph))]


def _whole(lab: Lab, record: dict[str, Any] | None) -> list[str]:
    """The verdicts at the paper's own scale, where it was run."""
    if record is None:
        return []
    table = ["| at the paper's own scale | verdict | ours |", "|---|---|---|"]
    for claim in (Claim(**row) for row in record["claims"]):
        cells = (claim.id, _MARK[claim.verdict], brief(claim))
        table.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    command = f"`chiaro reproduce {lab.name} --scale {WHOLE}`"
    return ["", *table, "", f"{_seeds(record)}, {record['seconds']:.0f} s. {command}"]


def _seeds(record: dict[str, Any]) -> str:
    seeds = record["seeds"]
    return f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"


def came_out(lab: Lab) -> list[str]:
    """What the header of a lab says of its results: the paragraph that begins `What came out.`

    Example:
        >>> came_out(next(lab for lab in found() if lab.name == "atoms"))
        []
    """
    path = HERE / lab.paper / f"{lab.name}.py"
    header = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    paragraphs = (" ".join(text.split()) for text in header.split("\n\n"))
    return [text for text in paragraphs if text.startswith("What came out.")]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def gallery_page(folder: Path) -> str:
    """All figures, each with the claims it shows."""
    lines = ["# Gallery", "", "<!-- made by `make pages` from docs/results; do not edit -->"]
    lines += [
        "",
        f"One figure a lab, at the scale `{SCALE}`. What the verdicts mean, and the rules",
    ]
    lines += ["and numbers behind them, is on the page of [claims](claims.md)."]
    papers: list[str] = []
    whole = results(folder, WHOLE)
    for lab, record in results(folder).items():
        if record is None:
            continue
        if lab.paper not in papers:
            papers.append(lab.paper)
            lines += ["", f"## {lab.paper}", "", f"{title(lab.paper)}."]
        verdicts = tally([row["verdict"] for row in record["claims"]])
        lines += ["", f"### {lab.name}: {lab.title}", ""]
        lines += [f"{', '.join(lab.topics)}: {verdicts}.", "", *_shown(lab, record, SCALE)]
        if large := whole[lab]:
            lines += ["", "At the paper's own scale:", "", *_shown(lab, large, WHOLE)]
    return "\n".join(lines) + "\n"


def _shown(lab: Lab, record: dict[str, Any], scale: str) -> list[str]:
    names = [name for name in record["figures"] if name.endswith((".png", ".gif"))]
    return [f"![{lab.title}](results/{scale}/{lab.paper}/{name})" for name in names]


def main(docs: str = "docs") -> None:
    """Write both pages into the folder `docs`."""
    folder = Path(docs)
    if not (folder / "results").is_dir():
        raise InputError(
            f"the pages need results in `{folder / 'results'}`; there is no such folder."
        )
    for name, page in (("claims", claims_page), ("gallery", gallery_page)):
        path = folder / f"{name}.md"
        path.write_text(page(folder / "results"), encoding="utf-8")
        print(f"page: {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])

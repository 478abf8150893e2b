"""Print the table of measures for the docs: `python -m chiaroscuro.measures > docs/measures.md`."""

from __future__ import annotations

from chiaroscuro.measures.catalogue import CATALOGUE
from chiaroscuro.measures.measure import Measure

__all__ = ["page"]


def page() -> str:
    """Return the catalogue as a page in Markdown."""
    lines = [
        "# Measures",
        "",
        "Every number that `diagnose`, `evaluate` and the report show, defined once in",
        "`chiaroscuro.measures`; h is the encoder's output, and z, the projector's, has the prefix",
        "`z_`. Written by `python -m chiaroscuro.measures > docs/measures.md`.",
        "",
        "| name | what | unit | range | better | formula | protocol | source |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(one) for one in CATALOGUE.values()),
    ]
    return "\n".join(lines) + "\n"


def _row(one: Measure) -> str:
    low, high = ("" if end is None else f"{end:g}" for end in (one.low, one.high))
    reach = f"{low} to {high}" if low and high else f"from {low}" if low else ""
    formula = f"`{one.formula}`" if one.formula else ""
    cells = (f"`{one.name}`", one.label, one.unit, reach, one.better, formula, one.protocol)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells, one.cite)) + " |"


if __name__ == "__main__":
    print(page(), end="")

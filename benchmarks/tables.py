"""The README's tables of measurements, written from `results/`, so that no number is typed.

python benchmarks/tables.py    rewrites the tables between their markers
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"


def objective(content: dict) -> str:
    """Time as multiples of the bound, and memory, of one step of each objective."""
    result = content["result"]
    sizes = list(result["times"])
    weights = result["peak growth in MB"]
    lines = [
        "| forward and backward, d = 128 | "
        + " | ".join(f"n = {n}" for n in sizes)
        + " | peak memory, n = "
        + ", ".join(weights["cosine"])
        + " |",
        "|---" * (len(sizes) + 2) + "|",
    ]
    for name in (
        *(k for k in weights if k not in result["speed-up at 4096"]),
        "lightly",
        "textbook",
    ):
        cells = [f"{result['times'][n][name]['bounds']:.2f} x" for n in sizes]
        memory = ", ".join(f"{mb:.0f}" for mb in weights[name].values())
        lines.append(f"| {LABELS.get(name, name)} | {' | '.join(cells)} | {memory} MB |")
    faster = result["speed-up at 4096"]
    return "\n".join(
        [
            *lines,
            "",
            f"One column is one run on {content['environment']['threads']} threads of a shared "
            f"{content['environment']['cpu']}, all rows interleaved, best of several; n counts "
            "pairs. Times are multiples of what cannot be avoided, on preallocated memory: two "
            "products of (2n x 2n x d) and one exponential of 2n x 2n (and the roots and further "
            f"exponentials a kernel has). At n = 4096 that makes {faster['lightly']:.1f} times the "
            f"speed of lightly and {faster['textbook']:.1f} times that of the textbook loss; "
            f"65,536 pairs took {result['seconds at 65536']:.0f} s.",
            f"Command: `{content['command']}`.",
        ]
    )


LABELS = {
    "cosine": "`InfoNCE(Cosine(tau=0.5))`",
    "cosine, tau 0.01": "`InfoNCE(Cosine(tau=0.01))`",
    "gaussian per dimension": "`InfoNCE(Gaussian(tau=[...]))`, one per dimension",
    "laplace": "`InfoNCE(Laplace(tau=0.5))`",
    "sum": "`InfoNCE(Sum(Gaussian(...), Laplace(...)))`",
    "lightly": "lightly NTXentLoss",
    "textbook": "textbook cross-entropy",
}


def parity(content: dict) -> str:
    """What peers return where they leave the formula."""
    result = content["result"]
    names = list(next(iter(result["outside"].values())))
    lines = ["| NT-Xent | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for setting, row in result["outside"].items():
        cells = [x if isinstance(x, str) else f"{x:.4g}" for x in row.values()]
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    worst = max(max(row.values()) for row in result["worst disagreement"].values())
    return "\n".join(
        [
            *lines,
            "",
            f"Elsewhere all agree: over {result['cases']} random cases for each of "
            f"{len(result['worst disagreement'])} losses of lightly, pytorch-metric-learning, "
            f"open_clip and torch, values and gradients differ by at most {worst:.0e}.",
            f"Command: `{content['command']}`.",
        ]
    )


TABLES: dict[str, Callable[[dict], str]] = {"objective": objective, "parity": parity}


def written(readme: str) -> str:
    """The README with every table as the results say."""
    for name, render in TABLES.items():
        content = json.loads((HERE / "results" / f"{name}.json").read_text())
        block = f"<!-- {name} -->\n{render(content)}\n<!-- /{name} -->"
        pattern = rf"<!-- {name} -->.*?<!-- /{name} -->"
        readme = re.sub(pattern, lambda _, block=block: block, readme, flags=re.DOTALL)
    return readme


if __name__ == "__main__":
    README.write_text(written(README.read_text()))

"""Fit costs to what was counted and measured, and write what that says of larger scales."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

LAUNCH, MEMORY, LINK = 5e-6, 2e12, 25e9
"""Assumed of an accelerator: seconds to start an operation, bytes/s of memory and of a link."""
RESNET50 = 25.6e6
"""Parameters of a ResNet-50."""
FAR = (10**8, 10**9)


def losses(root: Path) -> str:
    """Return what a loss writes, fitted over the number of pairs, and the time that it implies."""
    result = _result(root, "device")
    lines = [
        "| loss | bytes written, fitted | error of the fit | modelled at 4,096 pairs |",
        "|---|---|---|---|",
    ]
    for name, by_pairs in result["growth"].items():
        n = np.array([int(key) for key in by_pairs], float)
        found = np.array([one["bytes"] for one in by_pairs.values()], float)
        terms = np.stack([n**2, n * result["d"]], axis=1)
        weights, *_ = np.linalg.lstsq(terms / found[:, None], np.ones(len(n)), rcond=None)
        off = float(np.abs(terms @ weights / found - 1).max())
        row = by_pairs[str(result["pairs"])]
        seconds = row["operations"] * LAUNCH + 2 * row["bytes"] / MEMORY
        formula = f"{weights[0]:.0f} n² + {weights[1]:.0f} n d"
        lines.append(f"| {name} | {formula} | {100 * off:.1f} % | {1e3 * seconds:.1f} ms |")
    counted = [f"{n:,}" for n in sorted(map(int, next(iter(result["growth"].values()))))]
    return "\n".join(
        [
            *lines,
            "",
            f"n pairs in d = {result['d']} dimensions, fitted to counts at {', '.join(counted)} "
            f"pairs. The last column assumes {1e6 * LAUNCH:.0f} µs to start an operation and "
            f"{MEMORY / 1e12:.0f} TB/s of memory, where what is written is read once; no "
            "accelerator was timed.",
        ]
    )


def messages(root: Path) -> str:
    """Return the bytes that a rank receives in a step, by the number of GPUs."""
    lines = [
        "| GPUs | pairs | gather | reduce-scatter | gradients of a ResNet-50 | modelled |",
        "|---|---|---|---|---|---|",
    ]
    d, each = 128, 64
    for ranks in (1, 8, 512):
        n = each * ranks
        others = (ranks - 1) / ranks
        parts = [n * 2 * d * 4 * others + 112 * (ranks - 1), 8 * n * d * others]
        parts.append(8 * RESNET50 * others)
        cells = " | ".join(f"{part / 1e6:,.2f} MB" for part in parts)
        lines.append(f"| {ranks} | {n:,} | {cells} | {1e3 * sum(parts) / LINK:.1f} ms |")
    return "\n".join(
        [
            *lines,
            "",
            f"{each} pairs a GPU, d = {d} in float32, a link of {LINK / 1e9:.0f} GB/s, no latency, "
            "nothing overlapped.",
        ]
    )


def data(root: Path) -> str:
    """Return what opening, embedding and diagnosing would take of far more rows."""
    lines = [
        "| | fitted seconds | fitted MB | " + " | ".join(f"{n:,} rows" for n in FAR) + " |",
        "|---" * (3 + len(FAR)) + "|",
    ]
    for task in _result(root, "scale"):
        n = np.array([row["rows"] for row in task["sizes"]], float)
        fits = [_line(n, np.array([row[k] for row in task["sizes"]])) for k in KEYS]
        far = [
            f"{_time(fits[0][0] + fits[0][1] * m)}, {fits[1][0] + fits[1][1] * m:,.0f} MB"
            for m in FAR
        ]
        said = [f"{start:.2g} + {1e6 * slope:.2g} per million" for start, slope in fits]
        lines.append(f"| {task['task'].replace('_', ' ')} | {' | '.join([*said, *far])} |")
    return "\n".join(lines)


KEYS = ("seconds", "megabytes")


def _line(n: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return start and slope of a line, neither below 0, by relative errors."""
    weight = 1 / np.maximum(y, 1e-3)
    found = np.linalg.lstsq(np.stack([weight, n * weight], axis=1), y * weight, rcond=None)[0]
    start, slope = (max(0.0, float(x)) for x in found)
    return start, slope


def _time(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.2g} s"


def _result(root: Path, name: str) -> Any:
    return json.loads((root / "benchmarks" / "results" / f"{name}.json").read_text())["result"]


def written(root: Path, *words: str) -> str:
    """Return the part of the model that a marker names."""
    return {"losses": losses, "messages": messages, "data": data}[words[0]](root)

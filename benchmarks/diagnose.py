"""How long a diagnosis takes, and how much memory: many rows with labels, and large files.

    python benchmarks/diagnose.py            # 50,000 x 512 with labels: 15 s and 2 GB
    python benchmarks/diagnose.py --large    # 200,000 x 768 from an `.npy`: 60 s and 2 GB
    python benchmarks/diagnose.py --stream   # 1,000,000 x 256 from an `.npy`: 2 GB
    python benchmarks/diagnose.py --twins    # 500,000 x 64, a fifth with an exact twin: seen?

Each runs in a process of its own, whose peak of resident memory is read at its end. Embeddings are
clusters with a power-law spectrum: ranks and neighbours cost what they cost for real ones. The file
of the stream is written in pieces beside the results of other runs and removed at the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from environment import HERE, save

SHAPES = {
    "rows": (50_000, 512),
    "large": (200_000, 768),
    "stream": (1_000_000, 256),
    "twins": (500_000, 64),
}
BOUNDS = {
    "rows": {"seconds": 15, "gigabytes": 2},
    "large": {"seconds": 60, "gigabytes": 2},
    "stream": {"gigabytes": 2},
    "twins": {"gigabytes": 2},
}
SHARE = 0.2
"""Of the rows that have a twin."""


def rows(draw: np.random.Generator, n: int, d: int, centres: np.ndarray) -> tuple[Any, Any]:
    """Clusters around given centres, with variances that fall like 1 / k."""
    y = draw.integers(0, len(centres), n)
    noise = draw.standard_normal((n, d), dtype=np.float32)
    return centres[y] + noise / np.sqrt(np.arange(1, d + 1, dtype=np.float32)), y


def write(kind: str, folder: Path) -> Path:
    """The file to diagnose, written in pieces."""
    n, d = SHAPES[kind]
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((100, d), dtype=np.float32) / 4
    if kind == "rows":
        h, y = rows(draw, n, d, centres)
        path = folder / "rows.npz"
        np.savez(path, h=h, labels=y)
        return path
    path = folder / f"{kind}.npy"
    out = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for start in range(0, n, 50_000):
        out[start : start + 50_000] = rows(draw, 50_000, d, centres)[0]
    if kind == "twins":
        half = round(n * SHARE / 2)
        out[-half:] = out[:half]
    out.flush()
    return path


def measure(path: str) -> None:
    """In a process of its own: diagnose, and print what it cost."""
    started = time.perf_counter()
    import chiaroscuro as cs

    imported = time.perf_counter()
    found = cs.diagnose(path)
    cost = {
        "import_seconds": imported - started,
        "seconds": time.perf_counter() - imported,
        "cpu_seconds": time.process_time(),
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "sampling": found.sampling,
        "verdict": found.verdict,
        "rows_with_an_equal": found.measures.get("all_exact_duplicates"),
        "lists": {name: len(one) for name, one in found.lists.items()},
    }
    print(json.dumps(cost))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("large", "stream", "twins"):
        parser.add_argument(f"--{name}", dest="kind", action="store_const", const=name)
    parser.set_defaults(kind="rows")
    parser.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)
    call = parser.parse_args()
    if call.measure:
        measure(call.measure)
        return
    kind = call.kind
    folder = HERE / "out" / "diagnose"
    folder.mkdir(parents=True, exist_ok=True)
    path = write(kind, folder)
    try:
        command = [sys.executable, __file__, "--measure", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        path.unlink()
    cost = json.loads(done.stdout)
    bounds = BOUNDS[kind]
    result = {
        "shape": SHAPES[kind],
        "bounds": bounds,
        "within": all(cost[name] <= bound for name, bound in bounds.items()),
        **cost,
    }
    print(json.dumps(result, indent=2))
    ending = "" if kind == "rows" else f" --{kind}"
    print(save(f"diagnose-{kind}", result, f"python benchmarks/diagnose.py{ending}"))


if __name__ == "__main__":
    main()

"""Nearest neighbours beside faiss's exact index: seconds, and whether the neighbours are the same.

    python benchmarks/neighbours.py     # with faiss installed; without it only ours is timed

Three shapes, normal rows and clusters: all neighbours of 8,000 x 128 and 20,000 x 128, and 4,000
queries among 20,000 (what a kNN accuracy asks). Each is the best of three runs on all cores. The
bound is 1.5 times the time of faiss (`IndexFlatIP` on unit rows, float32). Neighbours are the same
where every distance is the same up to float32's rounding: faiss orders near ties by chance.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from chiaroscuro.measures import Labelled, knn_accuracy, nearest, unit
from environment import save

BOUND = 1.5
REPEATS = 3


def best(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the fastest of three calls, and what it returned."""
    times, found = [], None
    for _ in range(REPEATS):
        started = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - started)
    return min(times), found


def clusters(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows around a hundred centres, and which."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 100, n)
    centres = draw.standard_normal((100, d), dtype=np.float32)
    return centres[y] + draw.standard_normal((n, d), dtype=np.float32), y


def theirs(bank: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """The k nearest by faiss, from rows as they come."""
    import faiss

    length = lambda x: np.ascontiguousarray(x / np.linalg.norm(x, axis=1, keepdims=True))
    index = faiss.IndexFlatIP(bank.shape[1])
    index.add(length(bank))
    return index.search(length(queries), k)[1]


def same(bank: np.ndarray, queries: np.ndarray, ours: np.ndarray, ids: np.ndarray) -> float:
    """Share of neighbours whose cosine is that of the other's, place by place."""
    u, v = unit(bank), unit(queries)
    cosines = [np.einsum("id,ikd->ik", v, u[found]) for found in (ours, ids)]
    return float((np.abs(cosines[0] - cosines[1]) < 1e-6).mean())


def main() -> None:
    try:
        import faiss  # noqa: F401
    except ImportError:
        faiss_there = False
    else:
        faiss_there = True
    rows = []
    for name, n, m in (("nearest", 8000, 0), ("nearest", 20_000, 0), ("knn", 20_000, 4000)):
        for law in ("normal", "clusters"):
            x, y = clusters(n + m, 128)
            if law == "normal":
                x = np.random.default_rng(1).standard_normal((n + m, 128), dtype=np.float32)
            bank, queries = x[:n], x[n:] if m else x[:n]
            if m:
                train, test = Labelled(bank, y[:n]), Labelled(queries, y[n:])
                seconds, _ = best(lambda t=train, s=test: knn_accuracy(t, s, 20))
                ids = nearest(bank, 20, queries=queries).ids
            else:
                seconds, found = best(lambda b=bank: nearest(b, 20))
                ids = found.ids
            row = {"call": name, "n": n, "queries": m or n, "law": law, "seconds": seconds}
            if faiss_there:
                k = 20 if m else 21
                other, found = best(lambda b=bank, q=queries, k=k: theirs(b, q, k))
                if not m:
                    found = np.array(
                        [[j for j in line if j != i][:20] for i, line in enumerate(found.tolist())]
                    )
                row |= {"faiss": other, "ratio": seconds / other}
                row["same"] = same(bank, queries, ids, found)
                row["within"] = row["ratio"] <= BOUND and row["same"] > 0.99999
            rows.append(row)
            print(json.dumps(row))
    print(save("neighbours", {"bound": BOUND, "rows": rows}, "python benchmarks/neighbours.py"))


if __name__ == "__main__":
    main()

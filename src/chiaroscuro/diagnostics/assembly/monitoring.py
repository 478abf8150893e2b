"""`monitor`: the few measures that are cheap enough for every epoch, or every hundred steps."""

from __future__ import annotations

from typing import Any

from chiaroscuro.diagnostics.rows import rows_of, some_of
from chiaroscuro.measures.dimensions import dimensions
from chiaroscuro.measures.spectrum import effective_rank
from chiaroscuro.measures.sphere import alignment, mean_cosine, norms, uniformity

__all__ = ["monitor"]

ROWS = 512


def monitor(h: Any, positives: Any = None, rows: int = ROWS) -> dict[str, float]:
    """Return rank, mean cosine, uniformity and norms of a batch of embeddings, by name.

    For any loop: `log(monitor(z))`, in a Lightning module `self.log_dict(monitor(z1, z2))`, in ours
    `train(..., callbacks=[watch(monitor)])`. It decides nothing.

    Relations: each number is that of the diagnostic of its name.

    Args:
        h: (n, d), n >= 2, tensor or array; no gradient is kept.
        positives: (n, d), the other views of the same rows: adds `alignment`.
        rows: use so many at most. 512 rows of 128 dimensions cost about 20 ms on one core.

    Example:
        >>> import torch
        >>> measured = monitor(torch.eye(8), torch.eye(8))
        >>> sorted(measured)
        ['alignment', 'dead_dimensions', 'effective_rank', 'mean_cosine', 'norm', 'uniformity']
        >>> measured["alignment"], round(measured["effective_rank"], 6)
        (0.0, 7.0)
    """
    x = rows_of("monitor(h)", h)
    kept = some_of("monitor", len(x), rows, seed=0)
    some = x[kept]
    numbers = {
        "effective_rank": effective_rank(some),
        "mean_cosine": mean_cosine(some),
        "uniformity": uniformity(some, rows=None),
        "norm": norms(some).mean,
        "dead_dimensions": float(len(dimensions(some).dead)),
    }
    if positives is not None:
        numbers["alignment"] = alignment(some, rows_of("monitor(h, positives)", positives)[kept])
    return numbers

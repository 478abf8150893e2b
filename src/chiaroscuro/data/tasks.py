"""Algorithmic tasks, every instance of them."""

from __future__ import annotations

import numpy as np

from chiaroscuro.data.dataset import Dataset
from chiaroscuro.errors import need

__all__ = ["modular_addition"]


def modular_addition(n: int = 16, k: int = 8, test: float = 0.2, seed: int = 0) -> Dataset:
    """All sums of two symbols modulo k, as sequences of three tokens.

        x = (a, b, (a + b) mod k),   a, b in {0, ..., n - 1}

    Symbols that are equal modulo k are interchangeable [semantic2025, Sec. 5]. With one of the
    addends masked this is the contrastive task CModAdd; the sum as a label, the task ModAdd. The
    result shares the vocabulary of the addends: its position tells it apart.

    Args:
        n: symbols; 16 [semantic2025, Sec. 5].
        k: the modulus; 8 [semantic2025, Sec. 5].
        test: share of the held-out side; 0.2 [semantic2025, Sec. 5].
        seed: of the split.

    References:
        semantic2025

    Example:
        >>> data = modular_addition()
        >>> data.column("x")[16 * 9 + 15]
        array([ 9, 15,  0])
        >>> len(data.part("train")), len(data.part("test"))
        (205, 51)
    """
    need(
        2 <= k <= n,
        lambda: f"`modular_addition(n, k)` needs 2 <= k <= n; received n = {n} and k = {k}.",
    )
    a, b = np.divmod(np.arange(n * n), n)
    x = np.stack([a, b, (a + b) % k], axis=1)
    return Dataset({"x": x}, name="modular_addition").with_split(test, seed)

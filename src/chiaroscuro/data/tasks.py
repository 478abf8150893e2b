"""Algorithmic tasks, every instance of them: sequences, and laws of symbols in contexts."""

from __future__ import annotations

import numpy as np

from chiaroscuro.data.dataset import Dataset
from chiaroscuro.data.symbols import SymbolTask
from chiaroscuro.errors import need

__all__ = ["MASKED", "contrastive_mod_add", "mod_add", "modular_addition"]

MASKED = {"first": (0,), "second": (1,), "either": (0, 1)}
"""Which addend may be the symbol, by name."""


def modular_addition(n: int = 16, k: int = 8, test: float = 0.2, seed: int = 0) -> Dataset:
    """Return all sums of two symbols modulo k, as sequences of three tokens.

        x = (a, b, (a + b) mod k),   a, b in {0, ..., n - 1}

    Symbols that are equal modulo k are interchangeable [semantic2025, Sec. 5]. With one of the
    addends masked this is the contrastive task CModAdd; the sum as a label, the task ModAdd. The
    result shares the vocabulary of the addends: its position tells it apart.

    Args:
        n: symbols; 16 [semantic2025, Sec. 5].
        k: the modulus; 8 [semantic2025, Sec. 5].
        test: share of the held-out side; 0.2 [semantic2025, Sec. 5].
        seed: seed of the split.

    References:
        semantic2025

    Example:
        >>> data = modular_addition()
        >>> data.column("x")[16 * 9 + 15]
        array([ 9, 15,  0])
        >>> len(data.part("train")), len(data.part("test"))
        (205, 51)
    """
    _moduli("modular_addition", n, k)
    a, b = np.divmod(np.arange(n * n), n)
    x = np.stack([a, b, (a + b) % k], axis=1)
    return Dataset({"x": x}, name="modular_addition").with_split(test, seed)


def mod_add(n: int = 16, k: int = 8) -> SymbolTask:
    """ModAdd: the symbol a, in the context of b, has the label (a + b) mod k.

        p(b, a, y) = [y = (a + b) mod k] / n^2

    Relations: a and a' are equivalent [semantic2025, Def. 2.1] if and only if a = a' mod k.

    Args:
        n, k: symbols and modulus; 16 and 8 [semantic2025, Sec. 5]. "U(0, N)" is read as the N
            symbols 0 to N - 1.

    References:
        semantic2025

    Example:
        >>> mod_add(n=4, k=2).law[1].tolist()  # in the context of 1, 0 gives 1 and 1 gives 0
        [[0.0, 0.0625], [0.0625, 0.0], [0.0, 0.0625], [0.0625, 0.0]]
    """
    _moduli("mod_add", n, k)
    b, a = np.divmod(np.arange(n * n), n)
    law = np.zeros((n, n, k))
    law[b, a, (a + b) % k] = 1 / n**2
    return SymbolTask(law, np.arange(n)[:, None], name="mod_add")


def contrastive_mod_add(
    n: int = 16,
    k: int = 8,
    masked: str = "either",
    misalignment: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
) -> SymbolTask:
    """CModAdd: the symbol is a masked addend, the context the other addend and the result.

        contexts (?, b, c) and (a, ?, c);   p(context | a) = 1 / m if c = (a + b) mod k, else 0

    with m = n contexts of each place that may be masked. The mask is the token n. There are no
    labels. Symbols that are equal modulo k have the same law of contexts: aligned with `mod_add`
    of the same k [semantic2025, Sec. 5].

    Relations: `misalignment` = 1/m is as good as 0; `noise` = 1 makes all symbols alike.

    Args:
        n, k: as for `mod_add`.
        masked: "first", "second" or "either" addend [semantic2025, Sec. 5: either].
        misalignment: the probability of one chosen context of each symbol, the others sharing the
            rest evenly; 0.9 in [semantic2025, App. A.10], 0 for none chosen.
        noise: the share of pairs whose result c is drawn at random from 0, ..., k - 1; ours.
        seed: seed of the choice of contexts.

    References:
        semantic2025

    Example:
        >>> task = contrastive_mod_add(n=4, k=2, masked="first")
        >>> task.contexts[:2].tolist()  # ? + 0 = 0 and ? + 0 = 1 (mod 2)
        [[4, 0, 0], [4, 0, 1]]
        >>> task.given_symbol()[2].tolist()
        [0.25, 0.0, 0.0, 0.25, 0.25, 0.0, 0.0, 0.25]
    """
    _moduli("contrastive_mod_add", n, k)
    need(
        masked in MASKED,
        lambda: (
            f"`contrastive_mod_add(masked)` needs one of {', '.join(MASKED)}; received `{masked}`."
        ),
    )
    m = n * len(MASKED[masked])
    need(
        misalignment == 0 or 1 / m <= misalignment <= 1,
        lambda: (
            f"`contrastive_mod_add(misalignment)` needs 0, or a probability from 1/{m} (as all the "
            f"others) to 1; received {misalignment}."
        ),
    )
    need(
        0 <= noise <= 1,
        lambda: f"`contrastive_mod_add(noise)` needs a share from 0 to 1; received {noise}.",
    )
    contexts = []
    for place in MASKED[masked]:
        other, c = np.divmod(np.arange(n * k), k)
        addends = [np.full_like(other, n), other]
        contexts.append(np.stack([addends[place], addends[1 - place], c], axis=1))
    rows = np.concatenate(contexts)
    other = np.where(rows[:, 0] == n, rows[:, 1], rows[:, 0])
    right = (other[:, None] + np.arange(n)) % k == rows[:, 2:]
    given = right / m
    if misalignment:
        rng = np.random.default_rng(seed)
        for a in range(n):
            chosen = rng.choice(np.flatnonzero(right[:, a]))
            given[right[:, a], a] = (1 - misalignment) / (m - 1)
            given[chosen, a] = misalignment
    by_chance = given.reshape(-1, k, n).sum(axis=1, keepdims=True).repeat(k, axis=1) / k
    law = (1 - noise) * given + noise * by_chance.reshape(given.shape)
    return SymbolTask(law / n, rows, name="contrastive_mod_add")


def _moduli(call: str, n: int, k: int) -> None:
    need(
        isinstance(n, int) and isinstance(k, int) and 2 <= k <= n,
        lambda: f"`{call}(n, k)` needs whole numbers, 2 <= k <= n; received n = {n} and k = {k}.",
    )

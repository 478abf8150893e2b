"""Random numbers by counter: a pure function of what they are for, never of what came before.

SplitMix64 turned into a hash: `words(count, seed, epoch, sample, view)` are the `count` numbers
that belong to that rendering, whoever asks, in whatever order, batch, worker or rank. Integer
arithmetic alone, so the numbers are the same on every machine and under every numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chiaroscuro.errors import need

__all__ = ["hashed", "uniforms", "words"]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def words(count: int, *key: ArrayLike) -> NDArray[np.uint64]:
    """Return the first `count` words of the stream that a key names, for every row of the key.

        h = 0;  h <- mix(h + GOLDEN (k + 1)) for each part k;  word_i = mix(h + GOLDEN (i + 1))

    where `mix` is SplitMix64's finaliser, so that the last line is SplitMix64 seeded with h. Two
    keys that differ in any part have unrelated streams; a key of other length is another key.

    Relations:
        `words(count)` with no key is SplitMix64 seeded with 0.

    Args:
        count: words per row.
        key: integers, or arrays of them that broadcast to one dimension: (seed, epoch, samples,
            view).

    Example:
        >>> words(1).item()
        16294208416658607535
        >>> bool((words(3, 0, 1, [5, 6])[1] == words(3, 0, 1, 6)[0]).all())
        True
    """
    parts = np.broadcast_arrays(np.zeros(1, np.uint64), *(_part(k) for k in key))
    with np.errstate(over="ignore"):
        h = parts[0].copy()
        for part in parts[1:]:
            h = _mix(h + np.uint64(_GOLDEN) * (part + np.uint64(1)))
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        return _mix(h[:, None] + steps)


def uniforms(count: int, *key: ArrayLike) -> NDArray[np.float64]:
    """`words` as numbers in [0, 1): the upper 53 bits, so that every value is exact.

    Example:
        >>> u = uniforms(1000, 7)
        >>> 0 <= u.min() < u.max() < 1 and abs(float(u.mean()) - 0.5) < 0.03
        True
    """
    return (words(count, *key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def hashed(x: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each word under a key: SplitMix64's finaliser of their sum.

    Example:
        >>> a, b = hashed(np.arange(2, dtype=np.uint64), np.uint64(7))
        >>> bool(a != b)
        True
    """
    with np.errstate(over="ignore"):
        return _mix(x * np.uint64(_GOLDEN) + key)


def _part(value: ArrayLike) -> NDArray[np.uint64]:
    if isinstance(value, int):
        value = value & _MASK
        return np.array([value], np.uint64)
    array: NDArray[Any] = np.atleast_1d(np.asarray(value))
    need(
        array.dtype.kind in "iu" and array.ndim == 1,
        lambda: (
            "The key of a random number needs whole numbers or one row of them; received "
            f"{array.dtype} of shape {array.shape}."
        ),
    )
    return array.astype(np.uint64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

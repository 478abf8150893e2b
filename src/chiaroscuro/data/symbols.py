"""Symbols in contexts with labels, as a law that is known: any task small enough for a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chiaroscuro.data.counter import uniforms
from chiaroscuro.data.dataset import Dataset
from chiaroscuro.errors import need

__all__ = ["SymbolTask"]


@dataclass(frozen=True, eq=False, repr=False)
class SymbolTask:
    """A task as a table p(context, symbol, label), or p(context, symbol) without labels.

    The law is known, so that populations can be summed and samples compared with the truth.

    Relations:
        `tabulate` of many draws, divided by their number, tends to `by_symbol()`.
        `equivalence(task.by_symbol(), exact=True)` says which symbols mean the same.

    Args:
        law: (C, S) or (C, S, Y), of at least 0; kept divided by its sum. Every symbol must occur.
        contexts: (C, L), the tokens of each context; its number alone if None.
        name: for people.

    References:
        semantic2025

    Example:
        >>> task = SymbolTask([[2, 1], [0, 1]])
        >>> task.given_symbol().tolist()
        [[1.0, 0.0], [0.5, 0.5]]
        >>> task.dataset(3, seed=1).column("x").tolist()  # symbol, then context
        [[1, 0], [1, 0], [0, 0]]
    """

    law: Any
    contexts: Any = None
    name: str = "symbol_task"

    def __post_init__(self) -> None:
        p = np.asarray(self.law, dtype=np.float64)
        need(
            p.ndim in (2, 3) and p.size > 0 and bool(np.isfinite(p).all() and (p >= 0).all()),
            lambda: (
                "`SymbolTask(law)` needs probabilities (contexts, symbols) or (contexts, symbols, "
                f"labels) of at least 0; received shape {p.shape}, {_odd(p)} of them negative or "
                "not finite."
            ),
        )
        each = p.sum(axis=tuple(a for a in range(p.ndim) if a != 1))
        need(
            bool((each > 0).all()),
            lambda: (
                f"`SymbolTask(law)` needs every symbol to occur; {int((each <= 0).sum())} of "
                f"{len(each)} do not, the first is {int(np.argmin(each > 0))}."
            ),
        )
        c = np.arange(len(p))[:, None] if self.contexts is None else np.asarray(self.contexts)
        need(
            c.ndim == 2 and len(c) == len(p) and c.dtype.kind in "iu",
            lambda: (
                f"`SymbolTask(contexts)` needs whole numbers ({len(p)}, length), a row for each "
                f"context; received {c.dtype} of shape {c.shape}."
            ),
        )
        object.__setattr__(self, "law", p / p.sum())
        object.__setattr__(self, "contexts", c)

    @property
    def n_contexts(self) -> int:
        return self.law.shape[0]

    @property
    def n_symbols(self) -> int:
        return self.law.shape[1]

    @property
    def n_labels(self) -> int:
        """0 where there are no labels."""
        return self.law.shape[2] if self.law.ndim == 3 else 0

    def __repr__(self) -> str:
        labels = f", {self.n_labels} labels" if self.n_labels else ""
        return (
            f"SymbolTask({self.name!r}, {self.n_contexts} contexts, {self.n_symbols} symbols"
            f"{labels})"
        )

    # ---- laws ----

    def pairs(self) -> NDArray[np.float64]:
        """p(context, symbol), (C, S): labels summed out."""
        return self.law.sum(axis=2) if self.n_labels else self.law

    def by_symbol(self) -> NDArray[np.float64]:
        """Return the law with the symbol first, (S, C) or (S, C, Y), as diagnostics take tables."""
        return np.moveaxis(self.law, 1, 0)

    def given_symbol(self) -> NDArray[np.float64]:
        """p(context | symbol), (S, C)."""
        p = self.pairs().T
        return p / p.sum(axis=1, keepdims=True)

    # ---- other tasks made of it ----

    def with_labels_shown(self) -> SymbolTask:
        """Return the task without labels whose contexts are (context, label): what E(rho, y) sees.

        The label follows the tokens of the context as one more token, counted from the highest
        token there.
        """
        need(self.n_labels > 0, lambda: f"`{self.name}` has no labels to show.")
        first = int(self.contexts.max()) + 1
        y = np.tile(np.arange(self.n_labels), self.n_contexts)
        rows = np.c_[np.repeat(self.contexts, self.n_labels, axis=0), first + y]
        law = self.law.transpose(0, 2, 1).reshape(-1, self.n_symbols)
        return SymbolTask(law, rows, name=f"{self.name} with labels")

    def renamed(self, order: ArrayLike) -> SymbolTask:
        """Return the task in which symbol s behaves as `order[s]` did.

        Example:
            >>> SymbolTask([[2, 1], [0, 1]]).renamed([1, 0]).given_symbol().tolist()
            [[0.5, 0.5], [1.0, 0.0]]
        """
        given = np.asarray(order)
        need(
            sorted(given.tolist()) == list(range(self.n_symbols)),
            lambda: f"`renamed(order)` needs each of 0 to {self.n_symbols - 1} once.",
        )
        return SymbolTask(self.law[:, given], self.contexts, self.name)

    def where(self, kept: ArrayLike) -> SymbolTask:
        """Return the task given that (context, symbol) is among those kept: a mask (C, S)."""
        mask = np.asarray(kept, dtype=bool)
        need(
            mask.shape == self.law.shape[:2],
            lambda: (
                f"`where(kept)` needs a mask {self.law.shape[:2]}, a value for each context and "
                f"symbol; received {mask.shape}."
            ),
        )
        law = self.law * (mask[:, :, None] if self.n_labels else mask)
        return SymbolTask(law, self.contexts, self.name)

    # ---- draws ----

    def sample(self, n: int, seed: int = 0) -> tuple[NDArray[np.int64], ...]:
        """Symbols, contexts (their numbers) and, if there are any, labels of n draws.

        Row i is a function of the law, the seed and i alone.
        """
        need(n >= 1, lambda: f"`sample(n)` needs at least one draw; received {n}.")
        upto = np.cumsum(self.law.ravel())
        u = uniforms(1, seed, np.arange(n))[:, 0] * upto[-1]
        at = np.minimum(np.searchsorted(upto, u, side="right"), self.law.size - 1)
        context, symbol, *label = np.unravel_index(at, self.law.shape)
        return (symbol, context, *label)

    def dataset(self, n: int | None = None, seed: int = 0, test: float = 0.0) -> Dataset:
        """Draws as a dataset: `x` (n, 1 + L), the symbol and then the tokens of its context.

        `TokenSplit(mask, positions=(0,))` makes symbol and context of such rows. Labels are
        `labels`, if there are any; `symbols` and `contexts` are notes.

        Args:
            n: draws; None gives every combination of positive probability once.
            seed: seed of the draws and of the split.
            test: share to hold out; 0 makes no split.
        """
        if n is None:
            context, symbol, *label = np.nonzero(self.law)
        else:
            symbol, context, *label = self.sample(n, seed)
        columns = {
            "x": np.c_[symbol, self.contexts[context]],
            "symbols": symbol,
            "contexts": context,
        }
        if label:
            columns["labels"] = label[0]
        data = Dataset(columns, name=self.name)
        return data.with_split(test, seed) if test else data


def _odd(p: NDArray[np.float64]) -> int:
    return int((~(np.isfinite(p) & (p >= 0))).sum())

"""Standardised features of tables: each minus its mean, divided by its standard deviation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.errors import InputError, need

__all__ = ["Scaling", "Standardised"]


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Mean and standard deviation of each feature, by its name.

    Args:
        names: names of the features; `colour=red` is 1 where the column `colour` says red, else 0.
        mean, std: one number each; a constant feature has the std 1.
    """

    names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, names: tuple[str, ...], x: NDArray[Any]) -> Scaling:
        """Measure the scaling of rows of features.

        Example:
            >>> Scaling.of(("a",), np.array([[1.0], [3.0]]))
            Scaling(names=('a',), mean=(2.0,), std=(1.0,))
        """
        mean = x.mean(axis=0, dtype=np.float64)
        std = x.std(axis=0, dtype=np.float64)
        std = np.where(std > 1e-12 * np.maximum(1, np.abs(mean)), std, 1.0)
        return cls(names, tuple(mean.tolist()), tuple(std.tolist()))

    def table(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {key: list(value) for key, value in dataclasses.asdict(self).items()}

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Scaling:
        """Return the scaling that `table` wrote."""
        try:
            names = tuple(str(name) for name in table["names"])
            mean, std = (tuple(float(v) for v in table[key]) for key in ("mean", "std"))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"A scaling needs `names`, `mean` and `std`: {error}.") from None
        finite = np.isfinite([*mean, *std]).all()
        need(
            len(names) == len(mean) == len(std) and bool(finite) and all(v > 0 for v in std),
            lambda: (
                f"A scaling needs a finite mean and a std above 0 for each name; received "
                f"{len(names)} names, {len(mean)} means and {len(std)} stds."
            ),
        )
        return cls(names, mean, std)


class Standardised:
    """A column of features, standardised when they are read.

    Args:
        raw: (n, d) numbers.
        scaling: of its d features.
    """

    ndim = 2

    def __init__(self, raw: NDArray[Any], scaling: Scaling) -> None:
        self.raw, self.scaling = raw, scaling

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[np.float32]:
        x = np.asarray(self.raw[rows], np.float64)
        return ((x - self.scaling.mean) / self.scaling.std).astype(np.float32)

    def fitted(self, rows: NDArray[Any]) -> Standardised:
        """Return the same features in the scaling of some rows: those that are trained on."""
        return Standardised(self.raw, Scaling.of(self.scaling.names, self.raw[rows]))

    def under(self, scaling: Scaling) -> Standardised:
        """Return the same rows in another scaling, its features found by name.

        A category that this table does not have is 0; one that the scaling does not know is left
        out; any other feature needs to be in both.
        """
        mine = {name: at for at, name in enumerate(self.scaling.names)}
        absent = [name for name in scaling.names if name not in mine and "=" not in name]
        new = [name for name in mine if name not in scaling.names and "=" not in name]
        need(
            not absent and not new,
            lambda: (
                f"The table needs the {len(scaling.names)} features that were trained on; it lacks "
                f"{absent[:5]} and has {new[:5]} that were not."
            ),
        )
        zeros = np.zeros(len(self.raw), self.raw.dtype)
        columns = [self.raw[:, mine[n]] if n in mine else zeros for n in scaling.names]
        return Standardised(np.stack(columns, axis=1), scaling)

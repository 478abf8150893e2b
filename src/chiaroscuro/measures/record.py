"""The base of records that measures return where one number is not enough."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

__all__ = ["Record", "plain"]


class Record:
    """A frozen record of numbers and arrays; each diagnostic that needs one derives its own."""

    def json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries; what is not finite becomes None.

        Example:
            >>> from chiaroscuro.measures import norms
            >>> norms([[3.0, 4.0], [0.0, 1.0]]).json()["largest"]
            5.0
        """
        return dict(plain(self))


def plain(value: Any) -> Any:
    """Convert to numbers, strings, lists and dictionaries, for `json.dumps`.

    Example:
        >>> plain({"a": np.array([1.0, np.nan]), "b": np.int64(3)})
        {'a': [1.0, None], 'b': 3}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

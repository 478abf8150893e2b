"""Where data sets live on this machine."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["VARIABLE", "home", "places"]

VARIABLE = "CHIARO_DATA"


def places() -> list[Path]:
    """The folders looked in, first to last: `CHIARO_DATA` if it is set, then the user's own
    cache."""
    named = os.environ.get(VARIABLE)
    cache = os.environ.get("XDG_CACHE_HOME")
    own = (Path(cache) if cache else Path.home() / ".cache") / "chiaroscuro"
    return [*([Path(named).expanduser()] if named else []), own]


def home() -> Path:
    """Where downloads go: the first of `places`."""
    return places()[0]

"""Where datasets live on this machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from chiaroscuro.errors import InputError

__all__ = ["VARIABLE", "cache_folder", "home", "inside", "places"]

VARIABLE = "CHIARO_DATA"


def places() -> list[Path]:
    """Return the folders looked in, first to last: `CHIARO_DATA` if set, then the user's cache."""
    named = os.environ.get(VARIABLE)
    return [*([Path(named).expanduser()] if named else []), _cache_folder()]


def home() -> Path:
    """Return where downloads go: the first of `places`."""
    return places()[0]


def cache_folder(name: str) -> Path:
    """Return a folder of the user's cache, made if need be; a temporary one where that fails."""
    folder = _cache_folder() / f".{name}"  # hidden: no dataset of that name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix=f"chiaroscuro-{name}-"))


def inside(path: Path, root: Path, outside: bool = False) -> Path:
    """Return the path if it is a regular file in the folder `root`, links followed.

    Data may come from anywhere and name any file; what they name is read only where it lies in
    their own folder.

    Args:
        path: what the data name.
        root: the folder that holds the data.
        outside: allow files anywhere; never devices or pipes.
    """
    try:
        real, home_of = path.resolve(), root.resolve()
        regular = real.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, a circle
        raise InputError(f"`{str(path)[:80]!r}` cannot be a file: {error}") from None
    if not regular:
        there = "is no regular file" if os.path.lexists(path) else "does not exist"
        raise InputError(f"`{path}` {there}.")
    if not outside and not real.is_relative_to(home_of):
        raise InputError(
            f"`{path}` lies outside `{root}`; data may name files in their own folder only. If "
            "they are trusted, pass `outside=True`."
        )
    return real


def _cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "chiaroscuro"

"""Pieces of a long run, each kept as JSON as soon as it is done, so that a stopped run goes on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chiaroscuro import ChiaroError

__all__ = ["Pieces"]


class Pieces:
    """A `Keep`: computes a piece once, stores it in a folder, and adds up the seconds.

    Pieces belong to one set of settings; those of another are not looked at.

    Args:
        folder: where they go, one file each; None keeps nothing.
        settings: of the run; their text is part of the pieces' names.
        done: told the name and the seconds of each piece that was computed.

    Example:
        >>> pieces = Pieces(None, "Settings()")
        >>> pieces("seed 0", lambda: [1, 2])
        [1, 2]
    """

    def __init__(
        self,
        folder: Path | None,
        settings: Any,
        done: Callable[[str, float], None] | None = None,
    ):
        self.folder, self.done = folder, done
        self.mark = hashlib.sha256(repr(settings).encode()).hexdigest()[:12]
        self.before = 0.0
        """Seconds that went into pieces found here, of an earlier process."""

    def __call__(self, name: str, piece: Callable[[], Any]) -> Any:
        """The stored value of the piece, or its value now."""
        if self.folder is None:
            return self._timed(name, piece)[0]
        path = self.folder / self._name(name, ".json")
        if path.is_file():
            stored = _read(path)
            self.before += stored["seconds"]
            return stored["value"]
        value, seconds = self._timed(name, piece)
        self.folder.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".part")
        half.write_text(json.dumps({"seconds": seconds, "value": value}), encoding="utf-8")
        os.replace(half, path)
        return json.loads(json.dumps(value))

    def room(self, name: str) -> Path | None:
        """A folder for the training of a piece, where it goes on if it was stopped; None for none.

        Args:
            name: of the piece.
        """
        return None if self.folder is None else self.folder / self._name(name, ".run")

    def _name(self, piece: str, ending: str) -> str:
        return f"{self.mark}-{re.sub(r'[^A-Za-z0-9.]+', '-', piece)}{ending}"

    def _timed(self, name: str, piece: Callable[[], Any]) -> tuple[Any, float]:
        began = time.perf_counter()
        value = piece()
        seconds = time.perf_counter() - began
        if self.done is not None:
            self.done(name, seconds)
        return value, seconds

    def clear(self) -> None:
        """Forget these pieces, for the run is whole; those of other settings stay."""
        if self.folder is not None and self.folder.is_dir():
            for path in self.folder.glob(f"{self.mark}-*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            if not any(self.folder.iterdir()):
                self.folder.rmdir()


def _read(path: Path) -> dict[str, Any]:
    """A stored piece; a sentence if the file is not whole."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {"seconds": float(stored["seconds"]), "value": stored["value"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ChiaroError(
            f"`{path}`, {path.stat().st_size} bytes, is not a whole piece of a run ({error}). "
            "Delete it, and the same command computes it again."
        ) from None

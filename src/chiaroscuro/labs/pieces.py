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

__all__ = ["Pieces"]


class Pieces:
    """A `Keep`: computes a piece once, stores it in a folder, and adds up the seconds.

    Pieces belong to one set of settings; those of another are not looked at.

    Args:
        folder: where they go, one file each; None keeps nothing.
        settings: of the run; their text is part of the pieces' names.

    Example:
        >>> pieces = Pieces(None, "Settings()")
        >>> pieces("seed 0", lambda: [1, 2])
        [1, 2]
    """

    def __init__(self, folder: Path | None, settings: Any):
        self.folder = folder
        self.mark = hashlib.sha256(repr(settings).encode()).hexdigest()[:12]
        self.before = 0.0
        """Seconds that went into pieces found here, of an earlier process."""

    def __call__(self, name: str, piece: Callable[[], Any]) -> Any:
        """The stored value of the piece, or its value now."""
        if self.folder is None:
            return piece()
        path = self.folder / f"{self.mark}-{re.sub(r'[^A-Za-z0-9.]+', '-', name)}.json"
        if path.is_file():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self.before += stored["seconds"]
            return stored["value"]
        began = time.perf_counter()
        value = piece()
        seconds = time.perf_counter() - began
        self.folder.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".part")
        half.write_text(json.dumps({"seconds": seconds, "value": value}), encoding="utf-8")
        os.replace(half, path)
        return json.loads(json.dumps(value))

    def clear(self) -> None:
        """Forget all pieces: the run is whole."""
        if self.folder is not None and self.folder.is_dir():
            shutil.rmtree(self.folder)

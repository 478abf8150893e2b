"""Find or build the compiled library of the views, `native.c`, load it, and call it.

The library is built once, at first use, by the C compiler that is there (`$CC`, `cc`, `gcc` or
`clang`), into `$XDG_CACHE_HOME/chiaroscuro` (or `~/.cache/chiaroscuro`). Its name carries a digest
of the source, the compiler, the flags and the processor, and a digest of its own content: a library
built elsewhere, from other source, or damaged since is never loaded. It arrives under its name by
one rename, so that processes which build it at the same time do not disturb each other.

Where nothing can be built, the library that a binary wheel carries is used. It was compiled for any
processor of its platform, and its name carries the digest of its source.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from chiaroscuro.errors import need

__all__ = ["VARIABLE", "Library", "forced", "library", "packaged", "why_not"]

VARIABLE = "CHIARO_VIEWS"
"""The environment variable that forces a backend: `c` or `torch`."""

_CHOICES = ("c", "torch")
_SOURCE = Path(__file__).with_name("native.c")
# no -ffast-math: linked into a library it would flush denormal numbers in the whole process
_FLAGS = (
    *("-O3", "-std=gnu11", "-fPIC", "-shared"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"),
)
_SECONDS = 120


class Library:
    """The loaded library, with its functions as methods on arrays."""

    def __init__(self, path: Path, how: str):
        self.path, self.how = path, how
        loaded = ctypes.CDLL(str(path))
        loaded.chiaro_sizes.restype = ctypes.c_int64
        self.sizes = int(loaded.chiaro_sizes())
        self.wide = bool(loaded.chiaro_wide())
        self._words, self._render = loaded.chiaro_words, loaded.chiaro_render
        pointer, small, large = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
        self._words.restype = None
        self._words.argtypes = (pointer, large, small, small, large, ctypes.c_uint64, pointer)
        self._render.restype = small
        self._render.argtypes = (*[pointer] * 4, small, large, large, pointer, pointer)

    def words(self, ids: np.ndarray, epoch: int, view: int, blocks: int, key: int) -> np.ndarray:
        """Philox4x32-10: (n, 4 blocks) random words."""
        out = np.empty((len(ids), 4 * blocks), dtype=np.uint32)
        self._words(ids.ctypes.data, len(ids), epoch, view, blocks, key, out.ctypes.data)
        return out

    def render(self, places: tuple[Any, ...], widest: int, first: int, stop: int) -> None:
        """Images `first` to `stop`; `places` are the addresses that `chiaro_render` takes."""
        *inputs, out, out_bytes = places
        failed = self._render(*inputs, widest, first, stop, out, out_bytes)
        if failed:
            raise MemoryError("The compiled views found no memory for one image.")


def forced() -> str | None:
    """Return the backend that `CHIARO_VIEWS` asks for, or None."""
    choice = os.environ.get(VARIABLE) or None
    need(
        choice is None or choice in _CHOICES,
        lambda: f"`{VARIABLE}` needs to be one of {', '.join(_CHOICES)}; received `{choice}`.",
    )
    return choice


def library() -> Library | None:
    """Return the compiled library, built if need be;
    None where it cannot be had or is not wanted.
    """
    if forced() not in (None, "c"):
        return None
    loaded = _loaded()
    return loaded if isinstance(loaded, Library) else None


def why_not() -> str:
    """Return why there is no library, in one clause."""
    loaded = _loaded()
    return loaded if isinstance(loaded, str) else ""


@cache
def _loaded() -> Library | str:
    compiler = _compiler()
    if compiler is None:
        return packaged() or "no C compiler was found"
    reasons = []
    for native in (("-march=native",), ()):
        command = (compiler, *_FLAGS, *native)
        for folder in _folders():
            got = _from_folder(folder, command)
            if isinstance(got, Library):
                return got
            reasons.append(got)
    reason = "; ".join(dict.fromkeys(reasons)) or "no folder can hold the library"
    return packaged() or reason


def packaged() -> Library | None:
    """Return the library that came with the wheel; None if there is none for this source.

    On x86-64 there are two, and processors with AVX2 and FMA get the faster one.
    """
    name = f"native-{_digest(_SOURCE.read_bytes())}"
    plain = _packaged(f"{name}.so", "packaged")
    if plain is None or not plain.wide:
        return plain
    return _packaged(f"{name}-v3.so", "packaged, x86-64-v3") or plain


def _packaged(name: str, how: str) -> Library | None:
    path = _SOURCE.with_name(name)
    try:
        return Library(path, how) if path.is_file() else None
    except (OSError, AttributeError):  # another platform's, or damaged: as if it were not there
        return None


def _from_folder(folder: Path, command: tuple[str, ...]) -> Library | str:
    key = _key(command)
    how = " ".join((Path(command[0]).name, *command[1:]))
    try:
        for path in folder.glob(f"views-{key}-*.so"):
            if path.stem.rpartition("-")[2] == _digest(path.read_bytes()):
                return Library(path, how)
            path.unlink(missing_ok=True)  # damaged: build it again
        return Library(_build(folder, key, command), how)
    except subprocess.SubprocessError as error:
        text = getattr(error, "stderr", None) or str(error)
        return f"{Path(command[0]).name} failed: {text.strip().splitlines()[-1][:200]}"
    except (OSError, AttributeError) as error:  # AttributeError: a function is missing
        return str(error)


def _build(folder: Path, key: str, command: tuple[str, ...]) -> Path:
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as scratch:
        made = Path(scratch) / "views.so"
        subprocess.run(
            (*command, "-o", str(made), str(_SOURCE), "-lm"),
            check=True,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        path = folder / f"views-{key}-{_digest(made.read_bytes())}.so"
        made.replace(path)
    return path


def _compiler() -> str | None:
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _folders() -> Iterator[Path]:
    """Yield where a library may be kept: the user's cache, else a folder of this process alone."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "chiaroscuro"
    if _is_safe(folder):
        yield folder
    yield _private_folder()


@cache
def _private_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="chiaroscuro-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _is_safe(folder: Path) -> bool:
    """Return whether the folder is there, ours, and writable by nobody else: code is loaded from
    it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    owned = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return owned and not shared and os.access(folder, os.W_OK)


def _key(command: tuple[str, ...]) -> str:
    """Return a digest of all that decides what the compiler makes."""
    return _digest(
        b"\0".join((_SOURCE.read_bytes(), "\0".join(command).encode(), _processor().encode()))
    )


@cache
def _processor() -> str:
    """Return the processor's abilities: a home folder may be shared by machines of different
    kinds.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    kind = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
    return "\n".join([platform.machine(), platform.processor(), *sorted(set(kind))])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]

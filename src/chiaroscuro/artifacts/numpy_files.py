"""Reading `.npy` and `.npz` files of strangers: nothing is unpickled, sizes are checked first."""

from __future__ import annotations

import ast
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["MAPPED_BYTES", "read_npy", "read_npz"]

MAPPED_BYTES = 64 << 20
"""A stored array from this size on is mapped, not read: its checksum then goes unchecked."""

_HEADER_BYTES = 10_000


def read_npy(path: Path) -> np.ndarray:
    """The array of an `.npy`, mapped from the file."""
    with path.open("rb") as file:
        size = path.stat().st_size
        shape, fortran, dtype = _header(path.name, file, size)
        return _mapped(path, file.tell(), shape, fortran, dtype, size - file.tell(), path.name)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` by name; large ones that are not packed are mapped from the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
            _unique(path.name, [m.filename for m in members])
            return {m.filename.removesuffix(".npy"): _member(path, archive, m) for m in members}
    except zipfile.BadZipFile as error:
        with path.open("rb") as file:
            start = file.read(16)
        raise InputError(
            f"`{path.name}` ({path.stat().st_size:,} bytes) is not an `.npz`, or is damaged: "
            f"{error}. It begins with {start!r}."
        ) from None
    except (EOFError, zlib.error, RuntimeError, UnicodeError, MemoryError) as error:
        raise InputError(f"`{path.name}` is damaged: {error or type(error).__name__}.") from None
    except OSError as error:
        raise ChiaroError(f"`{path}` cannot be read: {error.strerror or error}.") from None


def _unique(file: str, names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        need(name.endswith(".npy"), lambda name=name: f"`{file}` holds `{name}`, not an array.")
        need(name not in seen, lambda name=name: f"`{file}` holds `{name}` twice.")
        seen.add(name)


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    what = f"{path.name}:{member.filename}"
    with archive.open(member) as file:
        shape, fortran, dtype = _header(what, file, member.file_size)
        head = file.tell()
        _fits(what, shape, dtype, member.file_size - head)
        stored = member.compress_type == zipfile.ZIP_STORED
        if stored and member.file_size >= MAPPED_BYTES:
            start = _start(path, member)
            room = member.file_size - head
            return _mapped(path, start + head, shape, fortran, dtype, room, what)
        data = file.read()  # to the end: this also checks the checksum
    _fits(what, shape, dtype, len(data))
    return _shaped(data, shape, fortran, dtype)


def _start(path: Path, member: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin: after its local header, whose lengths are its own."""
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        name, extra = np.frombuffer(file.read(4), "<u2").tolist()
    return member.header_offset + 30 + name + extra


def _header(what: str, file: Any, size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of an array, from the literal dictionary it begins with.

    Read by ourselves: numpy's reader tries to mend a damaged header, and warns.
    """
    start = file.read(8)
    wide = start[6:7] != b"\1"
    n_bytes = int.from_bytes(file.read(4 if wide else 2), "little")
    try:
        need(
            start[:6] == b"\x93NUMPY" and n_bytes <= _HEADER_BYTES,
            lambda: f"it begins with {start!r}.",
        )
        about = ast.literal_eval(file.read(n_bytes).decode("utf-8" if wide else "latin-1"))
        dtype, shape, fortran = about["descr"], tuple(about["shape"]), about["fortran_order"]
        need(type(dtype) is str, lambda: f"its type is {dtype!r}; plain types are read.")
        need(all(type(side) is int and side >= 0 for side in shape), lambda: f"shape {shape!r}.")
        dtype = np.dtype(dtype)
    except (ValueError, TypeError, LookupError, SyntaxError, RecursionError, MemoryError) as error:
        raise InputError(f"`{what}` ({size:,} bytes) is not an array of numpy: {error}") from None
    need(
        not dtype.hasobject,
        lambda: (
            f"`{what}` is an array of Python objects, which would have to be unpickled and could "
            "run code; it is refused. Save it as numbers or strings: `np.array(x, dtype=str)`."
        ),
    )
    need(dtype.itemsize > 0, lambda: f"`{what}` is an array of {dtype}, items of 0 bytes.")
    return shape, bool(fortran), dtype


def _fits(what: str, shape: tuple[int, ...], dtype: np.dtype, room: int) -> None:
    expected = dtype.itemsize
    for side in shape:
        expected *= side
    need(
        expected == room,
        lambda: (
            f"`{what}` says {shape} of {dtype}, {expected:,} bytes; it holds {room:,}. "
            "It was cut short, or is damaged."
        ),
    )


def _mapped(
    path: Path,
    offset: int,
    shape: tuple[int, ...],
    fortran: bool,
    dtype: np.dtype,
    room: int,
    what: str,
) -> np.ndarray:
    _fits(what, shape, dtype, room)
    if room == 0 or not shape:  # an empty file part cannot be mapped, a number need not be
        with path.open("rb") as file:
            file.seek(offset)
            return _shaped(file.read(room), shape, fortran, dtype)
    return np.memmap(path, dtype, "r", offset, shape, order="F" if fortran else "C")


def _shaped(data: bytes, shape: tuple[int, ...], fortran: bool, dtype: np.dtype) -> np.ndarray:
    # a copy of the bytes, that the array may be written to
    flat = np.frombuffer(bytearray(data), dtype)
    return flat.reshape(shape, order="F") if fortran else flat.reshape(shape)

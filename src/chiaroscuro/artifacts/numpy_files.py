"""Read `.npy` and `.npz` files of unknown origin: nothing is unpickled, sizes are checked first."""

from __future__ import annotations

import ast
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from chiaroscuro.artifacts.bounded import fits, open_regular
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["MAPPED_BYTES", "all_listed", "read_npy", "read_npz"]

MAPPED_BYTES = 64 << 20
"""A stored array from this size on is mapped, not read: its checksum then goes unchecked."""

_HEADER_BYTES = 10_000
_CHUNK = 1 << 22
_DAMAGE = (
    *(EOFError, zlib.error, RuntimeError, UnicodeError, MemoryError, OverflowError),
    *(ValueError, NotImplementedError, LookupError, struct.error),
)
"""What `zipfile` raises over damaged or unsupported archives, beside `BadZipFile`."""


def read_npy(path: str | os.PathLike) -> np.ndarray:
    """Return the array of an `.npy`, mapped from the file."""
    path = Path(path)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        shape, fortran, dtype = _header(path.name, file, size)
        start = file.tell()
        return _mapped(path, start, shape, fortran, dtype, size - start, path.name)


def read_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Return the arrays of an `.npz` by name; large uncompressed ones are mapped from the file.

    All arrays that are not mapped need to fit into `memory_limit()` together.
    """
    path = Path(path)
    with open_regular(path) as opened:
        try:
            with zipfile.ZipFile(opened) as archive:
                members = [m for m in archive.infolist() if not m.filename.endswith("/")]
                all_listed(path.name, opened, archive)
                _unique(path.name, [m.filename for m in members])
                fits(f"`{path.name}`", sum(m.file_size for m in members if not _maps(m)))
                return {m.filename.removesuffix(".npy"): _member(path, archive, m) for m in members}
        except zipfile.BadZipFile as error:
            opened.seek(0)
            start = opened.read(16)
            size = os.fstat(opened.fileno()).st_size
            raise InputError(
                f"`{path.name}` ({size:,} bytes) is not an `.npz`, or is damaged: "
                f"{error}. It begins with {start!r}."
            ) from None
        except ChiaroError:
            raise
        except _DAMAGE as error:
            raise InputError(
                f"`{path.name}` is damaged: {str(error)[:200] or type(error).__name__}."
            ) from None
        except OSError as error:
            raise ChiaroError(f"`{path}` cannot be read: {error.strerror or error}.") from None


def _maps(member: zipfile.ZipInfo) -> bool:
    return member.compress_type == zipfile.ZIP_STORED and member.file_size >= MAPPED_BYTES


def all_listed(name: str, file: BinaryIO, archive: zipfile.ZipFile) -> None:
    """Compare the number of members with the one that the archive's last record declares."""
    file.seek(-(22 + len(archive.comment)), os.SEEK_END)
    record = file.read(22)
    declared = int.from_bytes(record[10:12], "little")
    if record[:4] == b"PK\5\6" and declared != 0xFFFF:  # otherwise a 64-bit archive
        n = len(archive.infolist())
        need(
            n == declared,
            lambda: f"`{name}` declares {declared} members and lists {n}. It is damaged.",
        )


def _unique(file: str, names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        need(
            name.endswith(".npy"),
            lambda name=name: f"`{file}` holds `{_shown(name)}`, not an array.",
        )
        need(name not in seen, lambda name=name: f"`{file}` holds `{_shown(name)}` twice.")
        seen.add(name)


def _shown(name: str) -> str:
    """Return a name as one line can show it."""
    return name[:80] if name.isprintable() else repr(name[:80])[1:-1]


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    what = f"{path.name}:{member.filename}"
    with archive.open(member) as file:
        shape, fortran, dtype = _header(what, file, member.file_size)
        head = file.tell()
        room = member.file_size - head
        _declared(what, shape, dtype, room)
        if _maps(member):
            start = _start(path, member)
            return _mapped(path, start + head, shape, fortran, dtype, room, what)
        data = _filled(file, room, what)
    _declared(what, shape, dtype, len(data))
    return _shaped(data, shape, fortran, dtype)


def _filled(file: IO[bytes], size: int, what: str) -> bytearray:
    """Read to the end, which checks the checksum; refuse more than the declared size."""
    data = bytearray()
    while chunk := file.read(_CHUNK):
        data += chunk
        need(
            len(data) <= size,
            lambda: f"`{what}` holds more than the {size:,} bytes that it declares.",
        )
    return data


def _start(path: Path, member: zipfile.ZipInfo) -> int:
    """Return where a member's bytes begin: after its local header, whose lengths are its own."""
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        name, extra = np.frombuffer(file.read(4), "<u2").tolist()
    return member.header_offset + 30 + name + extra


def _header(what: str, file: Any, size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, order and type of an array, from the literal dictionary it begins with.

    Not left to numpy, whose reader tries to repair a damaged header, and warns.
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
        need(type(dtype) is str, lambda: f"its type is {str(dtype)[:60]!r}; plain types are read.")
        need(
            len(shape) <= 32 and all(type(side) is int and 0 <= side < 2**62 for side in shape),
            lambda: f"shape {str(shape)[:60]}.",
        )
        dtype = np.dtype(dtype)
    except InputError as error:
        raise InputError(f"`{what}` ({size:,} bytes) is not an array of numpy: {error}") from None
    except (
        *(ValueError, TypeError, LookupError, SyntaxError, RecursionError, MemoryError),
        OverflowError,
    ) as error:
        reason = str(error)[:200]
        raise InputError(f"`{what}` ({size:,} bytes) is not an array of numpy: {reason}") from None
    need(
        not dtype.hasobject,
        lambda: (
            f"`{what}` is an array of Python objects, which would have to be unpickled and could "
            "run code; it is refused. Save it as numbers or strings: `np.array(x, dtype=str)`."
        ),
    )
    need(dtype.itemsize > 0, lambda: f"`{what}` is an array of {dtype}, items of 0 bytes.")
    return shape, bool(fortran), dtype


def _declared(what: str, shape: tuple[int, ...], dtype: np.dtype, room: int) -> None:
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
    _declared(what, shape, dtype, room)
    if room == 0 or not shape:  # an empty file part cannot be mapped, a number need not be
        with path.open("rb") as file:
            file.seek(offset)
            return _shaped(bytearray(file.read(room)), shape, fortran, dtype)
    return np.memmap(path, dtype, "r", offset, shape, order="F" if fortran else "C")


def _shaped(data: bytearray, shape: tuple[int, ...], fortran: bool, dtype: np.dtype) -> np.ndarray:
    flat = np.frombuffer(data, dtype)  # a bytearray: the array may be written to
    return flat.reshape(shape, order="F") if fortran else flat.reshape(shape)

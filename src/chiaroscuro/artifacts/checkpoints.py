"""Checkpoints that can be trusted.

A checkpoint is a folder of three files:

    tensors.safetensors   the arrays
    state.json            everything else, and the step
    manifest.json         size and sha256 of the other two

and its name, `00007-step-00001200-<32 hexadecimal digits>`, ends in the first half of the
manifest's own sha256, so that no byte of it can change unnoticed. It is written under a temporary
name, every file and the folder fsynced, and renamed: under its final name it is complete. An older
one is removed only after the new one has been read back and verified. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from chiaroscuro.artifacts.bounded import fits, open_regular
from chiaroscuro.artifacts.files import make_folder, newer, sync, sync_folder, writing
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["CHECKPOINT_FORMAT", "Checkpoint", "Latest", "any_saved", "latest_good", "load", "save"]

CHECKPOINT_FORMAT = 1

_TENSORS, _STATE, _MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_NAME = re.compile(r"(\d{5,})-step-(\d{8,})-([0-9a-f]{32})")
_TEMPORARY = ".saving-"
_REMOVED = ".removed-"
_KINDS = {"bool", "float16", "float32", "float64"}
_KINDS |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_MANIFEST_BYTES = 10_000
_DAMAGE = (SafetensorError, ValueError, TypeError, LookupError, RecursionError, OverflowError)
"""What the libraries raise over contents that are not what we write."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Checkpoint: its step, arrays by name, and JSON state."""

    step: int
    arrays: dict[str, np.ndarray]
    state: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Latest:
    """The newest good checkpoint (None if there is none) and a sentence for each bad one."""

    path: Path | None
    checkpoint: Checkpoint | None
    bad: tuple[str, ...]


def save(
    folder: str | os.PathLike,
    step: int,
    arrays: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    keep: int = 2,
) -> Path:
    """Write a checkpoint, verify it, and only then remove those before the last `keep`.

    If anything fails, the disk being full for one, one sentence says so, nothing of the new one
    remains, and every earlier checkpoint is as it was.

    Args:
        folder: folder of all checkpoints of a run.
        step: a count that is part of the name.
        arrays: of booleans, integers and floats. Other types (bfloat16, complex) travel as the
            integers or reals of the same bits, with their name in the state:
            `chiaroscuro.models.pack` does so.
        state: nested dictionaries with string keys, lists, numbers, strings, booleans, None: what
            JSON gives back unchanged. NaN and infinity pass.
        keep: how many good ones to keep, this one included.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save(folder, 3, {"w": np.ones(2)}, {"epoch": 0})
        ...     load(path)
        Checkpoint(step=3, arrays={'w': array([1., 1.])}, state={'epoch': 0})
    """
    folder = Path(folder)
    need(
        type(step) is int and 0 <= step < 10**18,
        lambda: f"`save(step={step!r})` needs an integer from 0.",
    )
    need(type(keep) is int and keep > 0, lambda: f"`save(keep={keep!r})` needs at least 1.")
    plain = {name: _checked(name, array) for name, array in arrays.items()}
    text = _state(step, state)
    earlier = _all(folder)
    serial = max((_serial(path) for path in earlier), default=0) + 1
    kept = f"The {len(earlier)} earlier checkpoints are intact." if earlier else ""
    made: Path | None = None
    try:
        with writing(folder / f"step-{step:08d}", kept):
            make_folder(folder)
            _sweep(folder)
            made = folder / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}"
            made.mkdir()
            digest = _write(made, serial, step, plain, text)
            path = folder / _name(serial, step, digest)
            made.rename(path)
            made = path
            sync_folder(folder)
        _verified(path)
        made = None
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
    with writing(folder, f"`{path.name}` is complete."):
        for old in _beyond(earlier, keep - 1):
            # renamed first: a crash in mid-removal must not leave half of one under its name
            away = old.with_name(_REMOVED + old.name)
            old.rename(away)
            shutil.rmtree(away)
    return path


def _beyond(earlier: list[Path], keep: int) -> list[Path]:
    """Return all that are older than the last `keep` good ones,
    but for those that cannot be read.
    """
    for at in range(len(earlier), 0, -1):
        if keep == 0:
            return [path for path in earlier[:at] if _readable(path)]
        keep -= _is_good(earlier[at - 1])
    return []


def _is_good(path: Path) -> bool:
    try:
        _verified(path)
    except (ChiaroError, OSError):
        return False
    return True


def _readable(path: Path) -> bool:
    """Return whether this process may read a checkpoint; one that it may not is never removed."""
    there = [path, *(path / name for name in (_TENSORS, _STATE, _MANIFEST))]
    return all(os.access(one, os.R_OK) for one in there if one.exists())


def load(path: str | os.PathLike) -> Checkpoint:
    """Read a checkpoint of which every byte is what was written, or say what is not.

    Args:
        path: the folder, under the name it was given.
    """
    path = Path(path)
    try:
        step, contents = _verified(path, read=True)
    except OSError as error:
        raise ChiaroError(f"`{path}` cannot be read: {error.strerror or error}.") from error
    try:
        arrays = safetensors.numpy.load(contents[_TENSORS])
        state = json.loads(contents[_STATE])["state"]
    except _DAMAGE as error:
        raise _bad(path, f"its checksums agree, its contents do not: {str(error)[:200]}") from None
    if not isinstance(state, dict):
        raise _bad(path, f"its state is a {type(state).__name__}, not an object")
    # copies: safetensors gives views of read-only bytes
    return Checkpoint(step, {name: array.copy() for name, array in arrays.items()}, state)


def any_saved(folder: str | os.PathLike) -> bool:
    """Tell whether a folder holds a checkpoint whose saving ended, good or damaged since."""
    return bool(_all(Path(folder)))


def latest_good(folder: str | os.PathLike) -> Latest:
    """Return the newest checkpoint that verifies, and what is wrong with those newer than it.

    Latest is the one saved last, whatever its step. What an interrupted `save` left is not looked
    at. A checkpoint of a newer Chiaroscuro is refused, not passed over, and so is one that the
    system does not let us read: that is no damage.

    Args:
        folder: folder of all checkpoints of a run; it need not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     good = save(folder, 1, {}, {})
        ...     bad = save(folder, 2, {}, {})
        ...     _ = (bad / "state.json").write_text("{}")
        ...     latest = latest_good(folder)
        >>> latest.checkpoint.step
        1
        >>> print(latest.bad[0])
        `00002-step-00000002-...` is not a good checkpoint: `state.json` has 2 bytes; the manifest
        says 32.
    """
    bad: list[str] = []
    for path in reversed(_all(Path(folder))):
        try:
            return Latest(path, load(path), tuple(bad))
        except InputError:
            raise
        except ChiaroError as error:
            if isinstance(error.__cause__, OSError):
                raise
            bad.append(str(error))
    return Latest(None, None, tuple(bad))


# ---- writing ----


def _checked(name: str, array: Any) -> np.ndarray:
    array = np.asarray(array)
    need(
        array.dtype.name in _KINDS,
        lambda: (
            f"`save` needs arrays of booleans, integers or floats; `{name}` is {array.dtype}. Give "
            "it as the integers or reals of the same bits: `chiaroscuro.models.pack`."
        ),
    )
    need(
        isinstance(name, str) and name != "__metadata__",
        lambda: f"`save` needs names of arrays as strings; received `{name!r}`.",
    )
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _state(step: int, state: Mapping[str, Any]) -> bytes:
    _json_able(state, "state")
    whole = {"format": CHECKPOINT_FORMAT, "step": step, "state": state}
    return json.dumps(whole, sort_keys=False, separators=(",", ":")).encode()


def _json_able(value: Any, path: str) -> None:
    """Refuse what JSON would give back as something else."""
    if type(value) is dict:
        for key, item in value.items():
            need(
                type(key) is str,
                lambda key=key: f"`save` needs string keys; received `{key!r}` in `{path}`.",
            )
            _json_able(item, f"{path}.{key}")
    elif type(value) is list:
        for at, item in enumerate(value):
            _json_able(item, f"{path}[{at}]")
    else:
        need(
            value is None or type(value) in (bool, int, float, str),
            lambda: (
                f"`save` needs state that JSON gives back unchanged; `{path}` is a "
                f"`{type(value).__name__}`. `chiaroscuro.models.pack` turns nested state into it."
            ),
        )


def _write(made: Path, serial: int, step: int, arrays: dict, text: bytes) -> str:
    """Fill the temporary folder, durably; the digest of its manifest."""
    try:
        safetensors.numpy.save_file(arrays, made / _TENSORS)
    except SafetensorError as error:  # says what the system said, but is no OSError
        code = re.search(r"\(os error (\d+)\)|code: (\d+)", str(error))
        number = int(code[1] or code[2]) if code else 0
        raise OSError(number, os.strerror(number) if code else str(error)) from error
    # "rb+": Windows syncs only what is open for writing
    with (made / _TENSORS).open("rb+") as file:
        sync(file)
    _durably(made / _STATE, text)
    files = {name: _fingerprint(made / name)[0] for name in (_TENSORS, _STATE)}
    about = {"format": CHECKPOINT_FORMAT, "serial": serial, "step": step, "files": files}
    manifest = json.dumps(about, sort_keys=True, indent=1).encode()
    _durably(made / _MANIFEST, manifest)
    sync_folder(made)
    return _digest(manifest)


def _durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        sync(file)


def _fingerprint(path: Path, read: bool = False) -> tuple[dict[str, Any], bytes]:
    """Return size and sha256 of a file; with `read` also the very bytes that were hashed."""
    with _opened(path) as file:
        data = file.read() if read else b""
        digest = hashlib.sha256(data) if read else hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}, data


def _name(serial: int, step: int, digest: str) -> str:
    return f"{serial:05d}-step-{step:08d}-{digest}"


def _digest(manifest: bytes) -> str:
    return hashlib.sha256(manifest).hexdigest()[:32]


def _sweep(folder: Path) -> None:
    """Remove what interrupted saves left."""
    for left in folder.iterdir():
        if left.name.startswith((_TEMPORARY, _REMOVED)):
            shutil.rmtree(left)


# ---- reading ----


def _all(folder: Path) -> list[Path]:
    """Everything under a checkpoint's name, in the order of saving."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), key=_serial)


def _serial(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _verified(path: Path, read: bool = False) -> tuple[int, dict[str, bytes]]:
    """Return the step of a good checkpoint, with `read` also its files; otherwise why it is bad."""
    name = _NAME.fullmatch(path.name)
    if name is None:
        raise _bad(path, "its name is not the one it was given, which ends in a checksum")
    with _opened(path / _MANIFEST) as file:
        manifest = file.read(_MANIFEST_BYTES + 1)
    if _digest(manifest) != name[3] or len(manifest) > _MANIFEST_BYTES:
        raise _bad(path, f"`{_MANIFEST}` does not have the checksum that its name ends in")
    about = _declared(path, manifest)
    if path.name != _name(about["serial"], about["step"], name[3]):
        raise _bad(path, "its name is not the one it was given")
    for entry in sorted(os.listdir(path)):
        if entry not in (_MANIFEST, _TENSORS, _STATE) and not entry.startswith("."):
            raise _bad(path, f"`{entry}` is not in its manifest")
    contents = {}
    for file_name, wanted in about["files"].items():
        with _opened(path / file_name) as file:
            size = os.fstat(file.fileno()).st_size
        if size != wanted["bytes"]:
            sizes = f"{size:,} bytes; the manifest says {wanted['bytes']:,}"
            raise _bad(path, f"`{file_name}` has {sizes}")
        if read:
            fits(f"`{path / file_name}`", size)
        seen, contents[file_name] = _fingerprint(path / file_name, read)
        if seen != wanted:
            raise _bad(path, f"`{file_name}` does not have the checksum that the manifest says")
    return about["step"], contents


def _opened(path: Path) -> BinaryIO:
    """Open a regular file; a missing or special one is damage, one that may not be read is not."""
    try:
        return open_regular(path)
    except InputError:
        reason = "is missing" if not path.exists() else "is not a regular file"
        raise _bad(path.parent, f"`{path.name}` {reason}") from None


def _declared(path: Path, manifest: bytes) -> dict[str, Any]:
    """Return the manifest if it is as we write it; its checksum does not say who wrote it."""
    try:
        about = json.loads(manifest)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"`{_MANIFEST}` is not JSON: {error}") from None
    if not isinstance(about, dict):
        raise _bad(path, f"`{_MANIFEST}` holds a {type(about).__name__}, not an object")
    newer(f"`{path.name}`", about.get("format"), CHECKPOINT_FORMAT)
    counts = [about.get("serial"), about.get("step")]
    if not all(type(count) is int and 0 <= count < 10**18 for count in counts):
        raise _bad(path, f"`{_MANIFEST}` has serial and step {str(counts)[:60]}")
    files = about.get("files")
    if not isinstance(files, dict) or set(files) != {_TENSORS, _STATE}:
        named = sorted(map(str, files))[:4] if isinstance(files, dict) else files
        raise _bad(path, f"its manifest names {str(named)[:80]}, not `{_TENSORS}` and `{_STATE}`")
    for file_name, wanted in files.items():
        known = isinstance(wanted, dict) and set(wanted) == {"bytes", "sha256"}
        if not known or type(wanted["bytes"]) is not int or type(wanted["sha256"]) is not str:
            raise _bad(path, f"`{_MANIFEST}` does not give size and sha256 of `{file_name}`")
    return about


def _bad(path: Path, why: str) -> ChiaroError:
    return ChiaroError(f"`{path.name}` is not a good checkpoint: {why}.")

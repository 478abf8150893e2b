"""Read files of weights in a way that cannot run code."""

from __future__ import annotations

import os
import pickle
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from chiaroscuro.artifacts.bounded import fits, open_regular
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["load_foreign"]

_INSIDE = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "net")
_PREFIXES = ("module.", "_orig_mod.")  # of DistributedDataParallel and torch.compile
_DAMAGE = (
    *(SafetensorError, RuntimeError, EOFError, ValueError, LookupError, OSError, TypeError),
    *(AttributeError, ImportError, MemoryError, OverflowError, AssertionError, struct.error),
)
"""What torch and safetensors raise over damaged files; a RecursionError is a RuntimeError."""

_DEPTH = 4  # of dictionaries inside dictionaries


def load_foreign(path: str | os.PathLike) -> dict[str, Tensor]:
    """Return the tensors of a `.pt`, `.pth`, `.bin` or `.safetensors` file, by name, on the CPU.

    A pickle is read with `weights_only=True`: tensors and plain containers, and nothing that could
    run. A checkpoint that keeps its weights under `state_dict` or `model` is opened to them, or to
    their running average under `state_dict_ema` or `model_ema`, as timm does. One that keeps
    several networks (`teacher` and `student`) has the network's name in front of each tensor's,
    and the prefix of a data-parallel or compiled model is removed.

    Args:
        path: the file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save({"state_dict": {"module.w": torch.ones(2)}}, f"{folder}/a.pt")
        ...     load_foreign(f"{folder}/a.pt")
        {'w': tensor([1., 1.])}
    """
    path = Path(path)
    need(path.is_file(), lambda: f"`load_foreign` needs a file; there is none at `{path}`.")
    size = _declared(path)
    try:
        if path.suffix == ".safetensors":
            return _without_prefix(load_file(path))
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it holds a `{named[1]}`." if named else _line(error)
        raise InputError(
            f"`{path.name}` ({size:,} bytes) is not a file of plain tensors, and nothing else is "
            f"read, for it could run code: {reason} Save its `state_dict()` again."
        ) from None
    except _DAMAGE as error:
        raise ChiaroError(
            f"`{path.name}` ({size:,} bytes) cannot be read as weights: {_line(error)}"
        ) from None
    return _unwrap(path.name, content)


def _declared(path: Path) -> int:
    """Return the size of a file that can be read within the memory limit, unpacked too."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        fits(f"`{path}`", size)
        try:
            if zipfile.is_zipfile(file):
                with zipfile.ZipFile(file) as archive:
                    fits(f"`{path}`, unpacked,", sum(m.file_size for m in archive.infolist()))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
            if isinstance(error, InputError):
                raise
            raise ChiaroError(
                f"`{path.name}` ({size:,} bytes) cannot be read as weights: {_line(error)}"
            ) from None
    return size


def _unwrap(name: str, content: Any) -> dict[str, Tensor]:
    for key in _INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    weights = dict(_flat(content, _DEPTH)) if isinstance(content, Mapping) else {}
    need(
        bool(weights),
        lambda: (
            f"`load_foreign` needs tensors by name; `{name}` holds a `{type(content).__name__}`"
            + (
                f" with {len(content)} entries: {', '.join(map(str, list(content)[:5]))}."
                if isinstance(content, Mapping)
                else "."
            )
        ),
    )
    return _without_prefix(weights)


def _flat(content: Mapping, depth: int) -> Iterator[tuple[str, Tensor]]:
    for key, value in content.items():
        if isinstance(value, Tensor):
            yield str(key), value
        elif isinstance(value, Mapping) and depth:
            yield from ((f"{key}.{name}", inner) for name, inner in _flat(value, depth - 1))


def _without_prefix(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    for prefix in _PREFIXES:
        if all(key.startswith(prefix) for key in weights):
            weights = {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights


def _line(error: BaseException) -> str:
    """Return the first line of another library's message."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    text = " ".join(text.split())[:200]
    return text if text.endswith(".") else f"{text}."

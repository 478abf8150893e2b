"""Weights from elsewhere, read in a way that cannot run code."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["load_foreign", "put"]

_INSIDE = ("state_dict", "model_state_dict", "model", "net")
_PREFIXES = ("module.", "_orig_mod.")  # of DistributedDataParallel and torch.compile


def load_foreign(path: str | os.PathLike) -> dict[str, Tensor]:
    """The tensors of a `.pt`, `.pth`, `.bin` or `.safetensors` file, by name, on the CPU.

    A pickle is read with `weights_only=True`: tensors and plain containers, and nothing that could
    run. A checkpoint that keeps its weights under `state_dict` or `model` is opened to them, and
    the prefix of a data-parallel or compiled model is taken off.

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
    size = path.stat().st_size
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"`{path.name}` ({size:,} bytes) is not a file of plain tensors, and nothing else is "
            f"read, for it could run code: {_line(error)} Save its `state_dict()` again."
        ) from None
    except (SafetensorError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        raise ChiaroError(
            f"`{path.name}` ({size:,} bytes) cannot be read as weights: {_line(error)}"
        ) from None
    return _unwrap(path.name, found)


def _unwrap(name: str, found: Any) -> dict[str, Tensor]:
    for key in _INSIDE:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    need(
        isinstance(found, Mapping) and any(isinstance(value, Tensor) for value in found.values()),
        lambda: (
            f"`load_foreign` needs tensors by name; `{name}` holds a `{type(found).__name__}`"
            + (
                f" with {len(found)} entries: {', '.join(map(str, list(found)[:5]))}."
                if isinstance(found, Mapping)
                else "."
            )
        ),
    )
    weights = {str(key): value for key, value in found.items() if isinstance(value, Tensor)}
    for prefix in _PREFIXES:
        if all(key.startswith(prefix) for key in weights):
            weights = {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights


def put(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load weights into a module that has exactly these, or say how they differ."""
    ours = module.state_dict()
    missing = sorted(ours.keys() - weights.keys())
    extra = sorted(weights.keys() - ours.keys())
    shapes = [n for n in ours if n in weights and ours[n].shape != weights[n].shape]
    need(
        not (missing or extra or shapes),
        lambda: (
            f"`{type(module).__name__}` needs its own {len(ours)} tensors; {len(missing)} are "
            f"missing, {len(extra)} are unknown and {len(shapes)} differ in shape, the first is "
            f"`{(missing + extra + shapes)[0]}`."
        ),
    )
    module.load_state_dict(dict(weights))


def _line(error: BaseException) -> str:
    """The first line of another library's message."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    text = " ".join(text.split())[:200]
    return text if text.endswith(".") else f"{text}."

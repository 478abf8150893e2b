"""Nested state with tensors in it, as arrays and JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import ChiaroError, InputError

__all__ = ["pack", "unpack"]

# torch types that numpy or the file format lack travel as integers or reals of the same bits
_CARRIERS = {torch.bfloat16: torch.uint16}
_CARRIERS |= {
    getattr(torch, name): torch.uint8
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}
_PAIRS = (torch.complex64, torch.complex128)
_TAG = "$"


def pack(tree: Any) -> tuple[dict[str, np.ndarray], Any]:
    """Return arrays by name, and a JSON structure that says where each belongs.

    Takes dictionaries with any plain keys, lists, tuples, tensors and arrays of any type, numbers,
    strings, booleans, None: what `state_dict()`, optimisers and random states are made of. `unpack`
    gives the same back, types included, bit by bit.

    Args:
        tree: the state.

    Example:
        >>> arrays, state = pack({"step": 3, "moments": (torch.ones(2, dtype=torch.bfloat16),)})
        >>> arrays
        {'moments.0': array([16256, 16256], dtype=uint16)}
        >>> unpack(arrays, state)
        {'step': 3, 'moments': (tensor([1., 1.], dtype=torch.bfloat16),)}
    """
    arrays: dict[str, np.ndarray] = {}
    return arrays, _pack(tree, "", arrays)


def _pack(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Tensor | np.ndarray):
        name = path or "value"
        while name in arrays:  # {"a.b": x, "a": {"b": y}}
            name += "'"
        if isinstance(value, Tensor):
            arrays[name] = _array(value)
            return {_TAG: "tensor", "name": name, "dtype": str(value.dtype).removeprefix("torch.")}
        if value.dtype.kind not in "biuf":
            raise InputError(f"`pack` has no form for an array of {value.dtype}, at `{name}`.")
        arrays[name] = np.array(value, dtype=value.dtype.newbyteorder("="))
        return {_TAG: "array", "name": name}
    under = f"{path}." if path else ""
    if isinstance(value, list | tuple):
        items = [_pack(item, f"{under}{at}", arrays) for at, item in enumerate(value)]
        return items if type(value) is list else {_TAG: "tuple", "items": items}
    if isinstance(value, Mapping):
        pairs = [(key, _pack(item, f"{under}{key}", arrays)) for key, item in value.items()]
        if all(type(key) is str and key != _TAG for key, _ in pairs):
            return dict(pairs)
        return {_TAG: "dict", "items": [[_pack(k, path, arrays), item] for k, item in pairs]}
    raise InputError(
        f"`pack` takes dictionaries, lists, tuples, tensors, arrays, numbers, strings and None; "
        f"received `{type(value).__name__}` at `{path or 'the top'}`."
    )


def _array(tensor: Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if tensor.dtype in _PAIRS:
        tensor = torch.view_as_real(tensor)
    return tensor.clone().view(_CARRIERS.get(tensor.dtype, tensor.dtype)).numpy()


def unpack(arrays: Mapping[str, np.ndarray], state: Any) -> Any:
    """Return what `pack` was given; tensors come back on the CPU, apart from the arrays' memory.

    Args:
        arrays, state: as `pack` returned them, or as JSON and a file of arrays gave them back.
    """
    if isinstance(state, list):
        return [unpack(arrays, item) for item in state]
    if not isinstance(state, dict):
        return state
    match state.get(_TAG):
        case None:
            return {key: unpack(arrays, item) for key, item in state.items()}
        case "tuple":
            return tuple(unpack(arrays, item) for item in state["items"])
        case "dict":
            return {unpack(arrays, k): unpack(arrays, item) for k, item in state["items"]}
        case "array":
            return np.array(arrays[state["name"]])
        case "tensor":
            dtype = getattr(torch, state["dtype"])
            array = np.array(arrays[state["name"]])
            if dtype in _PAIRS:
                return torch.from_numpy(array.view(state["dtype"])[..., 0])
            return torch.from_numpy(array).view(dtype)
    raise ChiaroError(f"`unpack` does not know a `{state[_TAG]}`; was it written by `pack`?")

"""What the layers inside a model say."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from chiaroscuro.errors import InputError, need

__all__ = ["features"]


def features(model: nn.Module, x: Tensor, layers: Iterable[str]) -> dict[str, Tensor]:
    """Return the outputs of the named submodules for the batch `x`, in one forward pass.

    The outputs are copies, safe from a later in-place relu, with their gradient if one is being
    recorded. A submodule that runs several times gives its last output. No hook stays behind, also
    when the model fails. The model's mode (`train` or `eval`) is left as it is.

    Args:
        model: any module.
        x: a batch it takes.
        layers: names as in `model.named_modules()`; "" is the model itself.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True), nn.Linear(5, 2))
        >>> {name: tuple(h.shape) for name, h in features(model, torch.ones(4, 3), "02").items()}
        {'0': (4, 5), '2': (4, 2)}
    """
    modules, layers = dict(model.named_modules()), list(layers)
    for name in layers:
        if name not in modules:
            close = difflib.get_close_matches(str(name), modules, n=1, cutoff=0.0)
            raise InputError(
                f"`features(model, x, layers)` needs names among the {len(modules)} modules of "
                f"`{type(model).__name__}`; received `{name}`; did you mean `{close[0]}`?"
            )
    outputs: dict[str, Any] = {}
    handles = []
    try:
        for name in layers:
            handles.append(modules[name].register_forward_hook(_keep(outputs, name)))  # noqa: PERF401
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    for name in layers:
        need(
            isinstance(outputs.get(name), Tensor),
            lambda name=name: (
                f"`features(model, x, layers)` needs layers that run and return one tensor; "
                f"`{name}` returned `{type(outputs[name]).__name__}`."
                if name in outputs
                else f"`features(model, x, layers)`: `{name}` did not run on this batch."
            ),
        )
    return {name: outputs[name] for name in layers}


def _keep(outputs: dict[str, Any], name: str) -> Any:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        outputs[name] = output.clone() if isinstance(output, Tensor) else output

    return hook

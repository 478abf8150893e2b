"""Build networks of other libraries from their notation, without the weights they started from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from chiaroscuro.models.adapter import Adapter, from_timm, from_torchvision, from_transformers
from chiaroscuro.models.model import Model

__all__ = ["fresh_calls"]


def fresh_calls(folder: str | os.PathLike | None = None) -> dict[str, Callable[..., Any]]:
    """Return the calls of a notation that read weights, each drawing fresh weights instead.

    Args:
        folder: with the `config.json` of a model of transformers; None is that of the notation.
    """

    def transformers(name: str, pool: str = "mean", **_: Any) -> Adapter:
        return from_transformers(name if folder is None else os.fspath(folder), pool, fresh=True)

    def weighted(model: Model, *_: Any, **__: Any) -> Model:
        return model

    return {
        "from_timm": _unread(from_timm),
        "from_torchvision": _unread(from_torchvision),
        "from_transformers": transformers,
        "from_weights": weighted,
    }


def _unread(call: Callable[..., Adapter]) -> Callable[..., Adapter]:
    def fresh(
        weights: Any = None, partial: bool = False, prefix: str | None = None, **given: Any
    ) -> Adapter:
        return call(**given)

    return fresh

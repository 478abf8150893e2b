"""What ranks tell each other about their input before they share it, and whether it fits together.

Nothing here communicates: `distributed` sends the headers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chiaroscuro.errors import need
from chiaroscuro.objectives import Objective
from chiaroscuro.objectives.objective import require_labels, require_views

__all__ = [
    "CALL",
    "DTYPES",
    "Header",
    "agree",
    "alike",
    "described",
    "dtype_name",
    "header",
    "whole_number",
]

CALL = "distributed_loss(objective, z1, z2)"
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
"""What can travel; a header names a type by its place here."""
_DRIFT = 1e-4
"""Sums of an objective's parameters further apart than this are no longer rounding."""


class Header(NamedTuple):
    """What a rank tells the others about its input; all zero from one that refuses it."""

    n: float = 0
    d: float = 0
    z1: float = 0
    """Index of the dtype, from 1; 0 if there is none."""
    z2: float = 0
    labels: float = 0
    queue: float = 0
    """Rows, from 1; 0 if there is none."""
    enabled: float = 0
    """Whether gradients are recorded at all."""
    z1_wants: float = 0
    z2_wants: float = 0
    """Whether a view requires its gradient."""
    parameters: float = 0
    """The sum of the objective's parameters."""


def whole_number(x: float) -> str:
    """Return a count, as a header holds it."""
    return f"{x:.0f}"


def _truth(x: float) -> str:
    return str(bool(x))


def dtype_name(index: float) -> str:
    """Return a dtype, as a header holds it."""
    return str(DTYPES[int(index) - 1]).removeprefix("torch.") if index else "none"


def _rows(count: float) -> str:
    return f"{count - 1:.0f} rows" if count else "none"


_SAME: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("d", "the dimension", whole_number),
    ("z1", "the dtype of `z1`", dtype_name),
    ("z2", "the dtype of `z2`", dtype_name),
    ("labels", "whether there are `labels`", _truth),
    ("queue", "the queue", _rows),
    ("enabled", "`torch.is_grad_enabled()`", _truth),
)
"""Fields of a header that all ranks share, what they are, and how one is shown."""


def header(
    objective: Objective,
    z1: Tensor,
    z2: Tensor | None,
    labels: Tensor | None,
    queue: Tensor | None,
) -> Header:
    """Return what this rank has, checked as far as one can without the others."""
    require_views(CALL, z1, z2, queue)
    require_labels(CALL, labels, len(z1))
    for name, z in (("z1", z1), ("z2", z2), ("labels", labels), ("queue", queue)):
        need(
            z is None or z.dtype in DTYPES,
            lambda z=z, name=name: (
                f"`{CALL}` needs types that ranks can exchange; received `{name}` of {z.dtype}."
            ),
        )
    enabled = torch.is_grad_enabled()
    return Header(
        n=len(z1),
        d=z1.shape[1],
        z1=1 + DTYPES.index(z1.dtype),
        z2=0 if z2 is None else 1 + DTYPES.index(z2.dtype),
        labels=labels is not None,
        queue=0 if queue is None else 1 + len(queue),
        enabled=enabled,
        z1_wants=enabled and z1.requires_grad,
        z2_wants=enabled and z2 is not None and z2.requires_grad,
        parameters=sum(
            float(p.detach().double().sum())
            for p in objective.parameters()
            if p.device.type == "cpu"  # an accelerator would have to be waited for
        ),
    )


def agree(headers: list[Header]) -> None:
    """Refuse what differs from rank to rank and must not, naming who has which."""
    for field, what, show in _SAME:
        alike(CALL, what, [getattr(h, field) for h in headers], show)
    for name in ("z1", "z2"):
        wants = [getattr(h, f"{name}_wants") if h.n else None for h in headers]
        alike(CALL, f"`{name}.requires_grad`", wants, _truth)
    least = min(h.parameters for h in headers)
    drift = max(h.parameters for h in headers) - least
    alike(
        CALL,
        "the parameters of the objective, such as its temperature,",
        [h.parameters if drift > _DRIFT * max(1.0, abs(least)) else 0.0 for h in headers],
        lambda x: f"a sum of {x:.6g}",
        " Average their gradients before each step: `average_gradients(objective.parameters())`.",
    )


def alike(
    call: str,
    what: str,
    values: Sequence[float | None],
    show: Callable[[Any], str],
    advice: str = "",
) -> None:
    """Refuse values that differ between ranks (None counts for nothing), naming who has which."""
    holders: dict[float, list[int]] = {}
    for r, value in enumerate(values):
        if value is not None:
            holders.setdefault(value, []).append(r)
    need(
        len(holders) <= 1,
        lambda: (
            f"`{call}` needs {what} to be the same on every rank; received "
            + ", ".join(
                f"{show(value)} on rank{'s' if len(who) > 1 else ''} {', '.join(map(str, who))}"
                for value, who in holders.items()
            )
            + f".{advice}"
        ),
    )


def described(x: object) -> str:
    """Return the dtype and shape of a tensor, or what it is instead."""
    return f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else f"type {type(x).__name__}"

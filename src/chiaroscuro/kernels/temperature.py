"""Temperatures: a number, one number per dimension, or learnable. `tau` always divides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need, number
from chiaroscuro.numerics import narrow_for, readable
from chiaroscuro.spec import notation, same

__all__ = ["Learnable", "Tau", "Temperature", "checked", "checked_pairs", "rate_and_scale"]

SMALLEST, LARGEST = 1e-30, 1e30
"""Temperatures whose reciprocal still leaves room in float32."""


class Temperature(nn.Module, ABC):
    """A temperature that changes while training goes on (abstract)."""

    init: float | tuple[float, ...]
    """Where it starts: a number, or one per dimension."""

    @abstractmethod
    def value(self) -> Tensor:
        """The temperature now: a number or (d,)."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        narrow_for(self, fn)
        return super()._apply(fn, recurse)

    def __repr__(self) -> str:
        return notation(self)

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    __hash__ = object.__hash__  # nn.Module needs identity here; equality is by value


class Learnable(Temperature):
    """Trainable temperature, positive by construction.

        tau = least + (init - least) exp(log_ratio),   log_ratio trained, 0 at the start

    The floor `least` replaces the usual clamp of CLIP's logit scale (1/tau <= 100): a clamp has
    gradient zero beyond it and can hold a temperature for ever, this approaches it smoothly.
    Give `init` as a list for one learnable temperature per dimension.

    Relations: `Learnable(init)` before any step equals the plain number `init`.

    Args:
        init: where training starts; CLIP uses 0.07 [radford2021clip, Sec. 2.5].
        least: tau stays above this; 0.01 is CLIP's cap of 100 on 1/tau.
        log_ratio: how far training has come, as read back from a notation.

    References:
        radford2021clip

    Example:
        >>> Learnable(0.07, least=0.01)
        Learnable(init=0.07, least=0.01, log_ratio=0.0)
        >>> round(Learnable(0.07, least=0.01).value().item(), 6)
        0.07
    """

    def __init__(
        self,
        init: float | Sequence[float],
        least: float = 0.0,
        log_ratio: float | Sequence[float] = 0.0,
    ):
        super().__init__()
        self.init = checked("Learnable", "init", init)
        values = self.init if isinstance(self.init, tuple) else (self.init,)
        self.least = number("Learnable", "least", least)
        need(
            self.least < min(values),
            lambda: (
                f"`Learnable(init, least)` needs `least < init`; received "
                f"`least={least}` and `init={min(values)}`. Start above the floor."
            ),
        )
        exact = torch.as_tensor(log_ratio, dtype=torch.float64)
        need(
            bool(exact.isfinite().all()),
            lambda: f"`Learnable(log_ratio)` needs finite numbers; received {log_ratio}.",
        )
        start = exact.float() if torch.equal(exact.float().double(), exact) else exact
        need(
            start.ndim == 0 or start.shape == (len(values),),
            lambda: (
                f"`Learnable(init, log_ratio)` needs one `log_ratio` per `init`; received "
                f"{tuple(start.shape)} for {len(values)} values."
            ),
        )
        shape = (len(values),) if isinstance(self.init, tuple) else ()
        self.log_ratio = nn.Parameter(start.expand(shape).clone())

    def value(self) -> Tensor:
        """The temperature now, as a tensor that carries the gradient."""
        wide = torch.float64 if self.log_ratio.device.type == "cpu" else self.log_ratio.dtype
        init: float | Tensor = (
            self.init
            if isinstance(self.init, float)
            else (torch.tensor(self.init, dtype=wide).to(self.log_ratio.device, non_blocking=True))
        )
        above = (init - self.least if self.least else init) * self.log_ratio.to(wide).exp()
        return above + self.least if self.least else above


Tau = float | Sequence[float] | Temperature


def checked(call: str, name: str, tau: object) -> float | tuple[float, ...]:
    """A fixed temperature as a float or a tuple of floats; a sentence if it is neither."""
    plain: Any = tau.tolist() if hasattr(tau, "tolist") else tau
    numbers = list(plain) if isinstance(plain, (list, tuple)) else [plain]
    for k, x in enumerate(numbers):
        place = f" at dimension {k}" if len(numbers) > 1 else ""
        need(
            isinstance(x, (int, float)) and not isinstance(x, bool),
            lambda x=x, place=place: (
                f"`{call}({name}={x!r})` needs a number, one number per "
                f"dimension, or `Learnable(...)`; received `{type(x).__name__}`{place}."
            ),
        )
        need(
            SMALLEST <= x <= LARGEST,
            lambda x=x, place=place: (
                f"`{call}({name}={x})` needs `{name} > 0`, from {SMALLEST:g} to {LARGEST:g}; "
                f"received `{x}`{place}. `tau` divides; if your paper writes a scale `s` that "
                "multiplies, pass `tau=1/s`."
            ),
        )
    need(len(numbers) > 0, f"`{call}({name}=[])` needs at least one number; received none.")
    return tuple(map(float, numbers)) if isinstance(plain, (list, tuple)) else float(plain)


def checked_pairs(call: str, d: int, z1: Tensor, z2: Tensor) -> None:
    """A sentence unless z1 and z2 are pairs (n, d) of finite numbers, where they are `readable`."""
    need(
        z1.shape == z2.shape and z1.ndim == 2 and len(z1) > 0 and z1.shape[1] == d,
        lambda: (
            f"`{call}.observe(z1, z2)` needs pairs (n, {d}); received {tuple(z1.shape)} and "
            f"{tuple(z2.shape)}."
        ),
    )
    if not readable(z1, z2):
        return
    bad = lambda: int((~torch.isfinite(z1) | ~torch.isfinite(z2)).any(dim=1).sum())
    need(
        bool(torch.isfinite(z1).all() and torch.isfinite(z2).all()),
        lambda: (
            f"`{call}.observe(z1, z2)` needs finite numbers; {bad()} of {len(z1)} pairs are not. "
            "A running mean would keep them."
        ),
    )


def rate_and_scale(
    call: str, tau: float | tuple[float, ...] | Temperature, degree: float, like: Tensor
) -> tuple[float | Tensor, Tensor | None]:
    """Split tau so that log k(z, w) = rate * l(z * scale, w * scale) with l of the given degree.

    One temperature is all rate and no scale. One per dimension is relative to the smallest, so
    that tau_k^(-1/degree) cannot overflow for small degrees.
    """
    d = like.shape[1]
    if isinstance(tau, float):
        return 1 / tau, None
    if isinstance(tau, tuple) and len(tau) == d and readable(like):
        return _fixed(tau, degree, like.dtype)
    if isinstance(tau, tuple):
        values = torch.tensor(tau, dtype=like.dtype).to(like.device, non_blocking=True)
    else:
        values = tau.value().to(dtype=like.dtype, device=like.device)
        if values.ndim == 0:
            return values.reciprocal(), None
    need(
        len(values) == d,
        lambda: (
            f"`{call}(tau)` needs one temperature, or one per dimension; received "
            f"{len(values)} temperatures for {d} dimensions."
        ),
    )
    smallest = values.detach().amin()
    if readable(smallest):
        return 1 / float(smallest), (values / float(smallest)).pow(-1 / degree)
    return smallest.reciprocal(), (values / smallest).pow(-1 / degree)


@lru_cache(maxsize=64)
def _fixed(tau: tuple[float, ...], degree: float, dtype: torch.dtype) -> tuple[float, Tensor]:
    """The rate and the scale of temperatures that stay, made once."""
    with torch.inference_mode(False):
        values = torch.tensor(tau, dtype=dtype)
        smallest = float(values.amin())
        return 1 / smallest, (values / smallest).pow(-1 / degree)

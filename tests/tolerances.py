"""How close is equal: one table by dtype. Whoever loosens it says by how much and why."""

import torch

__all__ = ["EPS", "TOLERANCE", "close", "loosened"]

TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 1e-5,
    torch.bfloat16: 2.0**-8,
    torch.float16: 2.0**-11,
}
"""Relative to the largest entry of what is expected, and at least to 1."""

EPS = 2.0**-23
"""Spacing of float32 at 1."""

LOOSENED = {
    "logits over tau": lambda tau: 1e-5 + 4 * EPS / tau,
}
"""The reasons for which a tolerance may be wider, and what it is then.

logits over tau: a float32 similarity of size 1 is known to eps, so a logit to eps / tau.
"""


def loosened(reason: str, *numbers: float) -> float:
    """The tolerance that goes with a reason."""
    return LOOSENED[reason](*numbers)


def close(actual, expected, tolerance: float | None = None, what: str = "value") -> None:
    """Fail unless actual equals expected to the tolerance of actual's own dtype."""
    actual = torch.as_tensor(actual, dtype=getattr(actual, "dtype", torch.float64)).detach()
    expected = torch.as_tensor(expected, dtype=torch.float64).detach()
    tolerance = TOLERANCE[actual.dtype] if tolerance is None else tolerance
    assert actual.shape == expected.shape, f"{what}: {actual.shape} is not {expected.shape}"
    if actual.numel() == 0:
        return
    assert torch.isfinite(actual).all(), f"{what} is not finite: {actual}"
    scale = max(1.0, float(expected.abs().max()))
    error = float((actual.double() - expected).abs().max()) / scale
    assert error <= tolerance, (
        f"{what}: error {error:.3g} exceeds {tolerance:.3g} (scale {scale:.3g})"
    )

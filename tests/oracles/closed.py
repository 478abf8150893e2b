"""Losses that can be computed with pencil and paper, for each choice of negatives."""

from math import cos, exp, log, pi

__all__ = ["antipodal", "circle", "collapsed", "orthonormal", "simplex"]


def collapsed(negatives: str, n: int, queue: int = 0) -> float:
    """All points equal: log of the number of candidates, for any kernel."""
    count = {"AllButSelf": 2 * n - 1, "AllButPair": 2 * n - 2, "OtherView": n, "SameView": n}
    count["OnlyPositive"] = 1
    return log(count[negatives] + queue)


def orthonormal(negatives: str, n: int, tau: float) -> float:
    """Both views are the same n orthonormal rows, compared by cosine."""
    return simplex(negatives, n, tau, between=0.0)


def simplex(negatives: str, n: int, tau: float, between: float) -> float:
    """Views agree, and distinct samples all have the cosine `between`."""
    far = exp((between - 1) / tau)
    return {
        "AllButSelf": log(1 + (2 * n - 2) * far),
        "AllButPair": log((2 * n - 2) * far),
        "OtherView": log(1 + (n - 1) * far),
        "SameView": log(1 + (n - 1) * far),
        "OnlyPositive": 0.0,
    }[negatives]


def antipodal(negatives: str, n: int, tau: float) -> float:
    """Each view is one point, the two opposite each other: the worst that alignment can be."""
    own, other = exp(2 / tau), 1.0  # relative to the positive
    return {
        "AllButSelf": log((n - 1) * own + n * other),
        "AllButPair": log((n - 1) * own + (n - 1) * other),
        "OtherView": log(n * other),
        "SameView": log((n - 1) * own + other),
        "OnlyPositive": log(other),
    }[negatives]


def circle(n: int, tau: float) -> float:
    """Generalised loss, Psi = log(1+t) and eta = exp(-t/tau), of n even points on the circle."""
    return log(1 + sum(exp((cos(2 * pi * k / n) - 1) / tau) for k in range(n)) / n)

"""The SimCLR recipe once more, in plain loops that numba compiles: for where no C compiler is.

The loops are those of native.c. They run as ordinary Python too, if you have the time.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from functools import cache
from typing import Any

import numpy as np

__all__ = ["COLUMNS", "available", "kernel", "loops"]

COLUMNS = (
    *("top", "left", "height", "width", "flip"),
    *("jitter", "order", "brightness", "contrast", "saturation", "hue"),
    *("grayscale", "sigma", "solarise"),
)
"""The columns of the parameters, in the order in which `loops` takes them."""


@cache
def available() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


@cache
def kernel() -> Any:
    """`loops`, compiled; the first call takes some seconds unless numba's cache has it."""
    numba = importlib.import_module("numba")
    return numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=True)(loops)


def loops(
    images: np.ndarray, columns: Any, recipe: Any, gain: np.ndarray, offset: np.ndarray, out: Any
) -> None:
    """Fill `out`, float32 or uint8, with the views of uint8 pictures (n, c, h, w)."""
    top, left, height, width, flip = columns[0:5]
    jitter, order, brightness, contrast, saturation, hue = columns[5:11]
    grayscale, sigmas, solarise = columns[11:14]
    size, window, antialias, threshold = recipe
    n, channels = images.shape[0], images.shape[1]
    zero, one, unit = np.float32(0), np.float32(1), np.float32(1 / 255)
    red, green, blue = np.float32(0.2989), np.float32(0.587), np.float32(0.114)
    half = window // 2
    x = np.zeros((channels, size, size), dtype=np.float32)
    work = np.zeros((size + 2 * half, size), dtype=np.float32)
    line = np.zeros(size + 2 * half, dtype=np.float32)
    for i in range(n):
        # resize: columns of pixels first, then rows
        most = max(height[i], width[i])
        row = np.zeros(width[i], dtype=np.float32)
        room = int(2 * (max(most / size, 1.0) + 1)) + 1
        start = np.zeros((2, size), dtype=np.int64)
        stop = np.zeros((2, size), dtype=np.int64)
        weights = np.zeros((2, size, room), dtype=np.float32)
        for side in range(2):
            source = height[i] if side == 0 else width[i]
            scale = source / size
            reach = scale if antialias and scale > 1 else 1.0
            for j in range(size):
                centre = scale * (j + 0.5)
                at = size - 1 - j if side == 1 and flip[i] else j
                first = max(0, math.floor(centre - reach + 0.5))
                last = min(source, math.floor(centre + reach + 0.5))
                start[side, at], stop[side, at] = first, last
                total = 0.0
                for k in range(first, last):
                    total += max(0.0, 1 - abs(k + 0.5 - centre) / reach)
                for k in range(first, last):
                    weight = max(0.0, 1 - abs(k + 0.5 - centre) / reach) / total
                    weights[side, at, k - first] = np.float32(weight)
        for c in range(channels):
            for y in range(size):
                row[:] = zero
                for k in range(start[0, y], stop[0, y]):
                    w = weights[0, y, k - start[0, y]] * unit
                    for u in range(width[i]):
                        row[u] += w * np.float32(images[i, c, top[i] + k, left[i] + u])
                for v in range(size):
                    total32 = zero
                    for k in range(start[1, v], stop[1, v]):
                        total32 += weights[1, v, k - start[1, v]] * row[k]
                    x[c, y, v] = total32

        # colour
        for place in range(4 if jitter[i] else 0):
            which = order[i, place]
            if which <= 1:
                factor, rest = brightness[i], zero
                if which == 1:
                    factor, mean = contrast[i], 0.0
                    for y in range(size):
                        for v in range(size):
                            if channels == 3:
                                mean += red * x[0, y, v] + green * x[1, y, v] + blue * x[2, y, v]
                            else:
                                mean += x[0, y, v]
                    rest = (one - factor) * np.float32(mean / (size * size))
                for c in range(channels):
                    for y in range(size):
                        for v in range(size):
                            x[c, y, v] = min(max(factor * x[c, y, v] + rest, zero), one)
            elif channels == 3 and which == 2:
                factor = saturation[i]
                for y in range(size):
                    for v in range(size):
                        shade = red * x[0, y, v] + green * x[1, y, v] + blue * x[2, y, v]
                        rest = (one - factor) * shade
                        for c in range(3):
                            x[c, y, v] = min(max(factor * x[c, y, v] + rest, zero), one)
            elif channels == 3:
                for y in range(size):
                    for v in range(size):
                        r, g, b = x[0, y, v], x[1, y, v], x[2, y, v]
                        high, low = max(r, g, b), min(r, g, b)
                        span = high - low
                        over = one / (span if span > zero else one)
                        h = np.float32(4) + (r - g) * over
                        h = np.float32(2) + (b - r) * over if high == g else h
                        h = (g - b) * over if high == r else h
                        h += np.float32(6) * hue[i]
                        for c in range(3):
                            k6 = h + np.float32(5 - 2 * c)
                            k6 -= np.float32(6) * np.float32(math.floor(k6 / np.float32(6)))
                            k6 = max(min(k6, np.float32(4) - k6, one), zero)
                            x[c, y, v] = min(max(high - span * k6, zero), one)
        if grayscale[i] and channels == 3:
            for y in range(size):
                for v in range(size):
                    shade = red * x[0, y, v] + green * x[1, y, v] + blue * x[2, y, v]
                    x[0, y, v] = x[1, y, v] = x[2, y, v] = shade

        # blur: rows first, then columns of pixels; reflected at the border
        if sigmas[i] > 0 and window > 1:
            bell = np.zeros(window, dtype=np.float64)
            for j in range(window):
                bell[j] = math.exp(-0.5 * (j - half) ** 2 / float(sigmas[i]) ** 2)
            bell32 = (bell / bell.sum()).astype(np.float32)
            for c in range(channels):
                for y in range(-half, size + half):
                    source = abs(y) if y < size else 2 * (size - 1) - y
                    for v in range(size):
                        line[v + half] = x[c, source, v]
                    for j in range(1, half + 1):
                        line[half - j] = line[half + j]
                        line[half + size - 1 + j] = line[half + size - 1 - j]
                    work[y + half, :] = zero
                    for j in range(window):
                        for v in range(size):
                            work[y + half, v] += bell32[j] * line[v + j]
                for y in range(size):
                    x[c, y, :] = zero
                    for j in range(window):
                        for v in range(size):
                            x[c, y, v] += bell32[j] * work[y + j, v]

        # solarise, normalise, write
        whole = out.itemsize == 1
        for c in range(channels):
            for y in range(size):
                for v in range(size):
                    value = x[c, y, v]
                    if solarise[i] and value >= threshold:
                        value = one - value
                    if whole:
                        out[i, c, y, v] = math.floor(min(max(value, zero), one) * 255 + 0.5)
                    else:
                        out[i, c, y, v] = gain[c] * value + offset[c]

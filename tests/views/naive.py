"""torchvision's formulas for one picture, pixel by pixel, in Python's own numbers."""

import colorsys
import math
import random

import numpy as np


def clamp(value):
    return min(max(value, 0.0), 1.0)


def gray(pixel):
    if len(pixel) == 1:
        return pixel[0]
    r, g, b = pixel
    return 0.2989 * r + 0.587 * g + 0.114 * b


def each_pixel(x, change):
    out = np.empty_like(x)
    for row in range(x.shape[1]):
        for column in range(x.shape[2]):
            out[:, row, column] = change([float(v) for v in x[:, row, column]])
    return out


def brightness(x, factor):
    return each_pixel(x, lambda p: [clamp(factor * v) for v in p])


def contrast(x, factor):
    shades = [
        gray([float(v) for v in x[:, i, j]]) for i in range(x.shape[1]) for j in range(x.shape[2])
    ]
    mean = sum(shades) / len(shades)
    return each_pixel(x, lambda p: [clamp(factor * v + (1 - factor) * mean) for v in p])


def saturation(x, factor):
    if len(x) == 1:
        return x
    return each_pixel(x, lambda p: [clamp(factor * v + (1 - factor) * gray(p)) for v in p])


def hue(x, turn):
    if len(x) == 1:
        return x

    def change(pixel):
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        return colorsys.hsv_to_rgb((h + turn) % 1.0, s, v)

    return each_pixel(x, change)


def grayscale(x):
    return each_pixel(x, lambda p: [gray(p)] * len(p))


def solarise(x, threshold):
    return each_pixel(x, lambda p: [1 - v if v >= threshold else v for v in p])


def blur(x, sigma, kernel):
    half = kernel // 2
    weights = [math.exp(-0.5 * (j / sigma) ** 2) for j in range(-half, half + 1)]
    total = sum(weights)
    height, width = x.shape[1:]

    def mirror(at, side):
        return -at if at < 0 else 2 * (side - 1) - at if at >= side else at

    out = np.zeros_like(x)
    for i in range(height):
        for j in range(width):
            for a in range(-half, half + 1):
                for b in range(-half, half + 1):
                    weight = weights[a + half] * weights[b + half] / total**2
                    out[:, i, j] += weight * x[:, mirror(i + a, height), mirror(j + b, width)]
    return out


def box(rng: random.Random, height, width, scale, ratio):
    """RandomResizedCrop.get_params: top, left, height, width, and whether it is a fallback."""
    for _ in range(10):
        area = height * width * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, height - h), rng.randint(0, width - w), h, w
    if width / height < min(ratio):
        w, h = width, round(width / min(ratio))
    elif width / height > max(ratio):
        w, h = round(height * max(ratio)), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w

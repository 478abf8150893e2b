"""Decoding JPEG: ours (by `simplejpeg` where it is installed) beside Pillow; milliseconds of CPU.

    python benchmarks/jpeg.py

A smooth image with noise, at quality 90 with halved colours, as a camera writes them. Pillow's time
is that of `Image.open(...).convert("RGB")`, scaled by `ImageOps.fit` where a size is asked for, as
an array. Medians of CPU time, the two in turn: a busy machine then hardly matters.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from chiaroscuro.data.pictures import decode
from environment import save

CASES = ((256, 256, None), (500, 375, None), (500, 375, 224), (500, 375, 64), (2000, 1500, 224))
REPEATS = 40


def photo(width: int, height: int) -> bytes:
    """The bytes of an image that looks like none but compresses like one."""
    draw = np.random.default_rng(0)
    coarse = Image.fromarray(draw.integers(0, 256, (height // 32, width // 32, 3), np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), float)
    noisy = (smooth + draw.normal(0, 3, (height, width, 1))).clip(0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(noisy).save(out, "JPEG", quality=90)
    return out.getvalue()


def by_pillow(encoded: bytes, size: int | None) -> np.ndarray:
    """The image as an array, by Pillow alone."""
    with Image.open(io.BytesIO(encoded)) as file:
        image: Any = file.convert("RGB")
        if size is not None:
            image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
        return np.array(image)


def cpu(call: Callable[[], Any]) -> float:
    """Milliseconds of CPU of one call."""
    began = time.process_time()
    call()
    return 1e3 * (time.process_time() - began)


def main() -> None:
    """Measure, print and save."""
    try:
        import simplejpeg

        decoder = f"simplejpeg {simplejpeg.__version__}"
    except ImportError:
        decoder = "Pillow"
    rows = []
    for width, height, size in CASES:
        encoded = photo(width, height)
        calls = {"ours": lambda e=encoded, s=size: decode(e, s)}
        calls["pillow"] = lambda e=encoded, s=size: by_pillow(e, s)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(REPEATS):
            for name, call in calls.items():
                times[name].append(cpu(call))
        found = {name: statistics.median(each) for name, each in times.items()}
        apart = np.abs(decode(encoded, size).astype(int) - by_pillow(encoded, size))
        rows.append(
            {
                "width": width,
                "height": height,
                "size": size,
                "kilobytes": len(encoded) / 1e3,
                **found,
                "ratio": found["pillow"] / found["ours"],
                "mean difference": float(apart.mean()),
            }
        )
        print(rows[-1])
    result = {"decoder": decoder, "pillow": Image.__version__, "rows": rows}
    print(save("jpeg", result, "python benchmarks/jpeg.py"))


if __name__ == "__main__":
    main()

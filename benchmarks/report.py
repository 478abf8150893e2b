"""The page: how large it is, how long it takes to make, how soon it paints, how fast points move.

    CHIARO_DATA=... python benchmarks/report.py

10,000 real pictures with 20 epochs of embeddings that separate, as a run on disk; then 100,000
points. Headless Chromium renders in software. Best of several, for other work must not be counted.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import chiaroscuro as cs
from chiaroscuro.artifacts import Embeddings, Run
from environment import save

SOFTWARE = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]"
MOVE = """() => {
  const { map } = chiaroscuro;
  const began = performance.now();
  for (let at = 0; at < 10; at += 1) { map.state.t = at / 4; map.draw(); map.finish(); }
  return 10000 / (performance.now() - began);
}"""


def pictures(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Real pictures and their labels, as many as there are, again from the start if need be."""
    data = cs.data.open_data("cifar10_12k")
    rows = np.arange(n) % len(data)
    return data.column("images")[rows], data.column("labels")[rows]


def a_run(folder: Path, n: int, epochs: int, thumbnails: bool) -> Run:
    """Ten classes that separate as training goes on; h of 128 dimensions, z of 64."""
    rng = np.random.default_rng(0)
    images, labels = pictures(n)
    run = Run.create(folder, {"epochs": epochs - 1})
    known: dict[str, Any] = {"thumbnails": images} if thumbnails else {}
    Embeddings(ids=np.arange(n), labels=labels, **known).save(run.embeddings("rows"))
    h, means = rng.normal(size=(n, 128)), rng.normal(size=(10, 128))
    for epoch in range(epochs):
        now = (h + 2 * epoch / epochs * means[labels]).astype(np.float32)
        z = now[:, :64]
        Embeddings(ids=np.arange(n), h=now, z=z).save(run.embeddings(f"epoch-{epoch:04d}"))
    return run


def main() -> None:
    if "CHIARO_DATA" not in os.environ:
        sys.exit("CHIARO_DATA needs to name the folder that holds cifar10_12k.npz.")
    chromium = shutil.which(os.environ.get("CHIARO_CHROMIUM", "chromium"))
    if chromium is None:
        sys.exit("This needs Debian's chromium, or CHIARO_CHROMIUM.")
    from playwright.sync_api import sync_playwright

    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        full, many = (Path(folder) / name for name in ("full.html", "many.html"))
        run = a_run(Path(folder) / "full", 10_000, 20, thumbnails=True)
        began = time.perf_counter()
        cs.report(run, full)
        result["full_seconds"] = time.perf_counter() - began
        result["full_bytes"] = full.stat().st_size
        run = a_run(Path(folder) / "many", 100_000, 4, thumbnails=False)
        began = time.perf_counter()
        cs.report(run, many, points=100_000)
        result["many_seconds"] = time.perf_counter() - began
        result["many_bytes"] = many.stat().st_size
        browser = playwright.chromium.launch(executable_path=chromium, args=list(SOFTWARE))
        paints = []
        for _ in range(5):
            page = browser.new_page()
            page.goto(full.as_uri())
            page.wait_for_function(f"() => {PAINT}")
            paints.append(page.evaluate(f"() => {PAINT}.startTime"))
            page.close()
        result["first_paint_ms"] = min(paints)
        page = browser.new_page()
        page.goto(many.as_uri())
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        page.locator("#map .left .stage").scroll_into_view_if_needed()
        result["frames_per_second"] = max(page.evaluate(MOVE) for _ in range(6))
        result["renderer"] = page.evaluate("() => chiaroscuro.map.renderer")
        browser.close()
    front = Path(cs.__file__).parent / "report" / "front"
    result["javascript_bytes"] = sum(path.stat().st_size for path in front.glob("*.js"))
    print(result)
    save("report", result, "python benchmarks/report.py")


if __name__ == "__main__":
    main()

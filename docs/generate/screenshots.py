"""Take the screenshots of the documentation: `python docs/generate/screenshots.py PAGE`.

PAGE is the `report.html` of `chiaro demo`. Writes `docs/report/light.png`, `dark.png`, `phone.png`
and `map.gif`, the map through the epochs. Needs Chromium and playwright (the extra `test`).
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

OUT = Path(__file__).resolve().parents[1] / "report"
FRAMES = 36
COLOURS = 64


def main(address: str) -> None:
    """Open the page in a browser and write the four files."""
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"],
        )
        page = opened(browser, address, "light", 1280)
        top = lambda one: one.locator("#training").bounding_box()["y"]
        shot(page, "light.png", 0, top(page))
        film(opened(browser, address, "light", 640))
        page = opened(browser, address, "dark", 1280)
        start = page.locator("#geometry").bounding_box()["y"]
        shot(page, "dark.png", start, page.locator("#graph").bounding_box()["y"] - start)
        page = opened(browser, address, "light", 390)
        shot(page, "phone.png", 0, 1700)
        browser.close()


def opened(browser: Any, address: str, scheme: str, width: int) -> Any:
    """Return the page in a colour scheme, as wide as a window or a phone."""
    phone = width < 600
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        has_touch=phone,
        is_mobile=phone,
    )
    page = context.new_page()
    page.goto(Path(address).resolve().as_uri())
    page.wait_for_timeout(2000)
    return page


def shot(page: Any, name: str, start: float, height: float) -> None:
    """Save a strip of the page."""
    width = page.viewport_size["width"]
    clip = {"x": 0, "y": start, "width": width, "height": height}
    image = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip)))
    image.convert("RGB").save(OUT / name, optimize=True)
    print(OUT / name)


def film(page: Any) -> None:
    """Save the map through the epochs, from the untrained network to the last epoch."""
    stage = page.locator("#map .left .stage").first
    stage.scroll_into_view_if_needed()
    slider = page.get_by_role("slider", name="Epoch")
    last = float(slider.get_attribute("max"))
    frames = []
    for k in range(FRAMES):
        move = "(s, t) => { s.value = String(t); s.dispatchEvent(new Event('input')); }"
        slider.evaluate(move, last * k / (FRAMES - 1))
        page.wait_for_timeout(60)
        frames.append(Image.open(io.BytesIO(stage.screenshot())).convert("RGB"))
    palette = frames[-1].quantize(COLOURS, dither=Image.Dither.NONE)
    frames = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in frames]
    held = [80] * (FRAMES - 1) + [2500]
    frames[0].save(
        OUT / "map.gif", save_all=True, append_images=frames[1:], duration=held, loop=0,
        optimize=True,
    )  # fmt: skip
    print(OUT / "map.gif")


if __name__ == "__main__":
    main(sys.argv[1])

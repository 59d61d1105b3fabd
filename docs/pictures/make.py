"""The pictures of the studio in the documentation, and the film in the README: python docs/pictures/make.py RUN [DATA]."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from lrc_jepa.studio.contents import open_all
from lrc_jepa.studio.server import Studio, serving

HERE = Path(__file__).parent
WAIT = 300_000  # milliseconds


def plan(page: Page) -> None:
    """A plan, and what came of it."""
    page.locator(".block .dream[data-painted]").first.wait_for()
    page.keyboard.press("Space")
    page.locator(".block .real:not(.blank)").first.wait_for()
    page.wait_for_timeout(1500)


def streams(page: Page) -> None:
    """Two frames that differ, a step along a direction."""
    page.locator(".walk .strip canvas[data-painted]").first.wait_for()
    page.get_by_label("frame b: next episode").click()
    page.locator(".eyes [data-value='z 2']").click()
    page.locator(".walk .strip button").nth(8).click()
    page.mouse.wheel(0, -5000)


def imagine(page: Page) -> None:
    """Around a corner, and the curtain lifted."""
    page.locator(".dreamt canvas[data-painted]").wait_for()
    for count, key in enumerate(["Right", "Up", "Up", "Left", "Left", "Down"], 2):
        page.keyboard.press(f"Arrow{key}")
        page.locator(f"#imagine .block:nth-child({count})").wait_for()
    page.keyboard.press("c")
    page.locator("#imagine .block:last-child .real:not(.blank)").wait_for()
    page.wait_for_timeout(1500)


def episodes(page: Page) -> None:
    """The frame that surprises most, and what validate says."""
    page.locator(".heat:not([data-painted='0'])").wait_for()
    page.locator(".found li").first.wait_for()
    page.keyboard.press("j")


def runs(page: Page) -> None:
    """Curves."""
    page.locator("#runs svg[data-name=total] path").first.wait_for()


SHOTS = {
    "studio-plan": (plan, 1280, 900, "light"),
    "studio-streams": (streams, 1280, 1120, "light"),
    "studio-imagine": (imagine, 1280, 1060, "dark"),
    "studio-episodes": (episodes, 1280, 960, "light"),
    "studio-runs": (runs, 1280, 760, "dark"),
    "studio-phone": (plan, 390, 844, "dark"),
}


def shoot(page: Page, name: str) -> None:
    """What is seen, as a small WebP."""
    seen = Image.open(io.BytesIO(page.screenshot()))
    if seen.width > 1000:
        seen = seen.resize((1000, round(seen.height * 1000 / seen.width)), Image.Resampling.LANCZOS)
    seen.save(HERE / f"{name}.webp", quality=78, method=6)


def film(page: Page) -> None:
    """A goal is dragged and reached, as a GIF."""
    plan(page)
    frames: list[Image.Image] = []

    def take(times: int = 1) -> None:
        seen = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        frames.extend(
            [seen.resize((720, round(seen.height * 720 / seen.width)), Image.Resampling.LANCZOS)] * times
        )

    box: Any = page.locator(".world").bounding_box()
    held: Any = page.locator(".handle.goal").bounding_box()
    x, y = held["x"] + held["width"] / 2, held["y"] + held["height"] / 2
    to_x, to_y = box["x"] + 0.8 * box["width"], box["y"] + 0.72 * box["height"]
    take(4)
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, 21):
        page.mouse.move(x + (to_x - x) * step / 20, y + (to_y - y) * step / 20)
        page.wait_for_timeout(250)  # a plan is made meanwhile
        take()
    page.mouse.up()
    for _ in range(6):  # candidates narrow
        page.wait_for_timeout(100)
        take()
    page.locator("[data-do=end]").click()
    while not page.locator(".state.reached").count() and len(frames) < 90:
        take()
    page.wait_for_timeout(500)
    take(12)
    # One palette for all; an octree keeps the few pixels that are red or green.
    palette = frames[-1].quantize(255, method=Image.Quantize.FASTOCTREE)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    small[0].save(
        HERE / "studio.gif", save_all=True, append_images=small[1:], duration=120, loop=0, optimize=True
    )


def main() -> None:
    """All of them, or those that are named."""
    run, data, *names = [*sys.argv[1:], ""][:2] + sys.argv[3:]
    contents = open_all([Path(run)], Path(data) if data else None)
    with serving(Studio(contents)) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (act, width, height, scheme) in {**SHOTS, "film": (film, 1080, 700, "light")}.items():
            if names and name not in names:
                continue
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            page.set_default_timeout(WAIT)
            page.goto(f"{address}#{act.__name__ if act is not film else 'plan'}")
            act(page)
            if act is not film:
                page.wait_for_timeout(800)
                shoot(page, name)
            context.close()
        browser.close()


if __name__ == "__main__":
    main()

"""A real Chromium at the studio: what it shows, what it complains of, and what it asks for."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from lrc_jepa.studio.messages import read_picture

LIMIT = 120_000  # milliseconds that anything may take
SIZES = {"desk": (1280, 900), "phone": (390, 844)}
SCREENS = [f"{size}, {scheme}" for size in SIZES for scheme in ("light", "dark")]


@contextmanager
def chromium():
    """A browser; skipped where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser, address, screen="desk, light", part=""):
    """The page on one of the screens; at the end it must have had no fault and asked nobody else."""
    size, scheme = screen.split(", ")
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=size == "phone"
    )
    page = context.new_page()
    page.set_default_timeout(LIMIT)
    faults, asked = [], []
    page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: faults.append(str(e)))
    page.on("requestfailed", lambda r: faults.append(r.url))
    page.on("request", lambda r: asked.append(r.url))
    page.on("websocket", lambda w: asked.append(w.url))
    page.goto(address + (f"#{part}" if part else ""))
    yield page
    wide = page.evaluate("document.documentElement.scrollWidth")
    own = address.split("://")[1]
    faults = faults + [  # until now: closing ends requests that are under way, which is no fault
        f"asked {url}" for url in asked if not url.startswith(("data:", f"http://{own}", f"ws://{own}"))
    ]
    context.close()
    assert not faults, faults
    assert wide <= width, "the page scrolls sideways"


def pixels(page, selector):
    """What a canvas shows (h,w,3), once it has been painted."""
    element = page.locator(selector).first
    element.wait_for()
    wait_until(page, lambda: element.evaluate("c => c.dataset.painted"))
    return read_picture(element.evaluate("c => c.toDataURL('image/png')"))


def red_dot(frame):
    """Where a frame (h,w,3) is reddest, as shares of its sides."""
    score = frame[..., 0].astype(int) - frame[..., 1:].max(axis=2)
    y, x = np.unravel_index(score.argmax(), score.shape)
    return np.array([(x + 0.5) / frame.shape[1], (y + 0.5) / frame.shape[0]])


def wait_until(page, what, milliseconds=LIMIT):
    """Wait until a function of this side holds."""
    for _ in range(milliseconds // 50):
        if what():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not come about")

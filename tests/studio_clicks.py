"""A hand that clicks about in the studio, and what it costs: `python tests/studio_clicks.py RUN --minutes 30`."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from studio_browser import chromium, opened

KEYS = (
    "ArrowLeft",
    "ArrowRight",
    "ArrowUp",
    "ArrowDown",
    "Space",
    "Enter",
    "n",
    "l",
    "z",
    "s",
    "r",
    "c",
    "j",
    "t",
    "]",
    "[",
)
BUTTONS = "main .part:not([hidden]) :is(button, summary):not([disabled]):not([data-do=copy]):not([data-do=report]):not(.handle)"


def act(page, rng):
    """One thing that a hand might do."""
    kind = rng.integers(5)
    if kind == 0:
        page.keyboard.press(str(rng.integers(1, 1 + page.locator(".tabs button").count())))
    elif kind == 1:
        page.keyboard.press(str(rng.choice(KEYS)))
    elif kind == 2 and (world := page.locator(".world").first).is_visible() and (box := world.bounding_box()):
        (x, y), (to_x, to_y) = rng.uniform(0.1, 0.9, (2, 2))
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + to_x * box["width"], box["y"] + to_y * box["height"], steps=4)
        page.mouse.up()
    elif kind == 3:
        push(
            page,
            rng,
            "main .part:not([hidden]) input[type=range]",
            "e => { e.value = e.min * 1 + Math.random() * (e.max - e.min); e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change')); }",
        )
    else:
        push(page, rng, BUTTONS, "e => e.click()")


def push(page, rng, selector, script):
    """Do something to one of the elements there are now: the page may show others a moment later."""
    chosen = "const there = document.querySelectorAll(all), e = there[Math.floor(share * there.length)];"
    page.evaluate(f"([all, share]) => {{ {chosen} if (e) ({script})(e); }}", [selector, float(rng.random())])


def click_about(page, rng, clicks, pause=100):
    """So many actions, a moment apart."""
    for _ in range(clicks):
        act(page, rng)
        page.wait_for_timeout(pause)


def megabytes(process):
    """Memory that a process holds."""
    told = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", told)[1]) / 1024


def heap(page):
    """Megabytes that the page's script holds, after its garbage is collected."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--data")
    asked = parser.parse_args()
    command = [sys.executable, "-m", "lrc_jepa.cli", "studio", asked.run, "--no-browser"]
    command += ["--data", asked.data] if asked.data else []
    rng, clicks = np.random.default_rng(0), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            address = next(m[0] for line in server.stdout if (m := re.search(r"http://127\S+", line)))
            with chromium() as browser, opened(browser, address) as page:
                page.locator(".block").first.wait_for()
                began = time.monotonic()
                while (minutes := (time.monotonic() - began) / 60) < asked.minutes:
                    click_about(page, rng, 40)
                    clicks += 40
                    told = {
                        "minutes": minutes,
                        "clicks": clicks,
                        "server": megabytes(server.pid),
                        "page": heap(page),
                    }
                    sys.stdout.write(
                        json.dumps({name: round(value, 1) for name, value in told.items()}) + "\n"
                    )
                    sys.stdout.flush()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()

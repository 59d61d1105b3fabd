"""Opening a page in headless Chromium, at a given width, and asking it what it shows."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-dev-shm-usage", "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
    *("--allow-file-access-from-files", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=4000"),
)
WATCH = """<script>const faults = [];
addEventListener("error", e => faults.push(String(e.message || e.target.src || e.target.href)), true);
addEventListener("unhandledrejection", e => faults.push(String(e.reason)));
for (const level of ["error", "warn"]) { console[level] = (...said) => faults.push(said.join(" ")); }</script>"""
ASK = """<script>addEventListener("load", () => parent.postMessage(JSON.stringify({
  width: innerWidth, scroll: document.documentElement.scrollWidth,
  wide: [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, .plot.wide, svg, pre")
    && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + "." + e.className),
  plots: [...document.querySelectorAll("figure.plot")].map(f => { const b = f.querySelector("svg").getBoundingClientRect();
    return {name: f.dataset.figure, width: b.width, height: b.height, drawn: f.querySelectorAll("path, use").length}; }),
  images: [...document.images].map(i => i.naturalWidth),
  faults: faults
}), "*"));</script>"""
FRAME = """<!doctype html><link rel="icon" href="data:,"><iframe src="{page}" style="width:{width}px;height:1000px;border:0">
</iframe><pre id="seen"></pre><script>addEventListener("message", e => document.getElementById("seen").textContent = e.data)</script>"""


@dataclass(frozen=True)
class Seen:
    """What the page shows and complains of, and what it asked for beyond this machine's files."""

    page: dict[str, Any]
    faults: list[str]
    requests: list[str]


def look(page: Path, folder: Path, width: int) -> Seen:
    """Open `page` as wide as a screen of `width` pixels; skipped where there is no Chromium."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    folder.mkdir(parents=True, exist_ok=True)
    asked, frame, log = folder / "page.html", folder / "frame.html", folder / "net.json"
    asked.write_text(page.read_text().replace("<head>", f"<head>{WATCH}").replace("</body>", f"{ASK}</body>"))
    frame.write_text(FRAME.format(page=asked.name, width=width))
    places = [
        f"--user-data-dir={folder / 'profile'}",
        f"--log-net-log={log}",
        f"--window-size={width + 40},1100",
    ]
    ran = subprocess.run(
        [browser, *OPTIONS, *places, "--dump-dom", frame.resolve().as_uri()],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = re.search(r'<pre id="seen">(.*?)</pre>', ran.stdout, re.S)
    assert told and told[1], ran.stderr[-2000:]
    found = json.loads(html.unescape(told[1]))
    spoken = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    return Seen(found, found["faults"] + spoken, _asked_for(json.loads(log.read_text())))


def _asked_for(log: dict[str, Any]) -> list[str]:
    """Addresses that a document, and not the browser itself, asked for, files and data apart."""
    begun = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    asked = [e["params"] for e in log["events"] if e["type"] == begun and "url" in e.get("params", {})]
    own = [p["url"] for p in asked if p.get("initiator", "not an origin") != "not an origin"]
    return sorted({url for url in own if not url.startswith(("file:", "data:"))})


def check_page(page: Path, folder: Path, plots: int) -> set[str]:
    """No faults, no requests, everything drawn, nothing to scroll sideways, on a phone and on a desk.

    Returns the names of the figures, of which there must be at least `plots`.
    """
    names: set[str] = set()
    for width in (390, 1280):
        seen = look(page, folder / f"width-{width}", width)
        assert seen.faults == [] and seen.requests == []
        assert seen.page["width"] == width and seen.page["scroll"] <= width and seen.page["wide"] == []
        shown = seen.page["plots"]
        empty = [p["name"] for p in shown if p["height"] < 80 or p["width"] < 200 or p["drawn"] < 20]
        assert empty == [] and len(shown) >= plots
        assert all(natural > 0 for natural in seen.page["images"])
        names = {plot["name"] for plot in shown}
    return names

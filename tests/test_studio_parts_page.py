"""The studio's other parts in a real browser: what is swapped, steered, scrubbed and chosen is seen."""

import json
import shutil
import time

import numpy as np
import pytest
from studio_browser import SCREENS, chromium, opened, pixels, red_dot, wait_until
from studio_clicks import click_about, heap
from studio_model import LIMIT, served, true_run


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def data(varied, tmp_path_factory):
    """Episodes that differ in colour, in a folder that may be written beside."""
    return shutil.copytree(varied.path, tmp_path_factory.mktemp("sets") / "varied")


@pytest.fixture(scope="module")
def address(run, data):
    with served(true_run(run, data)) as (_, found):
        yield found


def colour(frame):
    return np.median(frame.reshape(-1, 3), axis=0)


@pytest.mark.parametrize("screen", SCREENS)
def test_u_is_swapped(browser, address, screen):
    """The mixed pictures have the place of the dot from one frame, and the colour from the other."""
    with opened(browser, address, screen, "streams") as page:
        page.locator(".walk .strip canvas[data-painted]").first.wait_for()
        a, b = (pixels(page, f"[data-side={side}] .eye canvas") for side in "ab")
        mixed = pixels(page, "[data-mix=ab]")
        assert np.allclose(red_dot(mixed), red_dot(a), atol=0.06)
        assert np.allclose(colour(mixed), colour(b), atol=3) and not np.allclose(
            colour(a), colour(b), atol=10
        )
        page.get_by_label("frame b: next episode").click()
        wait_until(page, lambda: not np.allclose(colour(pixels(page, "[data-mix=ab]")), colour(b), atol=3))
        assert np.allclose(red_dot(pixels(page, "[data-mix=ab]")), red_dot(a), atol=0.06)
        before = pixels(page, ".walk .big")
        page.locator(".walk .strip button").last.click()
        wait_until(page, lambda: not np.array_equal(before, pixels(page, ".walk .big")))
        assert "± " in page.locator(".known").inner_text()


def test_the_curtain_hides_the_world_until_it_is_lifted(browser, address):
    with opened(browser, address, "phone, dark", "imagine") as page:
        page.locator(".dreamt canvas[data-painted]").wait_for()
        start = red_dot(pixels(page, ".dreamt canvas"))
        up = page.get_by_label("up", exact=True) if start[1] > 0.5 else page.get_by_label("down", exact=True)
        for number in (1, 2):
            up.click()
            wait_until(page, lambda n=number: page.locator("#imagine .block").count() == n + 1)
        wait_until(page, lambda: abs(red_dot(pixels(page, ".dreamt canvas")) - start)[1] > 0.08)
        assert page.locator("#imagine .block .real:not(.blank)").count() == 0
        seen = pixels(page, ".theatre .real canvas")
        page.locator("[data-do=curtain]").click()
        wait_until(page, lambda: page.locator("#imagine .block .real:not(.blank)").count() == 3)
        wait_until(page, lambda: not np.array_equal(seen, pixels(page, ".theatre .real canvas")))
        real, dreamt = (red_dot(pixels(page, s)) for s in (".theatre .real canvas", ".dreamt canvas"))
        assert np.allclose(real, dreamt, atol=0.06)  # there are no walls that way
        assert "off by" in page.locator("#imagine .block").last.inner_text()
        page.locator("[data-plot=gap] path").first.wait_for()


@pytest.mark.parametrize("screen", SCREENS)
def test_an_episode_is_scrubbed_and_marked(browser, address, data, varied, screen):
    with opened(browser, address, screen, "episodes") as page:
        page.locator(".tile canvas[data-painted]").first.wait_for()
        page.locator(".tile").nth(3).click()
        wait_until(page, lambda: page.locator(".title").inner_text() == "Episode 3")
        for frame in (20, 45):
            page.locator(".scrub").fill(str(frame))
            stored = varied.pixels[varied.ep_offset[3] + frame]
            wait_until(page, lambda s=stored: np.array_equal(pixels(page, ".screen"), s))
        page.locator(".actions path").nth(1).wait_for()
        wait_until(page, lambda: page.locator(".heat").get_attribute("data-painted") == str(varied.ep_len[3]))
        heat = page.locator(".heat").evaluate(
            "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, 1).data)"
        )
        assert len(set(heat[3::4])) > 3  # some frames surprise more than others
        page.keyboard.press("x")
        page.locator(".tile.marked").wait_for()
        assert json.loads(data.with_name("varied.drop.json").read_text()) == [3]
        assert "lrc data drop" in page.locator(".command").inner_text()
        page.keyboard.press("x")
        wait_until(page, lambda: page.locator(".tile.marked").count() == 0)
        page.locator(".found li").first.wait_for()


def test_curves_grow_before_ones_eyes(browser, run, data):
    with served(true_run(run, data)) as (_, address), opened(browser, address, "desk, light", "runs") as page:
        line = page.locator("#runs svg[data-name=total] path").first
        line.wait_for()
        before = line.get_attribute("d")
        with (run / "metrics.jsonl").open("ab") as handle:
            handle.write(b'{"step": 900, "kind": "train", "total": 0.01}\n')
        wait_until(page, lambda: line.get_attribute("d") != before)
        wait_until(page, lambda: "step 900" in page.locator("#runs .chip").first.inner_text())
        page.keyboard.press("5")
        for key, part in zip("1234", ("plan", "streams", "imagine", "episodes"), strict=True):
            page.keyboard.press(key)
            page.locator(f"#{part}").wait_for()


def test_a_hand_that_clicks_about_finds_no_fault(run, browser, data):
    """A short version of `python tests/studio_clicks.py RUN --minutes 30`."""
    with served(true_run(run, data)) as (studio, address):
        with opened(browser, address) as page:
            page.locator(".block .dream[data-painted]").first.wait_for()
            rng = np.random.default_rng(1)
            click_about(page, rng, 20, pause=30)
            before = heap(page)
            click_about(page, rng, 20, pause=30)
            assert heap(page) < before + 8  # megabytes
        wait = time.monotonic() + LIMIT
        while studio.sessions and time.monotonic() < wait:
            time.sleep(0.05)
        assert not studio.sessions  # a closed tab frees what it had

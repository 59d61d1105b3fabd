"""The studio in a real browser: a goal is dragged, planned for and reached, and the pictures show it."""

import numpy as np
import pytest
from PIL import Image
from studio_browser import SCREENS, chromium, opened, pixels, red_dot, wait_until
from studio_model import served, true_run


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address(run):
    with served(true_run(run)) as (_, found):
        yield found


def drag(page, handle, x, y):
    """Drag a handle to a point of the world, in several moves."""
    page.locator(".world").scroll_into_view_if_needed()
    box = page.locator(".world").bounding_box()
    held = page.locator(f".handle.{handle}").bounding_box()
    page.mouse.move(held["x"] + held["width"] / 2, held["y"] + held["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=5)
    page.mouse.up()


def search_well(page):
    """Set the sliders to a search that finds something."""
    for name, value in (("candidates", 60), ("iterations", 8)):
        page.get_by_label(name, exact=True).fill(str(value))
        page.get_by_label(name, exact=True).dispatch_event("change")
    page.get_by_label("planner").select_option("cem")
    wait_until(page, lambda: page.locator(".turn span").inner_text().endswith("of 8"))


@pytest.mark.parametrize("screen", SCREENS)
def test_a_goal_is_dragged_and_reached(browser, address, screen):
    with opened(browser, address, screen) as page:
        page.locator(".block .dream[data-painted]").first.wait_for()
        search_well(page)
        drag(page, "hand", 0.25, 0.3)
        wait_until(page, lambda: np.allclose(red_dot(pixels(page, ".world canvas")), (0.25, 0.3), atol=0.03))
        before = pixels(page, "canvas.goal")
        drag(page, "goal", 0.3, 0.75)
        wait_until(page, lambda: np.allclose(red_dot(pixels(page, "canvas.goal")), (0.3, 0.75), atol=0.03))
        assert not np.array_equal(before, pixels(page, "canvas.goal"))
        # The plan leads to the goal: in the last imagined frame the dot is there, in the first it is on its way.
        wait_until(
            page,
            lambda: np.allclose(red_dot(pixels(page, ".block:last-child .dream")), (0.3, 0.75), atol=0.1),
        )
        assert page.locator(".fan polyline").count() > 20 and page.locator(".world .path").get_attribute(
            "points"
        )
        page.locator("[data-do=end]").click()
        page.locator(".state.reached").wait_for()
        assert np.allclose(red_dot(pixels(page, ".world canvas")), (0.3, 0.75), atol=0.1)
        real = pixels(page, ".block .real:not(.blank)")
        imagined = pixels(page, ".block .dream")
        assert np.allclose(red_dot(real), red_dot(imagined), atol=0.05)  # the true model is right


def test_a_goal_may_be_a_recorded_frame_or_a_picture(browser, address, store, tmp_path):
    with opened(browser, address) as page:
        page.locator(".block .dream[data-painted]").first.wait_for()
        page.locator("[data-do=recorded]").click()
        page.get_by_label("goal: next episode").click()
        page.get_by_label("goal: frame").fill("20")
        episode = int(page.locator(".recorded output").first.inner_text().split()[1])
        seen = store.pixels[store.ep_offset[episode] + 20]
        wait_until(page, lambda: np.allclose(red_dot(pixels(page, "canvas.goal")), red_dot(seen), atol=0.04))
        other = store.pixels[store.ep_offset[0] + 40]
        Image.fromarray(other).save(tmp_path / "goal.png")
        page.locator("[data-do=picture]").set_input_files(tmp_path / "goal.png")
        wait_until(page, lambda: np.array_equal(pixels(page, "canvas.goal"), other))
        page.locator(".handle.goal").wait_for(state="hidden")  # where it is nobody has said


def test_keys_and_theme_do_what_they_say(browser, address):
    with opened(browser, address) as page:
        page.locator(".block .dream[data-painted]").first.wait_for()
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.keyboard.press("t")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light

        def across():
            return page.locator(".handle.goal").evaluate("e => parseFloat(e.style.left)")

        where = across()
        page.keyboard.press("ArrowLeft")
        wait_until(page, lambda: across() < where - 1)
        page.keyboard.press("?")
        assert "another scene" in page.locator(".keys").inner_text()
        page.keyboard.press("Escape")
        before = pixels(page, ".world canvas")
        page.keyboard.press("n")
        wait_until(page, lambda: not np.array_equal(before, pixels(page, ".world canvas")))
        page.keyboard.press("Space")
        page.locator(".block .real:not(.blank)").first.wait_for()

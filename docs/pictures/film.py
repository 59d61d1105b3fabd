"""The film of plans in the README: python docs/pictures/film.py RUN... (shipped names do), each in a world of its own.

The first non-trivial held-out pairs of every run, whether they are reached or not; none is chosen.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.evaluate.closed_loop import make_task, run
from lrc_jepa.evaluate.manifest import draw_manifest
from lrc_jepa.evaluate.watched import Watched
from lrc_jepa.run import Run, open_run

HERE = Path(__file__).parent
PAIRS, SIDE, GAP, CAPTION = 3, 176, 10, 24
REST = 10  # frames that the last one of a pair stays
INK, GREEN = (40, 44, 52), (26, 127, 55)
TITLES = {"tworoom": "TwoRoom", "pusht": "Push-T", "reacher": "Reacher", "cube": "Cube"}


def seen(opened: Run) -> tuple[Frames, Frames, Array]:
    """Films (pairs,steps+1,h,w,3) and goals (pairs,h,w,3), drawn larger than the model sees them, and steps reached at."""
    plan, store = opened.config.plan, opened.store
    manifest = draw_manifest(store, opened.split, opened.config.clip, plan, 20)
    hard = np.flatnonzero(~np.asarray(manifest.trivial))[:PAIRS]
    manifest = manifest.part(slice(0, int(hard[-1]) + 1))
    actor = Watched(opened.policy(plan))
    spec = opened.checkpoint.deployment.spec
    reached = run(actor, store, manifest, plan, spec.frameskip, spec.image_size).first_step
    task, state, looks = (
        make_task(store),
        store.columns["state"],
        store.appearance(np.asarray(manifest.episodes)),
    )
    task.reset_to(np.asarray(state[manifest.goal_rows(store)]), looks)
    goals = task.render(SIDE)
    task.reset_to(np.asarray(state[manifest.start_rows(store)]), looks)
    films = [task.render(SIDE)]
    for actions in actor.acted:
        task.step(actions)
        films.append(task.render(SIDE))
    return np.stack(films, axis=1)[hard], goals[hard], reached[hard]


def column(canvas: Image.Image, left: int, title: str, now: Frames, goal: Frames, *, met: bool) -> None:
    """One world: what happens above what is wanted."""
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(15)
    lower = CAPTION + SIDE + GAP
    draw.text((left, 3), title, fill=INK, font=font)
    canvas.paste(Image.fromarray(now), (left, CAPTION))
    canvas.paste(Image.fromarray(goal), (left, lower + CAPTION))
    draw.text((left, lower + 3), "goal, reached" if met else "goal", fill=GREEN if met else INK, font=font)
    if met:
        draw.rectangle((left, CAPTION, left + SIDE - 1, CAPTION + SIDE - 1), outline=GREEN, width=3)


def main(names: list[str]) -> None:
    """All worlds side by side, pair after pair."""
    worlds = {}
    for name in names:
        opened = open_run(Path(name))
        worlds[TITLES.get(opened.store.world, opened.store.world)] = seen(opened)
    pictures = []
    for pair in range(PAIRS):
        length = max(films.shape[1] for films, _, _ in worlds.values())
        for step in [*range(length), *[length - 1] * REST]:
            canvas = Image.new("RGB", (len(worlds) * (SIDE + GAP) - GAP, 2 * (CAPTION + SIDE) + GAP), "white")
            for place, (title, (films, goals, reached)) in enumerate(worlds.items()):
                at = min(step, films.shape[1] - 1)
                met = 0 <= reached[pair] <= at
                # A world stands still once its goal is reached, as a robot would.
                now = films[pair, reached[pair] if met else at]
                column(canvas, place * (SIDE + GAP), title, now, goals[pair], met=met)
            pictures.append(canvas)
    out = HERE / "worlds.webp"
    pictures[0].save(
        out, save_all=True, append_images=pictures[1:], duration=80, loop=0, quality=60, method=6
    )


if __name__ == "__main__":
    main(sys.argv[1:])

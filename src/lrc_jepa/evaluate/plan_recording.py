"""What was planned and what happened, as recordings for the Rerun viewer: all of one pair on one timeline.

What was imagined stands at the frame that it is of: a block that is executed from frame t on is expected to end at
frame t + frameskip.
"""

from __future__ import annotations

from pathlib import Path

from lrc_jepa.data.recording import recording
from lrc_jepa.evaluate.closed_loop import Rollouts
from lrc_jepa.evaluate.watched import Watched

WHAT = "lrc plan --rerun"


def save_recording(path: Path, planner: Watched, rollouts: Rollouts, pair: int) -> None:
    """Frames, goal, imagined frames, actions, and how far from the goal the model sees and expects itself to be."""
    policy = planner.policy
    frames, skip, ahead = rollouts.films[pair], policy.deployment.spec.frameskip, policy.config.execute
    imagined = planner.imagined_frames(pair)
    with recording(path.stem, path, WHAT) as written:
        for step, frame in enumerate(frames):
            written.at(step)
            written.picture("camera", frame)
            written.picture("goal", rollouts.goals[pair])
            if step < len(planner.acted):
                written.numbers("action", planner.acted[step][pair])
        at = 0
        for solve, (seen, expected) in enumerate(zip(planner.distances, planner.expected, strict=True)):
            written.at(at)
            written.numbers("distance/seen", seen[pair : pair + 1])
            for block in range(ahead):
                at += skip
                if at < len(frames):
                    written.at(at)
                    written.numbers("distance/expected", expected[pair, block : block + 1])
                    if imagined is not None:
                        written.picture("imagined", imagined[solve][block])

"""Collecting episodes in a simulated world, deterministic from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.storage import RAW, Storage
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance, Kind
from lrc_jepa.envs.base import World
from lrc_jepa.envs.coverage import Coverage
from lrc_jepa.errors import BadInput
from lrc_jepa.jobs.pieces import Workers
from lrc_jepa.protocols import Task

Episode = tuple[dict[str, Array], Array]
"""An episode's columns and its appearance factors."""
MEMORY = 2**28  # bytes of frames that are held at once


def episode_rng(seed: int, episode: int) -> np.random.Generator:
    """The generator of one episode: nothing else influences it."""
    return np.random.default_rng([seed, episode])


def appearance_rng(seed: int, episode: int) -> np.random.Generator:
    """The generator of its look: the same motion can be collected in every appearance."""
    return np.random.default_rng([seed, episode, 1])


@dataclass(frozen=True)
class Job:
    """Episodes that are collected together; how they are grouped does not change them."""

    world: str
    appearance: Appearance
    seed: int
    length: int
    size: int
    episodes: tuple[tuple[int, str], ...] = field(default=())
    """Number and policy of each episode."""


def roll(world: World, task: Task, policy_name: str, numbers: list[int], job: Job) -> list[Episode]:
    """Roll one policy in the episodes with these numbers."""
    rngs = [episode_rng(job.seed, number) for number in numbers]
    factors = np.stack([job.appearance.sample(appearance_rng(job.seed, number)) for number in numbers])
    task.reset_to(np.stack([world.initial(rng) for rng in rngs]), factors)
    policy = world.policies[policy_name](rngs)
    batch, length, size = len(rngs), job.length, job.size
    first = task.state()
    pixels = np.empty((batch, length, size, size, 3), np.uint8)
    states = np.empty((batch, length, first.shape[1]), first.dtype)
    # The last action of an episode leads nowhere and stays zero.
    actions = np.zeros((batch, length, len(world.action_low)), np.float32)
    for step in range(length):
        states[:, step] = task.state()
        pixels[:, step] = task.render(size)
        if step < length - 1:
            actions[:, step] = policy.act(states[:, step])
            task.step(actions[:, step])
    measured = world.quantities(states.reshape(batch * length, -1))
    columns: dict[str, Array] = {"pixels": pixels, "action": actions, "state": states}
    for name, values in measured.items():
        columns[name] = np.asarray(values, np.float32).reshape(batch, length, -1)
    return [({name: column[b] for name, column in columns.items()}, factors[b]) for b in range(batch)]


@lru_cache(maxsize=1)
def _task(world: str, appearance: Appearance) -> Task:
    """A worker's simulator: building one takes seconds in some worlds."""
    return get_world(world).make(appearance)


def run_job(job: Job, world: World | None = None, task: Task | None = None) -> list[Episode]:
    """Collect the episodes of a job, in its order; a worker process builds its own simulator."""
    world = world or get_world(job.world)
    task = task or _task(job.world, job.appearance)
    rolled: dict[int, Episode] = {}
    for policy in sorted({policy for _, policy in job.episodes}):
        mine = [number for number, name in job.episodes if name == policy]
        rolled.update(zip(mine, roll(world, task, policy, mine, job), strict=True))
    return [rolled[number] for number, _ in job.episodes]


def run_jobs(world: World, jobs: list[Job], workers: Workers) -> Iterator[list[Episode]]:
    """The results of the jobs, in order, from this process or from several."""
    if workers.several:
        return workers.answers(run_job, jobs)
    return map(partial(run_job, world=world, task=world.make(jobs[0].appearance)), jobs)


def assign_policies(
    mix: Mapping[str, float], names: list[str], episodes: int, seed: int
) -> NDArray[np.int64]:
    """Which policy collects each episode: exact shares, in an order drawn from the seed."""
    unknown = sorted(set(mix) - set(names))
    if unknown:
        raise BadInput(f"unknown policy {unknown[0]!r}; there is {', '.join(names)}")
    shares = np.array([max(mix.get(name, 0.0), 0.0) for name in names])
    if shares.sum() <= 0:
        raise BadInput("the policy mix must give at least one policy a positive share")
    ends = np.round(np.cumsum(shares) / shares.sum() * episodes).astype(int)
    which = np.searchsorted(ends, np.arange(episodes), side="right")
    return np.random.default_rng(seed).permutation(which)


def make_jobs(world: World, template: Job, policies: list[str]) -> list[Job]:
    """Cut the episodes, one per entry of `policies`, into jobs of a bounded size."""
    frames = template.length * template.size**2 * 3
    batch = max(1, min(world.batch, MEMORY // frames))
    numbered = tuple(enumerate(policies))
    shared = {"seed": template.seed, "length": template.length, "size": template.size}
    return [
        Job(template.world, template.appearance, **shared, episodes=numbered[begin : begin + batch])
        for begin in range(0, len(numbered), batch)
    ]


def described(world: World, appearance: Appearance) -> dict[str, Any]:
    """What `meta.json` says of a world and of how its episodes look."""
    varied = list(world.factors[: appearance.factors]) if appearance.kind == "varied" else []
    return {
        "world": world.name,
        "frame_rate": world.frame_rate,
        "action_low": world.action_low.tolist(),
        "action_high": world.action_high.tolist(),
        "action_names": list(world.action_names),
        "action_units": list(world.action_units),
        "appearance": asdict(appearance),
        "appearance_factors": varied,
    }


def collect(
    world: World | str,
    out: Path | str,
    *,
    episodes: int = 200,
    size: int = 64,
    appearance: Appearance | Kind = "clean",
    seed: int = 0,
    mix: Mapping[str, float] | None = None,
    length: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda done: None,
    processes: int = 1,
    ray: str = "",
    storage: Storage = RAW,
) -> Store:
    """Make a dataset in a simulated world; the seed alone decides what is in it, not the number of `processes`.

    `ray` is the address of a Ray cluster that simulates instead, or `local`. `progress` is told after each batch how many episodes it had.
    """
    world = get_world(world) if isinstance(world, str) else world
    appearance = appearance if isinstance(appearance, Appearance) else Appearance(appearance)
    if episodes < 2:
        raise BadInput(f"collect at least 2 episodes, not {episodes}: one must be held out")
    if not 8 <= size <= 1024:
        raise BadInput(f"frames of {size} pixels are not supported; choose 8 to 1024")
    if not 1 <= processes <= 256:
        raise BadInput(f"collect with 1 to 256 processes, not {processes}")
    workers = Workers(processes, ray=ray)
    if workers.several and get_world(world.name) is not world:
        raise BadInput(
            f"only a registered world can be collected by several processes, not this {world.name}"
        )
    length = length or world.episode_length
    if length < 2:
        raise BadInput(f"an episode needs at least 2 frames, not {length}")
    appearance.fit(world.name, world.factors)
    mix = dict(mix or world.mix)
    names = sorted(world.policies)
    which = assign_policies(mix, names, episodes, seed)
    jobs = make_jobs(world, Job(world.name, appearance, seed, length, size), [names[w] for w in which])
    coverage = Coverage(world)
    meta = {**described(world, appearance), "policies": names, "policy_mix": mix, "seed": seed}
    with StoreWriter(Path(out), meta, overwrite=overwrite, storage=storage) as writer:
        for job, results in zip(jobs, run_jobs(world, jobs, workers), strict=True):
            for (number, policy), (columns, factors) in zip(job.episodes, results, strict=True):
                writer.add(columns, appearance=factors, policy=int(which[number]))
                coverage.add(policy, columns)
            progress(len(results))
        writer.meta["coverage"] = coverage.report()
    return Store(out)


def command_of(store: Store) -> str:
    """The command that makes a dataset again, but for where to; empty: `lrc collect` makes no such data."""
    changed = any(store.meta.get(name) for name in ("edited", "converted_from"))
    if changed or not {"seed", "policy_mix", "appearance"} <= set(store.meta):
        return ""
    world, looks = get_world(store.world), store.meta["appearance"]
    further = {"varied": f" --factors {looks['factors']}"}
    further["patterned"] = f" --cells {looks['cells']} --opacity {looks['opacity']}"
    mix = store.meta["policy_mix"]
    shares = "" if mix == dict(world.mix) else " --mix " + " ".join(f"{k} {v}" for k, v in mix.items())
    length = int(store.ep_len[0])
    frames = "" if length == world.episode_length else f" --length {length}"
    if store.storage != RAW:
        frames += f" --storage {store.storage.storage} --quality {store.storage.quality}"
    return (
        f"lrc collect {store.world} --episodes {store.episodes} --size {store.image_size} "
        f"--appearance {looks['kind']}{further.get(looks['kind'], '')} --seed {store.meta['seed']}{shares}{frames}"
    )

"""The theorem put to the test: small networks trained in the two-factor world, and what they learned.

Networks of equal shape are trained side by side as one batched network: many seeds, and many worlds
that differ only in numbers, cost little more than one. Every step draws new trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array
from lrc_jepa.config import SigRegConfig
from lrc_jepa.errors import BadInput, Diverged
from lrc_jepa.evaluate.theory_measures import (
    bits,
    gaussian_total_correlation,
    procrustes_r2,
    total_correlation,
    total_r2,
)
from lrc_jepa.evaluate.theory_networks import SYSTEMS, Skip, Stack, System, VectorModel, objective_of, outputs
from lrc_jepa.evaluate.theory_world import FactorWorld, TheoryConfig, Trajectories, mixed_error, noise_bound
from lrc_jepa.files import digest
from lrc_jepa.objectives.sigreg import GAUSSIAN_FLOOR, expected_sigreg, sigreg
from lrc_jepa.readout import Readout

DECAY = 1e-3
ROOM = 1.25  # standard deviation of the oracle's u; the hinge asks for 1
FIT_ROWS, TEST_ROWS, OBJECTIVE_BATCHES = 16384, 8192, 32
PROBE_BATCH, PROBE_WIDTH, PROBE_RATE = 512, 96, 3e-3
ANGLES = (0, 15, 30, 45, 60, 70, 75, 80, 85, 88)
"""Degrees by which the oracle's z is turned from s towards v."""


@dataclass(frozen=True)
class Sweep:
    """What is varied around the base, and for which systems that is of interest."""

    field: str
    """The number that stands on the axis of the figure."""
    changes: tuple[dict[str, Any], ...]
    systems: tuple[str, ...] = ("lrc",)


CONDITIONED = ("lrc+within", "lwm+within", "lrc+episode", "lwm+episode")

SWEEPS: dict[str, Sweep] = {
    "noise": Sweep("noise", ({"noise": 0.0}, {"noise": 0.2}, {"noise": 0.4}), tuple(SYSTEMS)),
    "memory": Sweep("memory", ({"memory": 0.0}, {"memory": 0.6}), ("lrc", "lwm", *CONDITIONED)),
    "per_episode": Sweep("per_episode", tuple({"per_episode": g} for g in (2, 4, 64)), CONDITIONED),
    "sigreg": Sweep("sigreg", ({"sigreg": 0.01}, {"sigreg": 0.2}), ("lrc", "lrc+within", "lrc+episode")),
    "reconstruction": Sweep("reconstruction", ({"reconstruction": 1.0}, {"reconstruction": 5.0})),
    "surrogate": Sweep(
        "reconstruction", tuple({"surrogate": 0.3, "reconstruction": weight} for weight in (0.2, 1.0, 5.0))
    ),
    "latent": Sweep("latent", ({"latent": 1}, {"latent": 3}, {"latent": 4}), ("lrc", "lwm", "lrc+within")),
    "queries": Sweep("queries", ({"queries": 1}, {"queries": 4})),
    "nuisance": Sweep("nuisance", ({"nuisance": 1}, {"nuisance": 4}), ("lrc", "lrc+within")),
}
"""One thing at a time, but for `surrogate`: the weight of reconstruction by a decoder of limited precision."""

DATA_ONLY = ("noise", "memory", "spread", "visibility", "leak")  # numbers that leave all shapes alone


@dataclass(frozen=True)
class Replica:
    """One network to train: a configuration and a seed, which also draws the world."""

    config: TheoryConfig
    seed: int


def shape_key(replica: Replica) -> TheoryConfig:
    """Equal for replicas that can be trained as one stack."""
    same: dict[str, Any] = dict.fromkeys(DATA_ONLY, 0.5)
    return replace(replica.config, **same)


class Trial:
    """Replicas of one shape and one system: trained together, measured one by one."""

    def __init__(self, system: str, replicas: Sequence[Replica]) -> None:
        if system not in SYSTEMS:
            raise BadInput(f"there is no system {system!r} here; there is {', '.join(SYSTEMS)}")
        self.name, self.system, self.replicas = system, SYSTEMS[system], list(replicas)
        self.config = replicas[0].config
        self.worlds = [FactorWorld(replica.config, replica.seed) for replica in replicas]
        self.objective = objective_of(self.config, self.system)
        networks = []
        with torch.random.fork_rng(devices=[]):
            for replica in replicas:
                torch.manual_seed(replica.seed)
                networks.append(VectorModel(self.config, self.system))
        self.stack = Stack(networks, self.config.lr, self.config.steps, DECAY)

    def _draw(self, generators: list[torch.Generator], count: int, frames: int = 0) -> list[Tensor]:
        """x, actions and decoder noise (R, B, T, ...), each replica from its own world and generator."""
        drawn = []
        for world, generator in zip(self.worlds, generators, strict=True):
            t = world.sample(count, generator, frames, self.system.clips_of_episode(self.config))
            noise = torch.zeros(*t.x.shape[:2], self.config.latent_width)
            if self.config.surrogate:
                noise.normal_(generator=generator)
            drawn.append((t.x, t.a, noise))
        return [torch.stack(parts) for parts in zip(*drawn, strict=True)]

    def _generators(self, purpose: int) -> list[torch.Generator]:
        return [torch.Generator().manual_seed(1000 * purpose + replica.seed) for replica in self.replicas]

    def train(self, watch: Callable[[int], None] = lambda done: None) -> None:
        """All steps; `watch` is told how many are done."""
        generators = self._generators(1)
        for step in range(self.config.steps):
            inputs = self._draw(generators, self.config.batch)
            losses = self.stack.step(
                lambda network, *own, at=step: self.objective(network(*own), at)["total"], *inputs
            )
            if not losses.isfinite().all():
                raise Diverged(f"the objective of {self.name} is not finite at step {step}")
            watch(step + 1)

    @torch.no_grad()
    def held_out_terms(self) -> list[dict[str, float]]:
        """Every term of the objective, unweighted, on new trajectories."""
        generators = self._generators(2)
        batches = []
        for batch in range(OBJECTIVE_BATCHES):
            inputs = self._draw(generators, self.config.batch)
            batches.append(
                self.stack.apply(lambda net, *own, at=batch: self.objective(net(*own), at), *inputs)
            )
        means = {name: torch.stack([terms[name] for terms in batches]).mean(dim=0) for name in batches[0]}
        return [{name: float(mean[i]) for name, mean in means.items()} for i in range(len(self.replicas))]

    @torch.no_grad()
    def _streams(self, pairs: list[Trajectories]) -> dict[str, Tensor]:
        """z, u, both, the next z and what was predicted for it: (R, n, d), one row per trajectory."""

        def read(network: Any, x: Tensor, a: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
            out = network(x, a, noise)
            z = out.z[:, :, 0]
            u = z[:, :, :0] if out.u is None else out.u.flatten(2)
            return z[:, 0], u[:, 0], z[:, 1], out.z_pred[:, 0, 0]

        x, a = torch.stack([p.x for p in pairs]), torch.stack([p.a for p in pairs])
        silent = torch.zeros(*x.shape[:3], self.config.latent_width)
        z, u, after, predicted = self.stack.apply(read, x, a, silent)
        streams = {"z": z, "after": after, "predicted": predicted}
        return {**streams, "u": u, "zu": torch.cat([z, u], dim=-1)} if self.system.context else streams

    def measure(self) -> list[dict[str, Any]]:
        """One dictionary of figures for each replica."""
        generators = self._generators(3)
        count = FIT_ROWS + TEST_ROWS
        pairs = [w.sample(count, g, frames=2) for w, g in zip(self.worlds, generators, strict=True)]
        streams = self._streams(pairs)
        truth = torch.stack([torch.cat([p.s[:, 0], p.v[:, 0]], dim=-1) for p in pairs])  # (R, n, d_s + d_v)
        probed: list[str] = [name for name in ("z", "u", "zu") if name in streams]
        residuals = {name: probe(streams[name], truth, self.config.probe_steps) for name in probed}
        terms = self.held_out_terms()
        measured = []
        for i, (world, pair) in enumerate(zip(self.worlds, pairs, strict=True)):
            arrays = {name: stream[i].double().numpy() for name, stream in streams.items()}
            own = {name: residual[i].double().numpy() for name, residual in residuals.items()}
            figures: dict[str, Any] = readings(world, pair, arrays, own)
            figures |= gaussianity(streams["z"][i], self.config)
            theorem = oracle_terms(world, self.system, 0.0, self.replicas[i].seed)
            figures |= {f"term_{name}": value for name, value in terms[i].items() if name != "total"}
            figures |= {"objective": terms[i]["total"], "objective_theorem": theorem and theorem["total"]}
            measured.append(figures)
        return measured


def probe(features: Tensor, targets: Tensor, steps: int) -> Tensor:
    """Nonlinear read-outs (R,n,d) -> (R,n,q), fitted on the first rows: residuals on the others."""
    mean, scale = features.mean(dim=1, keepdim=True), features.std(dim=1, keepdim=True) + 1e-6
    x = (features - mean) / scale
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        networks = [Skip(x.shape[-1], targets.shape[-1], PROBE_WIDTH) for _ in x]
    stack = Stack(networks, PROBE_RATE, steps, decay=0.0)
    generator = torch.Generator().manual_seed(0)

    def loss(network: Any, rows: Tensor, wanted: Tensor) -> Tensor:
        return (network(rows) - wanted).square().mean()

    for _ in range(steps):
        ids = torch.randint(FIT_ROWS, (PROBE_BATCH,), generator=generator)
        stack.step(loss, x[:, ids], targets[:, ids])
    with torch.no_grad():
        predicted: Tensor = stack.apply(lambda network, rows: network(rows), x[:, FIT_ROWS:])
    return targets[:, FIT_ROWS:] - predicted


def readings(
    world: FactorWorld, pair: Trajectories, streams: dict[str, Array], residuals: dict[str, Array]
) -> dict[str, float]:
    """What z and u say of s and v, and how well the next state is foretold."""
    config, fit, test = world.config, slice(None, FIT_ROWS), slice(FIT_ROWS, None)
    truth = {"s": pair.s[:, 0].double().numpy(), "v": pair.v[:, 0].double().numpy()}
    where = {"s": slice(None, config.state), "v": slice(config.state, None)}
    z = streams["z"]
    figures = {"s_z_orthogonal": procrustes_r2(z[fit], truth["s"][fit], z[test], truth["s"][test])}
    for factor, known in truth.items():
        for stream, residual in residuals.items():
            features = streams[stream]
            linear = known[test] - Readout.fit(features[fit], known[fit], ridge=1e-6)(features[test])
            figures[f"{factor}_{stream}_linear"] = total_r2(linear, known[test])
            figures[f"{factor}_{stream}_probe"] = total_r2(residual[:, where[factor]], known[test])
            figures[f"{factor}_{stream}_bits"] = bits(residual[:, where[factor]], known[test])
    error = float(np.square(streams["predicted"][test] - streams["after"][test]).mean())
    after = pair.s[:, 1].double().numpy()
    foretold = Readout.fit(streams["predicted"][fit], after[fit], ridge=1e-6)(streams["predicted"][test])
    return {
        **figures,
        "prediction_error": error,
        "prediction_floor": config.noise,
        "state_ahead_error": float(np.square(foretold - after[test]).mean()),
    }


def gaussianity(z: Tensor, config: TheoryConfig) -> dict[str, float]:
    """Total correlation of z (n,d), and its distance from N(0, I) by SIGReg."""
    held = z[FIT_ROWS:]
    rows = held.double().numpy()
    generator = torch.Generator().manual_seed(0)
    settings = SigRegConfig(projections=256)
    batches = held[: len(held) // config.batch * config.batch].unflatten(0, (config.batch, -1))
    small = float(sigreg(batches.unsqueeze(2), settings, generator))  # each batch as a step of a clip
    whole = float(sigreg(held[:, None, None], settings, generator))
    return {
        "tc_gaussian": gaussian_total_correlation(rows),
        "tc_neighbours": total_correlation(rows[: TEST_ROWS // 2]),
        "sigreg_over_floor": small / GAUSSIAN_FLOOR,
        "gaussian_distance": (whole - GAUSSIAN_FLOOR) / len(held),
    }


@torch.no_grad()
def oracle_terms(world: FactorWorld, system: System, degrees: float, seed: int) -> dict[str, float] | None:
    """The objective at z = cos(angle) s + sin(angle) v, u = v, best prediction, perfect decoder.

    At 0 degrees this is the theorem's solution. Every other angle below 90 shares its Gaussian z, its
    constant u and its perfect reconstruction: with v known from u, s = (z - sin v) / cos. u is v times
    ROOM, so that the variance hinge does not act on the scatter of small batches. None where the dimensions
    do not allow it, or where a noisy decoder cannot be perfect.
    """
    config = world.config
    if not config.matched or (system.context and config.surrogate):
        return None
    if degrees and config.nuisance < config.state:
        return None
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    objective = objective_of(config, system)
    generator = torch.Generator().manual_seed(2000 + seed)
    keep = cos**2 * world.A + sin**2 * torch.eye(config.state)  # Cov(z', z), and Cov(z) = I
    batches = []
    together = system.clips_of_episode(config)
    for batch in range(OBJECTIVE_BATCHES):
        t = world.sample(config.batch, generator, per_episode=together)
        z = cos * t.s + (sin * t.v[..., : config.state] if degrees else 0)
        predicted = z[:, :-1] @ keep.T + cos * (t.a @ world.B.T)
        u = ROOM * t.v.unflatten(-1, (config.context_tokens, config.token)) if system.context else None
        out = outputs(z, predicted, t.a, t.x, u, t.x if system.context else None, together)
        batches.append(objective(out, batch))
    return {name: float(torch.stack([terms[name] for terms in batches]).mean()) for name in batches[0]}


def account(config: TheoryConfig, seed: int, system: str = "lrc") -> list[dict[str, Any]]:
    """The objective of a system along the path from z = s to z = v, measured and in closed form.

    Over all episodes z is N(0, I) everywhere on the path; given its episode it is N(0, c I).
    """
    world = FactorWorld(config, seed)
    fixed = {"noise_bound": noise_bound(config), "shown": world.shown()}
    lines: list[dict[str, Any]] = []
    for degrees in ANGLES:
        terms = oracle_terms(world, SYSTEMS[system], degrees, seed)
        if terms is None:
            return []
        kept = math.cos(math.radians(degrees)) ** 2
        seen = 1.0 if SYSTEMS[system].gaussian == "sigreg" else kept
        lines.append(
            {
                "system": system,
                "degrees": degrees,
                "objective": terms["total"],
                **{f"term_{name}": value for name, value in terms.items() if name != "total"},
                "prediction_closed_form": mixed_error(config, kept),
                "sigreg_closed_form": expected_sigreg(seen, config.batch),
                "v_bits": -0.5 * math.log2(kept) * config.state,
                **fixed,
            }
        )
    return lines


def config_hash(config: TheoryConfig, system: str) -> str:
    """Short hash of all that decides a replica's outcome but its seed."""
    return digest([asdict(config), system])

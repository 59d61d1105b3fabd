"""What is here, what is missing, and how to get it."""

from __future__ import annotations

import ctypes.util
import os
import platform
import shutil
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from lrc_jepa import __version__
from lrc_jepa.config import PlanConfig
from lrc_jepa.extras import CLONE, PACKAGES, here, install_extra, unbuilt
from lrc_jepa.models import build_model
from lrc_jepa.models.base import Model
from lrc_jepa.plan.cem import cem
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.problem import Box, Problem, episode_generators
from lrc_jepa.recipes import get_recipe

CORE = ("torch", "numpy", "safetensors", "rich", "pillow")
LEAST_DISK = 5e9  # bytes a micro experiment may want


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    name: str
    value: str
    remedy: str = ""


def _packages() -> list[Finding]:
    findings = [Finding("lrc-jepa", __version__), Finding("python", platform.python_version())]
    findings += [Finding(name, metadata.version(name)) for name in CORE]
    return findings + [_extra(name) for name in dict.fromkeys(p.extra for p in PACKAGES.values())]


def _extra(name: str) -> Finding:
    """What of an extra is missing, and how to get it."""
    missing = {module: p.serves for module, p in PACKAGES.items() if p.extra == name and not here(module)}
    if not missing:
        return Finding(f"[{name}]", "installed")
    told = ", ".join(f"{module} ({serves})" for module, serves in missing.items())
    remedies = [unbuilt(module) or install_extra(name) for module in missing]
    return Finding(f"[{name}]", f"missing: {told}", "; ".join(dict.fromkeys(remedies)))


def route(driver: bool, built_for: str | None) -> Finding:
    """Whether torch is built for what is here: an NVIDIA driver or none, and the CUDA that torch is built for."""
    if driver and built_for:
        return Finding("torch build", f"CUDA {built_for}, and a driver is here")
    if driver:
        remedy = "pip install --force-reinstall torch (the build of your CUDA: pytorch.org)"
        return Finding("torch build", "CPU, though an NVIDIA driver is here", remedy)
    if built_for:
        remedy = "torch's CPU build saves gigabytes (choose CPU at pytorch.org)"
        return Finding("torch build", f"CUDA {built_for}, and no driver is here", remedy)
    return Finding("torch build", "CPU, and no NVIDIA driver is here")


def install_route(system: str, driver: bool, built_for: str | None) -> Finding:
    """The line of README's table of installs that fits this machine, and what to type."""
    extras = pinned = install_extra("lab")
    if (CLONE / "constraints.txt").is_file():
        versions = "constraints.txt" if Path.cwd() == CLONE else CLONE / "constraints.txt"
        pinned = extras.replace("install", f"install -c {versions}", 1)
    if driver:
        first = "" if built_for else "pip install --force-reinstall torch, then "
        return Finding("install route", f"CUDA: {first}{extras}")
    if system == "Darwin":
        return Finding("install route", f"a CPU under macOS: {pinned}")
    first = "torch's CPU build (choose CPU at pytorch.org), then " if built_for else ""
    return Finding("install route", f"a CPU under Linux: {first}{pinned}")


def _machine() -> list[Finding]:
    free = shutil.disk_usage(Path.cwd()).free
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none: the CPU is used"
    little = "" if free > LEAST_DISK else "free some space, or work in another folder"
    driver = shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia/version").exists()
    return [
        route(driver, torch.version.cuda),
        install_route(platform.system(), driver, torch.version.cuda),
        Finding("CPU cores, torch threads", f"{os.cpu_count()}, {torch.get_num_threads()}"),
        Finding("GPU", device),
        Finding("free disk here", f"{free / 1e9:.1f} GB", little),
    ]


def _gl() -> list[Finding]:
    """Libraries that MuJoCo can draw with when there is no screen."""
    lines = []
    for backend, library, package in (("egl", "EGL", "libegl1"), ("osmesa", "OSMesa", "libosmesa6")):
        installed = ctypes.util.find_library(library) is not None
        remedy = "" if installed else f"apt-get install {package} (only Reacher and Cube need one of the two)"
        lines.append(Finding(f"GL backend {backend}", "found" if installed else "missing", remedy))
    return lines


def _self_test() -> tuple[Finding, bool]:
    """Build a tiny model, encode, plan, and see a plan inside the box."""
    began = time.perf_counter()
    model: Model = build_model(get_recipe("tworoom-lrc-debug")).eval()
    frames = torch.randint(0, 256, (2, 1, 3, 32, 32), dtype=torch.uint8)
    with torch.inference_mode():
        z = model.encode(frames)
        cost = LatentCost(model, z[:1], torch.zeros(1, 0, model.spec.action_dim), z[1:, 0])
        bound = torch.ones(model.spec.action_dim)
        config = PlanConfig(samples=16, iterations=2, elites=4)
        plan = cem(Problem(cost, Box(-bound, bound), config, episode_generators(0, [0])))
    good = bool(plan.actions.abs().max() <= 1 and plan.best_cost.isfinite().all())
    seconds = time.perf_counter() - began
    return Finding("self-test: encode and plan", f"{'passed' if good else 'FAILED'} in {seconds:.1f} s"), good


def examine() -> tuple[list[Finding], bool]:
    """Packages, the machine, drawing, and a small test of the library itself; whether that passed."""
    test, good = _self_test()
    return [*_packages(), *_machine(), *_gl(), test], good

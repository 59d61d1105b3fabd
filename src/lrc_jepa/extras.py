"""Packages that only some work needs: which extra brings each, and the one sentence where it is missing.

Modules below the command line that everybody imports take such a package with `later`, others at once: what is then
missing is told by the command line with `lacking`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lrc_jepa.errors import BadInput

NAME = "lrc-jepa"
CLONE = Path(__file__).resolve().parents[2]
"""Where the repository is, for a copy that runs from a clone of it."""


@dataclass(frozen=True)
class Package:
    """A package that an extra brings."""

    extra: str
    serves: str
    """What it is for, in a few words."""
    unbuilt_from: tuple[int, int] | None = None
    """The first Python that it has no build for."""


PACKAGES: dict[str, Package] = {
    "scipy": Package("lab", "experiments"),
    "sklearn": Package("lab", "probes"),
    "yaml": Package("lab", "configurations in YAML"),
    "matplotlib": Package("report", "figures"),
    "jinja2": Package("report", "the page"),
    "h5py": Package("data", "HDF5"),
    "hdf5plugin": Package("data", "compressed HDF5"),
    "simplejpeg": Package("data", "frames as JPEG"),
    "av": Package("data", "video"),
    "pyarrow": Package("lerobot", "LeRobot datasets"),
    "lance": Package("lance", "Lance datasets"),
    "zarr": Package("zarr", "zarr datasets"),
    "gymnasium": Package("envs", "worlds as gymnasium environments"),
    "pymunk": Package("envs", "Push-T"),
    "cv2": Package("envs", "Push-T, Reacher and Cube"),
    "mujoco": Package("envs", "Reacher and Cube"),
    "dm_control": Package("envs", "Reacher", unbuilt_from=(3, 13)),
    "ogbench": Package("envs", "Cube", unbuilt_from=(3, 13)),
    "transformers": Package("pretrained", "DINOv2 and V-JEPA2"),
    "huggingface_hub": Package("hub", "runs and datasets on a hub"),
    "fsspec": Package("remote", "datasets and runs at a URL"),
    "obstore": Package("remote", "datasets and runs in an object store"),
    "tensorboard": Package("tensorboard", "curves of training"),
    "rerun": Package("rerun", "recordings for the Rerun viewer"),
    "wandb": Package("wandb", "tracking with W&B"),
    "mlflow": Package("mlflow", "tracking with MLflow"),
    "sqlalchemy": Package("mlflow", "the file that MLflow writes"),
    "alembic": Package("mlflow", "the file that MLflow writes"),
    "trackio": Package("trackio", "tracking with Trackio"),
    "onnx": Package("export", "models as ONNX"),
    "onnxscript": Package("export", "models as ONNX"),
    "onnxruntime": Package("export", "exported models"),
    "msgpack": Package("serve", "the real-time loop"),
    "pygame": Package("envs", "Push-T as it was published"),
    "starlette": Package("studio", "the studio"),
    "uvicorn": Package("studio", "the studio"),
    "ray": Package("ray", "jobs on a cluster"),
    "websockets": Package("serve", "the studio, and policies for others"),
}
"""By the name that is imported."""
INCLUDED = {"lab": ("report",), "studio": ("lab", "report")}
"""Extras that bring others."""
WHOLE = {"lrc lab": "lab", "lrc sweep": "lab"}
"""Commands that soon need more than what they miss first, and the extra that brings all of it."""


def here(module: str) -> bool:
    """Whether a package is installed."""
    return find_spec(module) is not None


def complete(extra: str) -> bool:
    """Whether all that an extra brings is installed."""
    brought = (extra, *INCLUDED.get(extra, ()))
    return all(here(module) for module, package in PACKAGES.items() if package.extra in brought)


def remedy(module: str, purpose: str = "") -> str:
    """What to do where a package is missing; `purpose` is what it is missing for."""
    return unbuilt(module) or f"install it with: {install(module, purpose)}"


def unbuilt(module: str) -> str:
    """That there is no build of a package for this Python, and which to use; empty where there is one."""
    first, python = PACKAGES[module].unbuilt_from, sys.version_info[:2]
    if first is None or python < first:
        return ""
    return f"it has no build for Python {python[0]}.{python[1]}: use Python 3.11 or 3.12"


def install(module: str, purpose: str = "") -> str:
    """The command that brings a package to this copy of the library, wherever it was installed from."""
    extra, whole = PACKAGES[module].extra, WHOLE.get(purpose, "")
    return install_extra(whole if extra in INCLUDED.get(whole, ()) else extra)


def install_extra(extra: str) -> str:
    """The command that brings an extra to this copy."""
    if (CLONE / "pyproject.toml").is_file():
        return f"pip install -e '{'.' if Path.cwd() == CLONE else CLONE}[{extra}]'"
    address, version_control = _origin()
    if version_control:
        return f"pip install '{NAME}[{extra}] @ {version_control}+{address}'"
    place = url2pathname(urlsplit(address).path) if address.startswith("file:") else ""
    return f"pip install '{place or NAME}[{extra}]'"


def _origin() -> tuple[str, str]:
    """The address that pip wrote down for this copy, and the version control there; empty: from an index, by its name."""
    try:
        noted = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, json.JSONDecodeError):
        noted = {}
    return noted.get("url", ""), noted.get("vcs_info", {}).get("vcs", "")


def lacking(error: ModuleNotFoundError, purpose: str) -> BadInput | None:
    """The sentence for a package that could not be imported; None where no extra brings it."""
    package = (error.name or "").partition(".")[0]
    if package not in PACKAGES:
        return None
    return BadInput(f"{purpose} needs the package {package}; {remedy(package, purpose)}")


def need(module: str, purpose: str) -> Any:
    """A module of a package that an extra brings; missing, one sentence says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as absent:  # one that is here and fails says itself why
        raise lacking(absent, purpose) or absent from None


class Later:
    """A module that is imported when something of it is first used."""

    def __init__(self, module: str, purpose: str) -> None:
        self._module, self._purpose = module, purpose

    def __getattr__(self, name: str) -> Any:
        return getattr(need(self._module, self._purpose), name)


def later(module: str, purpose: str) -> Any:
    """A module of a package that an extra brings, imported when it is first used."""
    return Later(module, purpose)

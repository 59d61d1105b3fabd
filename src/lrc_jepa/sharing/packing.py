"""What is sent of a run or a dataset, laid out in a folder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import file_digest, read_json, write_json
from lrc_jepa.hub import Address, read_address
from lrc_jepa.models.backbones import BackboneName, found_from
from lrc_jepa.remote.folders import send_dataset
from lrc_jepa.remote.runs import send_run
from lrc_jepa.run import CONFIG, RESULTS, Run
from lrc_jepa.sharing.card import dataset_card, model_card
from lrc_jepa.training.checkpoint import REQUIRED, newest_checkpoint, verify


def facts_of(store: Store) -> dict[str, object]:
    """What a card says of a dataset."""
    return {
        "world": store.world,
        "appearance": (store.meta.get("appearance") or {}).get("kind", "unknown"),
        "episodes": store.episodes,
        "frames": len(store.pixels),
        "image size": store.image_size,
        "hash": store.digest(),
    }


def pack_run(run: Run, folder: Path, address: Address) -> None:
    """A run as it is shared: the newest weights without the optimiser's state, rows, and a card."""
    checkpoint = newest_checkpoint(run.folder)
    verify(checkpoint)
    inner = folder / "checkpoints" / checkpoint.name
    inner.mkdir(parents=True)
    for name in REQUIRED:
        shutil.copyfile(checkpoint / name, inner / name)
    _leave_out_places(inner)
    write_json(inner / "manifest.json", {name: file_digest(inner / name) for name in REQUIRED})
    pack_backbone(run, checkpoint, folder)
    own = read_json(run.folder / CONFIG, f"run {run.folder}")
    data = Path(str(own.pop("data", "")))  # a folder of this machine says nothing elsewhere
    own.pop("init", None)
    write_json(folder / CONFIG, own)
    if run.results.is_file():
        shutil.copyfile(run.results, folder / RESULTS)
    store = Store(data) if (data / "meta.json").is_file() else None
    trained_on = store if store and store.digest() == run.checkpoint.provenance.get("data") else None
    facts = facts_of(trained_on) if trained_on else {}  # what lies there now may be another dataset
    (folder / "README.md").write_text(model_card(run.folder, facts, str(address)))


def _leave_out_places(checkpoint: Path) -> None:
    """Forget in which folder of this machine the backbone was: it is found from the checkpoint, or at the hub."""
    described = read_json(checkpoint / CONFIG, f"checkpoint {checkpoint}")
    if described.get("provenance", {}).get("backbone"):
        described["provenance"]["backbone"] = ""
        write_json(checkpoint / CONFIG, described)


def pack_backbone(run: Run, checkpoint: Path, folder: Path) -> None:
    """The run whose tokens this one stands on, where it is looked for from the checkpoint; the hub's needs no packing."""
    name = run.config.model.backbone
    source = BackboneName.parse(name) if name else None
    if source is None or source.on_hub or source.kind == "random":
        return
    where = Path(source.where)
    if source.kind != "checkpoint" or where.is_absolute() or ".." in where.parts:
        raise BadInput(
            f"{run.folder} stands on {name}, a place of this machine that others would not have: only a backbone of "
            "the hub, or checkpoint:RUN with a path from where it was trained, can be sent with it"
        )
    home = run.checkpoint.provenance.get("backbone", "")  # loading it has compared the weights
    below = newest_checkpoint(Path(found_from(name, home, checkpoint).partition(":")[2]))
    (folder / where).mkdir(parents=True)
    for file in REQUIRED:
        shutil.copyfile(below / file, folder / where / file)
    _leave_out_places(folder / where)


def pack_dataset(store: Store, folder: Path, address: Address) -> None:
    """A dataset as it is shared: its files, and a card."""
    shutil.copytree(store.path, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    (folder / "README.md").write_text(dataset_card(facts_of(store), str(address)))


def pack(what: Path, folder: Path, to: str) -> Address:
    """Fill a folder with what is sent -> where it goes."""
    address = read_address(to)
    if (what / "index.npz").is_file():
        address = replace(address, kind="dataset")
        pack_dataset(Store(what), folder, address)
    elif (what / CONFIG).is_file():
        pack_run(Run(what), folder, address)
    else:
        raise BadInput(f"{what} is neither a run nor a dataset")
    return address


def send_as_it_is(what: Path, url: str) -> None:
    """A run or a dataset to an object store, whole: a run can go on from there."""
    if (what / "index.npz").is_file():
        Store(what)
        send_dataset(what, url)
    elif (what / CONFIG).is_file():
        send_run(what, url)
    else:
        raise BadInput(f"{what} is neither a run nor a dataset")

"""Small trained models that come with the library, a folder each: a checkpoint, its card, and what it was made of.

`lrc_jepa.load(NAME)` reads one where it lies. A command that writes beside a run unpacks it into runs/NAME first.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lrc_jepa.console import say
from lrc_jepa.errors import BadInput
from lrc_jepa.files import read_json, write_json
from lrc_jepa.folders import whole_folder

HOME = Path(__file__).parent
ORIGIN, MANIFEST = "shipped.json", "manifest.json"
"""Beside the checkpoint: where its dataset is looked for and how to make it, and the hash of its configuration."""
CARD = "card.md"


def names() -> list[str]:
    """What there is."""
    return sorted(path.parent.name for path in HOME.glob(f"*/{ORIGIN}"))


def find(path: Path | str) -> Path | None:
    """The folder of a shipped model, where a bare name is given and nothing of that name is here."""
    name = str(path)
    bare = Path(name).name == name and not Path(name).exists()
    return HOME / name if bare and name in names() else None


def unpacked(path: Path) -> Path:
    """A run that can be written beside: the path itself, or a shipped model laid out as a run in runs/NAME."""
    source = find(path)
    if source is None:
        return path
    target = Path("runs") / source.name
    if target.exists() and not _holds(target, source):
        raise BadInput(
            f"{target} is not the {source.name} that comes with this library, which would lie there: "
            f"say {target} if you mean that run, else rename it"
        )
    if not target.exists():
        origin = read_json(source / ORIGIN, f"shipped model {source.name}")
        described = read_json(source / "config.json", f"shipped model {source.name}")
        with whole_folder(target) as folder:
            checkpoint = folder / "checkpoints" / f"{described['step']:08d}"
            shutil.copytree(source, checkpoint, ignore=shutil.ignore_patterns(CARD, ORIGIN))
            shutil.copy(source / CARD, folder / CARD)
            known = {"config": described["config"], "config_hash": origin["config_hash"]}
            write_json(folder / "config.json", {**known, "data": origin["data"]})
        say(f"{source.name}, which comes with the library, lies in {target} now")
        if not Path(origin["data"]).exists():
            say(f"its episodes: {origin['collect']}")
    return target


def _holds(run: Path, source: Path) -> bool:
    """Whether a run is a shipped model that was laid out, with no checkpoint of another training."""
    saved = [folder / MANIFEST for folder in (run / "checkpoints").glob("[0-9]*")]
    own = (source / MANIFEST).read_bytes()
    return len(saved) == 1 and saved[0].is_file() and saved[0].read_bytes() == own

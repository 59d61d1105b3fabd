"""New datasets out of episodes of others: some dropped, cut shorter, put together or taken apart.

Whatever is made is a list of pieces, rows of one episode each, and is written in one way. Columns, arrays of
each episode and what is known of the data go along; pictures that are JPEG are copied, not made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from lrc_jepa.bounds import Checked, Count, Natural
from lrc_jepa.console import OnProgress, silent
from lrc_jepa.data.jpeg import JpegColumn, JpegFrames
from lrc_jepa.data.storage import Growing, grow
from lrc_jepa.data.store import Store, check_target, write_index
from lrc_jepa.errors import BadInput
from lrc_jepa.folders import check_writable, whole_folder

BLOCK = 256  # rows held at a time
MADE_ANEW = ("format", "versions", "columns", "index", "coverage")  # of meta.json
ESSENTIAL = ("action", "state")  # columns that must be alike; of the others those are kept that are
FROM, DATASET = "ep_from", "ep_dataset"  # each episode's number before, and of several datasets which one


@dataclass(frozen=True)
class Piece:
    """Frames `first` to `last`, the end not meant, of one episode."""

    store: Store
    episode: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of the store."""
        offset = int(self.store.ep_offset[self.episode])
        return offset + self.first, offset + self.last


def whole(store: Store, episodes: Iterable[int]) -> list[Piece]:
    """These episodes, as they are."""
    return [Piece(store, e, 0, int(store.ep_len[e])) for e in episodes]


def others(store: Store, episodes: Iterable[int]) -> list[int]:
    """The episodes that are not among these."""
    return sorted(set(range(store.episodes)) - set(episodes))


def trimmed(
    store: Store, episodes: Iterable[int], *, first: int = 0, last: int = 0, length: int | None = None
) -> list[Piece]:
    """All episodes; of these without their first and last frames, and then at most `length` long."""
    chosen = set(episodes)
    pieces = []
    for piece in whole(store, range(store.episodes)):
        if piece.episode in chosen:
            end = piece.last - last
            end = end if length is None else min(end, first + length)
            if end <= first:
                raise BadInput(
                    f"episode {piece.episode} has {len(piece)} frames, of which nothing would be left; drop it"
                )
            piece = Piece(store, piece.episode, first, end)
        pieces.append(piece)
    return pieces


def ranges(episodes: Iterable[int]) -> str:
    """Numbers in few words: 0-3, 7."""
    spans: list[list[int]] = []
    for number in sorted(episodes):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def edited_meta(store: Store, how: str, **what: Any) -> dict[str, Any]:
    """What is known of a dataset, and what is done to it now."""
    kept = {name: value for name, value in store.meta.items() if name not in MADE_ANEW}
    step = {"how": how, **what, "from": _origin(store)}
    return {**kept, "edited": [*store.meta.get("edited", []), step]}


def _origin(store: Store) -> dict[str, str]:
    return {"name": store.path.name, "hash": store.digest()}


def check_places(stores: Iterable[Store], places: Sequence[Path], *, overwrite: bool = False) -> None:
    """Refuse places that new datasets of these cannot be written to, before any work is done for them."""
    own = {store.path.resolve() for store in stores}
    if len({place.resolve() for place in places}) < len(places):
        raise BadInput("the two parts need a folder each")
    for place in places:
        if place.resolve() in own:
            raise BadInput(f"{place} is the dataset itself; write the new one to another folder")
        if any(place.resolve() in other.resolve().parents for other in places):
            raise BadInput(f"{place} would hold the other part too: the two parts need a folder each")
        check_target(place, overwrite=overwrite)
        check_writable(place.parent)


def write_pieces(
    pieces: Sequence[Piece],
    out: Path,
    meta: dict[str, Any],
    *,
    overwrite: bool = False,
    progress: OnProgress = silent,
) -> None:
    """Write pieces, one episode each, to a new dataset at `out`."""
    if not pieces:
        raise BadInput("no episode would be left; a dataset needs at least one")
    stores = list({id(piece.store): piece.store for piece in pieces}.values())
    check_places(stores, [out], overwrite=overwrite)
    first, rows, done = stores[0], sum(map(len, pieces)), 0
    with whole_folder(out, overwrite=overwrite) as aside:
        columns: dict[str, Growing] = {}
        try:
            for name in common_columns(stores):
                like = first.columns[name]
                columns[name] = grow(aside, name, like.dtype, like.shape[1:], first.storage)
            for piece in pieces:
                for name, column in columns.items():
                    _copy(piece, name, column)
                    column.mark()
                done += len(piece)
                progress(done, rows)
        finally:
            for column in columns.values():
                column.close()
        write_index(aside, meta, columns, list(map(len, pieces)), _per_episode(pieces, stores))


def _copy(piece: Piece, name: str, column: Growing) -> None:
    """Add the rows of a piece to a column."""
    start, stop = piece.rows
    values = piece.store.columns[name]
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        if isinstance(values, JpegFrames):
            cast(JpegColumn, column).append_encoded([values.encoded(row) for row in range(begin, end)])
        elif name == "timestamp":  # counted from the episode's start, wherever that is now
            column.append(values[begin:end] - values[start])
        else:
            column.append(np.asarray(values[begin:end]))


def _per_episode(pieces: Sequence[Piece], stores: Sequence[Store]) -> dict[str, list[Any]]:
    """The arrays that all datasets have, and where each episode comes from."""
    names = [
        name
        for name, values in stores[0].per_episode.items()
        if name not in (FROM, DATASET)
        and all(name in s.per_episode and s.per_episode[name].shape[1:] == values.shape[1:] for s in stores)
    ]
    arrays = {name: [piece.store.per_episode[name][piece.episode] for piece in pieces] for name in names}
    arrays[FROM] = [piece.episode for piece in pieces]
    if len(stores) > 1:
        numbers = {id(store): number for number, store in enumerate(stores)}
        arrays[DATASET] = [numbers[id(piece.store)] for piece in pieces]
    return {name.removeprefix("ep_"): values for name, values in arrays.items()}


def common_columns(stores: Sequence[Store]) -> list[str]:
    """Columns that all datasets have, with values of one type and shape."""
    kinds = [{name: (v.dtype, v.shape[1:]) for name, v in store.columns.items()} for store in stores]
    return [name for name, kind in kinds[0].items() if all(other.get(name) == kind for other in kinds)]


def facts(store: Store) -> dict[str, Any]:
    """What datasets must have in common to be one."""
    meta, source = store.meta, store.meta.get("source")
    source = source if isinstance(source, dict) else {}
    labels = source.get("labels")
    shapes = {
        f"column {n}": (str(store.columns[n].dtype), store.columns[n].shape[1:])
        for n in ESSENTIAL
        if n in store.columns
    }
    return {
        "size of frames": store.image_size,
        "how frames are kept": asdict(store.storage),
        "width of actions": store.action.shape[1],
        "action names": meta.get("action_names")
        or (labels.get("action") if isinstance(labels, dict) else None),
        "action units": meta.get("action_units"),
        "actions joined": source.get("stride", 1),
        "lowest actions": meta.get("action_low"),
        "highest actions": meta.get("action_high"),
        "largest change of actions": meta.get("action_change"),
        "frame rate": meta.get("frame_rate"),
        "camera": source.get("cameras") or source.get("camera"),
        "crop": source.get("crop"),
        "world": store.world,
        "appearance": meta.get("appearance"),
        **shapes,
    }


def check_alike(stores: Sequence[Store]) -> None:
    """Refuse to put together what differs, and say in what."""
    first = facts(stores[0])
    for store in stores[1:]:
        other = facts(store)
        differ = [
            f"{name}: {_said(first.get(name))} and {_said(other.get(name))}"
            for name in dict.fromkeys([*first, *other])
            if first.get(name) != other.get(name)
        ]
        if differ:
            raise BadInput(f"{stores[0].path} and {store.path} differ in {'; '.join(differ)}")


def _said(value: Any) -> str:
    return "not said" if value is None else str(value)


def merged_meta(stores: Sequence[Store]) -> dict[str, Any]:
    """What all datasets say alike, and which ones they were."""
    metas = [{n: v for n, v in store.meta.items() if n not in MADE_ANEW} for store in stores]
    alike = _alike(metas)
    sources = [meta["source"] for meta in metas if isinstance(meta.get("source"), dict)]
    if len(sources) == len(stores) and "source" not in alike:
        left_out = sorted({name for source in sources for name in source.get("left_out", [])})
        names = " + ".join(str(source.get("name")) for source in sources)
        alike["source"] = {**_alike(sources), "name": names, "left_out": left_out, "skipped": {}}
    parts = [{**_origin(store), "edited": store.meta.get("edited", [])} for store in stores]
    return {**alike, "edited": [{"how": "merge", "from": parts}]}


def _alike(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {n: v for n, v in tables[0].items() if all(n in t and t[n] == v for t in tables)}


def drop(store: Store, out: Path, episodes: Sequence[int], **how: Any) -> None:
    """The dataset without these episodes."""
    if not episodes:
        raise BadInput("no episode is chosen, so there is nothing to drop")
    kept = whole(store, others(store, episodes))
    write_pieces(kept, out, edited_meta(store, "drop", episodes=ranges(episodes)), **how)


@dataclass(frozen=True)
class Cut(Checked):
    """How much of an episode goes."""

    first: Natural = 0
    """Frames to cut off at the beginning."""
    last: Natural = 0
    """Frames to cut off at the end."""
    length: Count | None = None
    """Most frames to keep, from there on."""


def trim(store: Store, out: Path, episodes: Sequence[int], cut: dict[str, int | None], **how: Any) -> None:
    """The dataset with these episodes cut shorter; `cut` holds first, last and length of `trimmed`."""
    pieces = trimmed(store, episodes, **cast(dict[str, Any], cut))
    write_pieces(pieces, out, edited_meta(store, "trim", episodes=ranges(episodes), **cut), **how)


def merge(stores: Sequence[Store], out: Path, **how: Any) -> None:
    """All episodes of several datasets, in the order given."""
    if len(stores) < 2:
        raise BadInput("name at least two datasets to put together")
    if len({store.path.resolve() for store in stores}) < len(stores):
        raise BadInput("a dataset is named twice")
    check_alike(stores)
    pieces = [piece for store in stores for piece in whole(store, range(store.episodes))]
    write_pieces(pieces, out, merged_meta(stores), **how)


def split(store: Store, out: Path, rest: Path, episodes: Sequence[int], **how: Any) -> None:
    """These episodes at `out`, the others at `rest`."""
    check_places([store], [out, rest], overwrite=how.get("overwrite", False))
    if not 0 < len(set(episodes)) < store.episodes:
        raise BadInput(
            f"{len(set(episodes))} of {store.episodes} episodes are chosen, which leaves one part empty"
        )
    for folder, part in ((out, sorted(set(episodes))), (rest, others(store, episodes))):
        write_pieces(whole(store, part), folder, edited_meta(store, "split", episodes=ranges(part)), **how)

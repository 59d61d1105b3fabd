"""A store as a LeRobot v3.0 folder: parquet tables and H.264 video, written with pyarrow and PyAV."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa import __version__
from lrc_jepa.arrays import Array
from lrc_jepa.console import OnProgress
from lrc_jepa.data.exporters.naming import Naming
from lrc_jepa.data.importers.formats.lerobot import OWN
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import later, need
from lrc_jepa.files import write_json
from lrc_jepa.folders import whole_folder

av = later("av", "writing videos")

DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH = "meta/episodes/chunk-000/file-000.parquet"
FILES_PER_CHUNK = 1000
FILE_MB = 100  # of data and of video: a file is closed at the first border of episodes past this
DEFAULT_RATE = 10.0  # where the store has none; video needs one
SAMPLED_FRAMES = 500  # for the statistics of the images
QUALITY = {"crf": "12", "g": "2"}  # a key frame every second frame, as LeRobot writes it


def _place(number: int) -> dict[str, int]:
    chunk, file = divmod(number, FILES_PER_CHUNK)
    return {"chunk_index": chunk, "file_index": file}


class _Video:
    """The frames of several episodes in one file."""

    def __init__(self, path: Path, size: int, rate: Fraction) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.container: Any = av.open(str(path), "w")
        self.stream: Any = self.container.add_stream("libx264", rate=rate, options=QUALITY)
        self.stream.width = self.stream.height = size
        # Halved colour planes need even sides.
        self.stream.pix_fmt = "yuv420p" if size % 2 == 0 else "yuv444p"
        self.stream.thread_count = 1  # its threads may wait for Python's lock while Python waits for them
        self.frames = self.bytes = 0

    def add(self, frames: Array) -> None:
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            self._mux(self.stream.encode(picture))
            self.frames += 1

    def _mux(self, packets: Any) -> None:
        for packet in packets:
            self.bytes += packet.size
            self.container.mux(packet)

    def close(self) -> None:
        self._mux(self.stream.encode())
        self.container.close()


class _Tables:
    """The parquet files of the rows."""

    def __init__(self, root: Path, pa: Any, pq: Any) -> None:
        self.root, self.pa, self.pq = root, pa, pq
        self.number, self.bytes = -1, 0
        self.writer: Any = None

    def add(self, columns: dict[str, Array]) -> int:
        """Write one episode as one row group -> the number of the file it lies in."""
        pa = self.pa
        arrays = {}
        for name, values in columns.items():
            flat = pa.array(values.ravel())
            wide = values.ndim > 1 and values.shape[1] > 1
            arrays[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1]) if wide else flat
        table = pa.table(arrays)
        if self.writer is None or self.bytes > FILE_MB << 20:
            self.close()
            self.number, self.bytes = self.number + 1, 0
            path = self.root / DATA_PATH.format(**_place(self.number))
            path.parent.mkdir(parents=True, exist_ok=True)
            self.writer = self.pq.ParquetWriter(path, table.schema)
        self.writer.write_table(table)
        self.bytes += table.nbytes
        return self.number

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class _Moments:
    """Smallest, largest, mean and deviation of rows that come in pieces; what is not finite is left out."""

    def __init__(self) -> None:
        self.rows = 0
        self.parts: list[tuple[Array, ...]] = []

    def add(self, rows: Array) -> None:
        rows = rows.reshape(len(rows), -1).astype(np.float64)
        self.rows += len(rows)
        there = np.isfinite(rows)
        known = np.where(there, rows, 0)
        low, high = (np.where(there, rows, -bound).astype(float) for bound in (-np.inf, np.inf))
        self.parts.append((there.sum(0), low.min(0), high.max(0), known.sum(0), (known**2).sum(0)))

    def to_json(self, nest: Callable[[Array], Any] = lambda values: values.tolist()) -> dict[str, Any]:
        counts, low, high, total, squares = (np.stack(values) for values in zip(*self.parts, strict=True))
        count = np.maximum(counts.sum(0), 1)
        mean = total.sum(0) / count
        std = np.sqrt(np.maximum(squares.sum(0) / count - mean**2, 0))
        figures = {"min": low.min(0), "max": high.max(0), "mean": mean, "std": std}
        return {name: nest(np.nan_to_num(value, posinf=0, neginf=0)) for name, value in figures.items()} | {
            "count": [self.rows]
        }


class _Export:
    """One run over the episodes of a store."""

    def __init__(self, store: Store, root: Path) -> None:
        self.pa = need("pyarrow", "writing LeRobot datasets")
        self.pq = need("pyarrow.parquet", "writing LeRobot datasets")
        self.store, self.root = store, root
        self.rate = Fraction(store.meta.get("frame_rate") or DEFAULT_RATE).limit_denominator(1001)
        self.naming = Naming.of(store)
        self.camera = self.naming.camera
        self.moments = {feature: _Moments() for feature in (*self.naming.features.values(), self.camera)}
        self.every = max(1, len(store.pixels) // SAMPLED_FRAMES)
        tasks = store.per_episode.get("ep_task")
        self.tasks = [str(t) for t in tasks] if tasks is not None else [""] * store.episodes
        self.known_tasks = {task: number for number, task in enumerate(dict.fromkeys(self.tasks))}
        self.video: _Video | None = None
        self.video_number = -1

    @contextmanager
    def opened(self) -> Iterator[_Tables]:
        tables = _Tables(self.root, self.pa, self.pq)
        try:
            yield tables
        finally:
            tables.close()
            if self.video is not None:
                self.video.close()

    def rows(self, episode: int) -> dict[str, Array]:
        """The table of one episode."""
        start, length = int(self.store.ep_offset[episode]), int(self.store.ep_len[episode])
        columns: dict[str, Array] = {}
        for name, feature in self.naming.features.items():
            values = np.array(self.store.columns[name][start : start + length])
            values = values.reshape(length, -1)
            if name == "action" and not np.isfinite(values[-1]).all():
                values[-1] = 0  # leads nowhere; LeRobot's readers would take the NaN at its word
            columns[feature] = values
            self.moments[feature].add(values)
        steps = np.arange(length)
        columns["timestamp"] = (steps / float(self.rate)).astype(np.float32)
        columns["frame_index"] = steps
        columns["episode_index"] = np.full(length, episode)
        columns["index"] = start + steps
        columns["task_index"] = np.full(length, self.known_tasks[self.tasks[episode]])
        return columns

    def add_video(self, episode: int) -> dict[str, Any]:
        """Write the frames of one episode -> where they lie."""
        start, length = int(self.store.ep_offset[episode]), int(self.store.ep_len[episode])
        if self.video is None or self.video.bytes > FILE_MB << 20:
            if self.video is not None:
                self.video.close()
            self.video_number += 1
            path = VIDEO_PATH.format(video_key=self.camera, **_place(self.video_number))
            self.video = _Video(self.root / path, self.store.image_size, self.rate)
        begin = self.video.frames / self.rate
        for row in range(start, start + length, 64):
            frames = self.store.pixels[row : min(row + 64, start + length)]
            self.video.add(frames)
            sample = frames[(-row) % self.every :: self.every]
            if len(sample):
                self.moments[self.camera].add(sample.reshape(-1, 3) / 255.0)
        place = {f"videos/{self.camera}/{key}": value for key, value in _place(self.video_number).items()}
        return place | {
            f"videos/{self.camera}/from_timestamp": float(begin),
            f"videos/{self.camera}/to_timestamp": float(begin + length / self.rate),
        }

    def episode_row(self, episode: int, data_file: int) -> dict[str, Any]:
        """What meta/episodes says of one episode."""
        start, length = int(self.store.ep_offset[episode]), int(self.store.ep_len[episode])
        return {
            "episode_index": episode,
            "tasks": [self.tasks[episode]],
            "length": length,
            **{f"data/{key}": value for key, value in _place(data_file).items()},
            "dataset_from_index": start,
            "dataset_to_index": start + length,
            **{f"meta/episodes/{key}": 0 for key in ("chunk_index", "file_index")},
            **self.add_video(episode),
        }

    def write_meta(self, rows: list[dict[str, Any]]) -> None:
        """The files of meta/."""
        path = self.root / EPISODES_PATH
        path.parent.mkdir(parents=True)
        self.pq.write_table(self.pa.Table.from_pylist(rows), path)
        self.pq.write_table(self._task_table(), self.root / "meta/tasks.parquet")
        write_json(self.root / "meta/info.json", self._info())
        stats = {f: m.to_json() for f, m in self.moments.items() if f != self.camera}
        stats[self.camera] = self.moments[self.camera].to_json(
            lambda values: values.reshape(3, 1, 1).tolist()
        )
        stats[self.camera]["count"] = [-(-len(self.store.pixels) // self.every)]
        write_json(self.root / "meta/stats.json", stats)

    def _task_table(self) -> Any:
        """Tasks as pandas writes them with the words as the index; LeRobot looks them up by it."""
        index = "__index_level_0__"
        words = {"pandas_type": "unicode", "numpy_type": "object"}
        numbers = {"pandas_type": "int64", "numpy_type": "int64", "metadata": None}
        pandas = {
            "index_columns": [index],
            "column_indexes": [
                {"name": None, "field_name": None, **words, "metadata": {"encoding": "UTF-8"}}
            ],
            "columns": [
                {"name": "task_index", "field_name": "task_index", **numbers},
                {"name": None, "field_name": index, **words, "metadata": None},
            ],
            "creator": {"library": "lrc-jepa", "version": __version__},
            "pandas_version": "2.2.0",
        }
        table = self.pa.table({"task_index": list(self.known_tasks.values()), index: list(self.known_tasks)})
        return table.replace_schema_metadata({"pandas": json.dumps(pandas)})

    def _info(self) -> dict[str, Any]:
        size = self.store.image_size
        rate = int(self.rate) if self.rate.denominator == 1 else float(self.rate)
        features: dict[str, Any] = {}
        for name, feature in self.naming.features.items():
            values = self.store.columns[name]
            labels = self.naming.labels[name]
            features[feature] = {"dtype": values.dtype.name, "shape": [len(labels)], "names": labels}
        features[self.camera] = {
            "dtype": "video",
            "shape": [size, size, 3],
            "names": ["height", "width", "channels"],
            "info": {
                "video.height": size,
                "video.width": size,
                "video.codec": "h264",
                "video.pix_fmt": "yuv420p" if size % 2 == 0 else "yuv444p",
                "video.is_depth_map": False,
                "video.fps": rate,
                "video.channels": 3,
                "has_audio": False,
            },
        }
        features["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
        for name in ("frame_index", "episode_index", "index", "task_index"):
            features[name] = {"dtype": "int64", "shape": [1], "names": None}
        return {
            "codebase_version": "v3.0",
            "robot_type": self.naming.robot,
            "total_episodes": self.store.episodes,
            "total_frames": len(self.store.pixels),
            "total_tasks": len(self.known_tasks),
            "chunks_size": FILES_PER_CHUNK,
            "data_files_size_in_mb": FILE_MB,
            "video_files_size_in_mb": FILE_MB,
            "fps": rate,
            "splits": {"train": f"0:{self.store.episodes}"},
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH,
            "features": features,
            OWN: self.naming.own(self.store),
        }


def export_lerobot(store: Store, out: Path, *, overwrite: bool, progress: OnProgress) -> None:
    """Write the store as a LeRobot v3.0 dataset."""
    need("pyarrow", "writing LeRobot datasets")
    if out.is_dir() and any(out.iterdir()) and not (out / "meta" / "info.json").is_file():
        raise BadInput(f"{out} is not a LeRobot dataset and is not overwritten")
    with whole_folder(out, overwrite=overwrite) as root:
        export = _Export(store, root)
        rows = []
        with export.opened() as tables:
            for episode in range(store.episodes):
                data_file = tables.add(export.rows(episode))
                rows.append(export.episode_row(episode, data_file))
                progress(int(store.ep_offset[episode] + store.ep_len[episode]), len(store.pixels))
        export.write_meta(rows)

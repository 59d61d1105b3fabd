"""Small datasets in every importable format, written by the format's own library where there is one.

Every maker takes a folder and the episodes to write, and gives the path to import.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import warnings
from pathlib import Path

import av
import h5py
import hdf5plugin
import numpy as np
import torch
from made_episodes import Episode as Episode
from made_episodes import episodes as episodes
from PIL import Image

FPS = 10
CAMERA = "observation.images.top"


def joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts)


def index_of(made: list[Episode]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(e) for e in made])
    return lengths, np.concatenate([[0], np.cumsum(lengths)[:-1]])


def swm_hdf5(folder: Path, made: list[Episode], *, old: bool = False) -> Path:
    """The old writer packs chunks of frames with Blosc; the new one stores each frame by itself."""
    path = folder / "push.h5"
    lengths, offsets = index_of(made)
    pixels, action = joined([e.pixels for e in made]), joined([e.action for e in made])
    with h5py.File(path, "w", libver="latest") as file:
        if old:
            packing = hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE)
            file.create_dataset("pixels", data=pixels, chunks=(6, *pixels.shape[1:]), **packing)
            file.create_dataset("action", data=action, chunks=(min(10, len(action)), 2))
        else:
            file.create_dataset("pixels", data=pixels, chunks=(1, *pixels.shape[1:]))
            file.create_dataset("action", data=action, chunks=(1, 2))
        file["state"] = joined([e.state for e in made])
        file["reward"] = np.arange(len(pixels), dtype=np.float64)
        file["ep_idx"] = np.repeat(np.arange(len(made), dtype=np.int32), lengths)
        file["step_idx"] = joined([np.arange(n) for n in lengths])
        file.create_dataset("label", data=["a"] * len(pixels), dtype=h5py.string_dtype())
        file["ep_len"], file["ep_offset"] = lengths.astype(np.int32), offsets.astype(np.int64)
    return path


def jpeg(frame: np.ndarray, quality: int = 95) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="JPEG", quality=quality, subsampling=0)
    return buffer.getvalue()


def png(frame: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="PNG")
    return buffer.getvalue()


def video(path: Path, frames: np.ndarray, codec: str = "libx264", fps: int = FPS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        options = {"crf": "10"} if codec != "libsvtav1" else {"crf": "10", "preset": "10"}
        stream = container.add_stream(codec, rate=fps, options=options)
        stream.height, stream.width, stream.pix_fmt = frames.shape[1], frames.shape[2], "yuv420p"
        stream.thread_count = 1
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return path


def lance(folder: Path, made: list[Episode], *, in_video: bool = False) -> Path:
    import lance as library
    import pyarrow as pa

    path = folder / "push.lance"
    lengths, _ = index_of(made)
    vector = {"action": joined([e.action for e in made]), "state": joined([e.state for e in made])}
    columns = {
        "episode_idx": pa.array(np.repeat(np.arange(len(made)), lengths), pa.int32()),
        "step_idx": pa.array(joined([np.arange(n) for n in lengths]), pa.int32()),
        **{
            name: pa.FixedSizeListArray.from_arrays(pa.array(v.ravel(), pa.float32()), v.shape[1])
            for name, v in vector.items()
        },
    }
    if not in_video:
        columns["pixels"] = pa.array([jpeg(f) for e in made for f in e.pixels], pa.binary())
    library.write_dataset(pa.table(columns), str(path))
    if in_video:
        blobs = [video(folder / f"{i}.tmp.mp4", e.pixels).read_bytes() for i, e in enumerate(made)]
        meta = {b"lance-encoding:blob": b"true"}
        schema = pa.schema(
            [
                pa.field("episode_idx", pa.int32()),
                pa.field("video_key", pa.string()),
                pa.field("video_bytes", pa.large_binary(), metadata=meta),
            ]
        )
        rows = [list(range(len(made))), ["pixels"] * len(made), blobs]
        table = pa.table([pa.array(v, f.type) for v, f in zip(rows, schema, strict=True)], schema=schema)
        library.write_dataset(table, str(folder / "push_videos.lance"))
    return path


def lerobot(
    folder: Path, made: list[Episode], version: str = "v2.1", *, images: bool = False, codec: str = "libx264"
) -> Path:
    """Written by hand from the published layout, through pyarrow and PyAV."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    root = folder / "robot"
    (root / "meta").mkdir(parents=True)
    lengths, offsets = index_of(made)
    three = version == "v3.0"
    tables = []
    for i, e in enumerate(made):
        vectors = {"action": e.action, "observation.state": e.state}
        columns = {n: pa.array(list(v), pa.list_(pa.float32())) for n, v in vectors.items()}
        columns["timestamp"] = pa.array((np.arange(len(e)) / FPS).astype(np.float32))
        columns["frame_index"] = pa.array(np.arange(len(e)))
        columns["episode_index"] = pa.array(np.full(len(e), i))
        columns["index"] = pa.array(np.arange(len(e)) + offsets[i])
        columns["task_index"] = pa.array(np.full(len(e), i))
        if images:
            cells = [{"bytes": png(f), "path": None} for f in e.pixels]
            kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            columns[CAMERA] = pa.array(cells, kind)
        tables.append(pa.table(columns))
    shape = list(made[0].pixels.shape[1:])
    features = {
        "action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
        "observation.state": {"dtype": "float32", "shape": [3], "names": None},
        CAMERA: {"dtype": "image" if images else "video", "shape": shape, "names": ["h", "w", "c"]},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        **{
            name: {"dtype": "int64", "shape": [1], "names": None}
            for name in ("frame_index", "episode_index", "index", "task_index")
        },
    }
    info = {
        "codebase_version": version,
        "robot_type": "toy",
        "fps": FPS,
        "chunks_size": 1000,
        "total_episodes": len(made),
        "total_frames": int(lengths.sum()),
        "features": features,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
        if three
        else "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
        if three
        else "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    if three:
        _lerobot_three(root, made, tables, images, codec)
        return root
    (root / "data/chunk-000").mkdir(parents=True)
    with (root / "meta/episodes.jsonl").open("w") as handle:
        for i, (e, table) in enumerate(zip(made, tables, strict=True)):
            handle.write(json.dumps({"episode_index": i, "tasks": [e.task], "length": len(e)}) + "\n")
            pq.write_table(table, root / f"data/chunk-000/episode_{i:06d}.parquet")
            if not images:
                video(root / f"videos/chunk-000/{CAMERA}/episode_{i:06d}.mp4", e.pixels, codec)
    stats = "stats.json" if version == "v2.0" else "episodes_stats.jsonl"
    (root / "meta" / stats).write_text("{}\n")
    return root


def _lerobot_three(root, made, tables, images, codec) -> None:
    """Two data files and two videos: the last episode lies alone, the others share."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    lengths, offsets = index_of(made)
    last = len(made) - 1
    split = [list(range(last)), [last]]
    (root / "data/chunk-000").mkdir(parents=True)
    for number, group in enumerate(split):
        path = root / f"data/chunk-000/file-{number:03d}.parquet"
        pq.write_table(pa.concat_tables([tables[i] for i in group]), path, row_group_size=4)
        if not images:
            frames = joined([made[i].pixels for i in group])
            video(root / f"videos/{CAMERA}/chunk-000/file-{number:03d}.mp4", frames, codec)
    rows = []
    for i, e in enumerate(made):
        start = 0.0 if i == last else float(offsets[i]) / FPS
        row = {
            "episode_index": i,
            "tasks": [e.task],
            "length": len(e),
            "data/chunk_index": 0,
            "data/file_index": int(i == last),
            "dataset_from_index": int(offsets[i]),
            "dataset_to_index": int(offsets[i] + lengths[i]),
            "stats/action/min": [0.0, 0.0],
        }
        if not images:
            row |= {
                f"videos/{CAMERA}/chunk_index": 0,
                f"videos/{CAMERA}/file_index": int(i == last),
                f"videos/{CAMERA}/from_timestamp": start,
                f"videos/{CAMERA}/to_timestamp": start + len(e) / FPS,
            }
        rows.append(row)
    (root / "meta/episodes/chunk-000").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), root / "meta/episodes/chunk-000/file-000.parquet")


def bridge_raw(folder: Path, made: list[Episode], date: str = "2022-03-01_10-00-00") -> Path:
    """T frames and T - 1 actions; the clock shows the time of day."""
    root = folder / "bridge"
    for i, e in enumerate(made):
        place = root / "toykitchen" / date / "raw" / "traj_group0" / f"traj{i}"
        (place / "images0").mkdir(parents=True)
        (place / "images1").mkdir()
        for t, frame in enumerate(e.pixels):
            (place / f"images0/im_{t}.jpg").write_bytes(jpeg(frame))
            (place / f"images1/im_{t}.jpg").write_bytes(jpeg(np.zeros_like(frame)))
        observed = {
            "full_state": e.state.astype(np.float64),
            "time_stamp": 1.65e9 + np.arange(len(e)) / 5,
            "env_done": [False] * len(e),
        }
        steps = [{"actions": a.astype(np.float64), "policy_type": "teleop"} for a in e.action[:-1]]
        (place / "obs_dict.pkl").write_bytes(pickle.dumps(observed))
        (place / "policy_out.pkl").write_bytes(pickle.dumps(steps))
        (place / "lang.txt").write_text(f"{e.task}\nconfidence: 0.9\n")
    return root


def dino_wm(folder: Path, made: list[Episode]) -> Path:
    root = folder / "pusht" / "train"
    (root / "obses").mkdir(parents=True)
    longest = max(len(e) for e in made)

    def padded(parts: list[np.ndarray], width: int) -> torch.Tensor:
        out = torch.zeros(len(made), longest, width)
        for i, part in enumerate(parts):
            out[i, : len(part)] = torch.from_numpy(part[:, :width].copy())
        return out

    torch.save(padded([np.tile(e.state, 2) for e in made], 5), root / "states.pth")
    torch.save(padded([e.action * 100 for e in made], 2), root / "rel_actions.pth")
    torch.save(padded([e.action * 100 for e in made], 2), root / "abs_actions.pth")
    torch.save(padded([e.state for e in made], 2), root / "velocities.pth")
    (root / "seq_lengths.pkl").write_bytes(pickle.dumps([len(e) for e in made]))
    for i, e in enumerate(made):
        video(root / f"obses/episode_{i:03d}.mp4", e.pixels)
    return root


def zarr_replay(folder: Path, made: list[Episode], *, floats: bool = True) -> Path:
    import zarr

    path = folder / "push_replay.zarr"
    root = zarr.open_group(str(path), mode="w", zarr_format=2)
    pixels = joined([e.pixels for e in made])
    if floats:
        pixels = pixels.astype(np.float32)
    data, meta = root.create_group("data"), root.create_group("meta")
    for name, values in (
        ("img", pixels),
        ("action", joined([e.action for e in made])),
        ("state", joined([e.state for e in made])),
    ):
        array = data.create_array(name, shape=values.shape, dtype=values.dtype, chunks=(6, *values.shape[1:]))
        array[:] = values
    ends = np.cumsum([len(e) for e in made]).astype(np.int64)
    meta.create_array("episode_ends", shape=ends.shape, dtype=ends.dtype, chunks=ends.shape)[:] = ends
    return path


def minari(folder: Path, made: list[Episode], *, in_dict: bool = True, storage: str = "hdf5") -> Path:
    """T frames are T - 1 actions here. Frames of 32 pixels and more become JPEGs."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gymnasium
        import minari as library
        from minari.data_collector import EpisodeBuffer

        picture = gymnasium.spaces.Box(0, 255, made[0].pixels.shape[1:], np.uint8)
        state = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        space = gymnasium.spaces.Dict({"pixels": picture, "state": state}) if in_dict else picture
        buffers = [
            EpisodeBuffer(
                id=i,
                observations={"pixels": e.pixels, "state": e.state.astype(np.float64)}
                if in_dict
                else e.pixels,
                actions=e.action[:-1],
                rewards=[0.0] * (len(e) - 1),
                terminations=[False] * (len(e) - 1),
                truncations=[False] * (len(e) - 2) + [True],
                infos={},
            )
            for i, e in enumerate(made)
        ]
        library.create_dataset_from_buffers(
            "test/toy-v0",
            buffers,
            observation_space=space,
            action_space=gymnasium.spaces.Box(-4.0, 4.0, (2,), np.float32),
            data_format=storage,
        )
    return folder / "test" / "toy-v0"


def swm_folder(folder: Path, made: list[Episode], *, in_video: bool = False) -> Path:
    """A `.npz` for each column, and pictures or a video for each episode."""
    root = folder / "plain"
    (root / "pixels").mkdir(parents=True)
    lengths, offsets = index_of(made)
    arrays = {"ep_len": lengths.astype(np.int32), "ep_offset": offsets}
    arrays |= {name: joined([getattr(e, name) for e in made]) for name in ("action", "state")}
    for name, values in arrays.items():
        np.savez(root / f"{name}.npz", values)
    np.savez(root / "words.npz", np.array(["text"] * len(arrays["action"])))
    for i, e in enumerate(made):
        if in_video:
            video(root / "pixels" / f"ep_{i}.mp4", e.pixels)
            continue
        for t, frame in enumerate(e.pixels):
            Image.fromarray(frame).save(root / "pixels" / f"ep_{i}_step_{t}.jpeg")
    return root


def table_csv(path: Path, e: Episode, *, last: bool = True) -> None:
    rows = len(e) if last else len(e) - 1
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(
            ["frame", "action_0", "action_1", "state_0", "state_1", "state_2", "timestamp", "note"]
        )
        for t in range(rows):
            numbers = [float(x) for x in (*e.action[t], *e.state[t])]
            writer.writerow([t, *numbers, t / FPS, "text"])


def videos(folder: Path, made: list[Episode], *, table: str = "csv", last: bool = True) -> Path:
    root = folder / "clips"
    root.mkdir()
    for i, e in enumerate(made):
        video(root / f"run{i}.mp4", e.pixels)
        if table == "csv":
            table_csv(root / f"run{i}.csv", e, last=last)
        elif table == "npz":
            stop = len(e) if last else len(e) - 1
            np.savez(root / f"run{i}.npz", action=e.action[:stop], state=e.state[:stop])
    if table == "shared":
        np.savez(root / "actions.npz", **{f"run{i}": e.action for i, e in enumerate(made)})
    return root


def images(folder: Path, made: list[Episode], *, shared: bool = False) -> Path:
    root = folder / "pictures"
    for i, e in enumerate(made):
        place = root / f"run{i}"
        place.mkdir(parents=True)
        for t, frame in enumerate(e.pixels):
            (place / f"{t}.png").write_bytes(png(frame))
        if not shared:
            table_csv(place / "actions.csv", e)
    if shared:
        with (root / "actions.csv").open("w", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(["episode", "action.x", "action.y"])
            for i, e in enumerate(made):
                writer.writerows([f"run{i}", *[float(x) for x in a]] for a in e.action)
    return root

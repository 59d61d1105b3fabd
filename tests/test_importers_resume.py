"""An interrupted import goes on where it stopped, and a store appears only when it is whole."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_formats import episodes, images, lerobot, swm_hdf5, videos

from lrc_jepa.data.importers import import_dataset
from lrc_jepa.data.importers.conversion import safe_names
from lrc_jepa.data.store import Store
from lrc_jepa.data.streaming import JOURNAL, work_folder
from lrc_jepa.errors import BadInput
from lrc_jepa.files import file_digest


class Stop(KeyboardInterrupt):
    pass


def stop_at(frames: int):
    def progress(done: int, total: int) -> None:
        if done >= frames:
            raise Stop

    return progress


def same_files(first: Path, second: Path) -> None:
    names = sorted(p.name for p in first.iterdir())
    assert names == sorted(p.name for p in second.iterdir())
    for name in names:
        assert name == "index.npz" or file_digest(first / name) == file_digest(second / name), name
    a, b = Store(first), Store(second)
    assert np.array_equal(a.ep_len, b.ep_len) and a.digest() == b.digest()
    assert all(np.array_equal(a.per_episode[k], b.per_episode[k]) for k in a.per_episode)


@pytest.mark.parametrize("after", [5, 12, 16])
def test_resumed_equals_uninterrupted(after, tmp_path, monkeypatch):
    path = lerobot(tmp_path, episodes(), "v3.0")
    import_dataset(path, tmp_path / "whole", size=16)
    out = tmp_path / "out"
    with pytest.raises(Stop):
        import_dataset(path, out, size=16, progress=stop_at(after))
    assert not out.exists() and (work_folder(out) / JOURNAL).is_file()
    with pytest.raises(BadInput):
        Store(work_folder(out))
    seen = []
    import_dataset(path, out, size=16, resume=True, progress=lambda done, total: seen.append(done))
    assert seen[0] == after  # nothing was read twice
    same_files(tmp_path / "whole", out)
    assert not work_folder(out).exists()


def test_interrupted_within_an_episode(tmp_path, monkeypatch):
    """Rows of an unfinished episode are cut off again, whatever reached the disk."""
    path = swm_hdf5(tmp_path, episodes((70, 200)))
    import_dataset(path, tmp_path / "whole", size=16)
    out = tmp_path / "out"
    with pytest.raises(Stop):
        import_dataset(path, out, size=16, progress=stop_at(70 + 128))
    assert (work_folder(out) / "pixels.npy").stat().st_size > 128 + 70 * 768
    import_dataset(path, out, size=16, resume=True)
    same_files(tmp_path / "whole", out)


def test_killed_process(tmp_path):
    """No handler runs on SIGKILL: only what the journal promises is taken up."""
    path = images(tmp_path, episodes((30,) * 12, noise=False))
    out = tmp_path / "out"
    code = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from lrc_jepa.data import streaming\n"
        "from lrc_jepa.data.importers import import_dataset\n"
        "streaming.SYNC_SECONDS = 0.0\n"
        "def progress(done, total):\n"
        "    if done >= 110:\n"  # within the fourth episode: it tells, and waits to be killed
        "        print('here', flush=True)\n"
        "        signal.pause()\n"
        "import_dataset(Path(sys.argv[1]), Path(sys.argv[2]), size=16, progress=progress)\n"
    )
    words = [sys.executable, "-c", code, str(path), str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "here\n"
        child.kill()
        assert child.wait() == -signal.SIGKILL and not out.exists()
    journal = work_folder(out) / JOURNAL
    assert journal.read_bytes().count(b'{"length"') >= 3
    with journal.open("a") as handle:
        handle.write('{"length": 30, "per')  # a line that was being written
    first = []
    import_dataset(path, out, size=16, resume=True, progress=lambda done, total: first.append(done))
    assert first[0] >= 90
    import_dataset(path, tmp_path / "whole", size=16)
    same_files(tmp_path / "whole", out)


def test_resume_refuses_another_request(tmp_path):
    path = swm_hdf5(tmp_path, episodes())
    out = tmp_path / "out"
    with pytest.raises(Stop):
        import_dataset(path, out, size=16, progress=stop_at(5))
    with pytest.raises(BadInput, match="other options"):
        import_dataset(path, out, size=32, resume=True)
    import_dataset(path, out, size=32)  # without resume it starts again
    assert Store(out).image_size == 32


@pytest.mark.parametrize("damage", ["garbage", "short", "shape", "type", "lost"])
def test_damaged_work_folder(damage, tmp_path):
    path = swm_hdf5(tmp_path, episodes())
    out = tmp_path / "out"
    with pytest.raises(Stop):
        import_dataset(path, out, size=16, progress=stop_at(12))
    work = work_folder(out)
    lines = (work / JOURNAL).read_text().splitlines()
    if damage == "garbage":
        lines[1] = "{]"
    elif damage == "short":
        with (work / "pixels.npy").open("r+b") as handle:
            handle.truncate(500)
    elif damage in ("shape", "type"):
        row = json.loads(lines[1])
        row["columns"]["action"] = [["<f4", [-3]], ["O", [2]]][damage == "type"]
        lines[1] = json.dumps(row)
    else:
        (work / "action.npy").unlink()
    (work / JOURNAL).write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput, match="without --resume"):
        import_dataset(path, out, size=16, resume=True)
    assert not out.exists()
    import_dataset(path, out, size=16)
    assert Store(out).episodes == 3


def test_damaged_episode(tmp_path):
    """One bad video ends the import with a sentence, or is left out and named."""
    made = episodes()
    path = videos(tmp_path, made)
    data = (path / "run1.mp4").read_bytes()
    (path / "run1.mp4").write_bytes(data[: len(data) - 200])
    (path / "run1.csv").write_text("action\n1\n")
    out = tmp_path / "out"
    with pytest.raises(BadInput, match=r"run1.mp4 cannot be read"):  # its length cannot be known
        import_dataset(path, out, size=16, skip_damaged=True)
    (path / "run1.mp4").write_bytes(data)
    with pytest.raises(BadInput, match="run1 has 7 frames but 1 rows of actions; 1 episodes are kept"):
        import_dataset(path, out, size=16)
    import_dataset(path, out, size=16, resume=True, skip_damaged=True)
    store = Store(out)
    assert store.ep_len.tolist() == [5, 4] and store.per_episode["ep_source"].tolist() == [0, 2]
    assert list(store.meta["source"]["skipped"]) == ["1"]
    assert np.array_equal(store.action[5:8], made[2].action[:3])


def test_damaged_first_episode_does_not_set_the_columns(tmp_path):
    made = episodes()
    path = images(tmp_path, made)
    np.savez(path / "run0" / "actions.npz", action=np.zeros((5, 9)), odd=np.zeros(5))
    (path / "run0" / "actions.csv").unlink()
    (path / "run0" / "4.png").write_bytes(b"no picture")
    import_dataset(path, tmp_path / "out", size=16, skip_damaged=True)
    store = Store(tmp_path / "out")
    assert store.action.shape == (11, 2) and "odd" not in store.columns
    assert not (tmp_path / "out" / "odd.npy").exists()


def test_targets_are_guarded(tmp_path):
    path = swm_hdf5(tmp_path, episodes())
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter.txt").write_text("dear")
    with pytest.raises(BadInput, match="already exists"):
        import_dataset(path, precious, size=16)
    with pytest.raises(BadInput, match="not overwritten"):
        import_dataset(path, precious, size=16, overwrite=True)
    with pytest.raises(BadInput, match="would replace the source"):
        import_dataset(path, tmp_path, size=16, overwrite=True)
    work_folder(tmp_path / "out").mkdir()
    (work_folder(tmp_path / "out") / "letter.txt").write_text("dear")
    with pytest.raises(BadInput, match="in the way"):
        import_dataset(path, tmp_path / "out", size=16)
    (work_folder(tmp_path / "out") / "letter.txt").unlink()
    import_dataset(path, tmp_path / "out", size=16)
    import_dataset(path, tmp_path / "out", size=32, overwrite=True)
    assert Store(tmp_path / "out").image_size == 32 and (precious / "letter.txt").read_text() == "dear"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "precious", "push.h5"]


def test_first_episodes_only(tmp_path):
    path = swm_hdf5(tmp_path, episodes())
    import_dataset(path, tmp_path / "out", size=16, episodes=2)
    assert Store(tmp_path / "out").ep_len.tolist() == [5, 7]


def test_too_large_for_the_disk(tmp_path, monkeypatch):
    path = swm_hdf5(tmp_path, episodes())
    usage = shutil.disk_usage(tmp_path)._replace(free=16 * 768 - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(BadInput, match="are free"):
        import_dataset(path, tmp_path / "out", size=16)


def test_memory_stays_flat(tmp_path):
    """A long episode is never held whole: the peak grows far less than the frames would need."""
    import tracemalloc

    peaks = []
    for length in (200, 1600):
        folder = tmp_path / str(length)
        folder.mkdir()
        path = swm_hdf5(folder, episodes((length, 4), height=64, width=64, noise=False))
        tracemalloc.start()
        import_dataset(path, folder / "out", size=64)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 0.1 * 1400 * 64 * 64 * 3


def test_safe_names():
    names = safe_names(
        ["action", "observation.state", "observation/state", "pixels", "../../x", "A", "a", "é"],
        {"é": "e acute"},
    )
    assert names["action"] == "action" and names["../../x"] == "x" and names["é"] == "e_acute"
    assert len({n.lower() for n in names.values()}) == len(names)
    assert "pixels" not in names.values()
    assert all(n.replace("_", "").isalnum() and n.isascii() for n in names.values())

"""Angles are read as they are and as points of a circle, in health and in probes."""

import numpy as np
import pytest

from lrc_jepa.data.clips import Split
from lrc_jepa.data.quantities import CIRCLE
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.evaluate.probes import probe_table, stored_quantities
from lrc_jepa.training import health

FRAMES = 40


@pytest.fixture
def store(tmp_path):
    """Six episodes in which something turns and turns, its angle kept within [0, 2 pi)."""
    rng = np.random.default_rng(0)
    with StoreWriter(tmp_path / "d", {"world": "toy"}) as writer:
        for _ in range(6):
            angle = (rng.uniform(0, 7) + rng.normal(0.5, 0.2, FRAMES).cumsum()) % (2 * np.pi)
            columns = {
                "block_angle": angle,
                "block_width": angle,
                "action": np.zeros((FRAMES, 1), np.float32),
            }
            writer.add({**columns, "pixels": np.zeros((FRAMES, 8, 8, 3), np.uint8)})
    return Store(tmp_path / "d")


def seen(store, rows):
    """A z that shows where the block points: a fixed linear map of cosine and sine."""
    angle = np.asarray(store.columns["block_angle"][rows]).reshape(-1)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) @ np.array([[1.0, 2.0, -1.0], [0.5, 1.0, 3.0]])


def test_health_reads_a_wrapped_angle_as_cosine_and_sine(store, monkeypatch):
    monkeypatch.setattr(health, "frame_streams", lambda model, store, rows: {"z": seen(store, rows)})
    check = health.HealthCheck.prepare(store, Split(np.arange(4), np.arange(4, 6)), clips=range(3))
    figures = check.readouts(model=None)
    assert figures["r2_z.block_angle_cos_sin"] > 0.999 and figures["r2_z.block_angle"] < 0.8
    assert "r2_z.block_width_cos_sin" not in figures


def test_probes_read_a_wrapped_angle_as_cosine_and_sine(store):
    fit, test = np.arange(4 * FRAMES), np.arange(4 * FRAMES, 6 * FRAMES)
    targets = stored_quantities(store, fit, test)
    assert sorted(targets) == ["block_angle", "block_angle_cos_sin", "block_width"]
    np.testing.assert_array_equal(targets["block_angle"][1][:, 0], store.columns["block_angle"][test].ravel())
    rows = probe_table({"z": (seen(store, fit), seen(store, test))}, targets, 0, ["ridge"])
    r = {row["quantity"]: row["r"] for row in rows if not row["control"]}
    assert r["block_angle_cos_sin"] > 0.999 > 0.95 > r["block_angle"]


def test_true_distances_are_blind_to_units_and_to_where_an_angle_wraps():
    rng = np.random.default_rng(0)
    place, angle = rng.normal(0, 100, (400, 2)), rng.uniform(0, 2 * np.pi, (400, 1))
    circle = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    truths = {"place": place, "block_angle": angle, "block_angle" + CIRCLE: circle}
    z = np.concatenate([place / place.std(axis=0), circle / circle.std(axis=0)], axis=1)
    assert health._distance_rank(z, truths) == pytest.approx(1.0)
    assert health._distance_rank(place, truths) < 0.9

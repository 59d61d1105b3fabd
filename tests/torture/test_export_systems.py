"""Every compact system written as ONNX, at debug size: its graphs answer as it does."""

import dataclasses

import pytest
from conftest import DEBUG, make_store

from lrc_jepa.export.writing import export_run
from lrc_jepa.library import train
from lrc_jepa.recipes import get_recipe
from lrc_jepa.runtime import check

SYSTEMS = ("lrc-z", "lwm", "lwm+points", "lwm+points+proposals", "pldm", "eb-jepa", "vjepa2-gap-ac")


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_is_exported(system, tmp_path):
    config = get_recipe(f"tworoom-{system}-debug")
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=2))
    if system == "vjepa2-gap-ac":
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, backbone="random:0"))
    store = make_store(tmp_path / "data", size=DEBUG.model.encoder.image_size)
    run = train(config, store, tmp_path / "run", device="cpu")
    assert check(export_run(run, tmp_path / "onnx").folder)["max_abs_diff"] < 1e-4

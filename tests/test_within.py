"""SIGReg given the episode: what an episode looks like must leave no trace in the term."""

from dataclasses import replace

import pytest
import torch

from lrc_jepa.config import ObjectiveConfig, SigRegConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models import build_model
from lrc_jepa.models.lrc_jepa import another_clip
from lrc_jepa.objectives.sigreg import GAUSSIAN_FLOOR, sigreg_reference
from lrc_jepa.objectives.terms import TERMS, within_episodes
from lrc_jepa.recipes import get_recipe
from lrc_jepa.types import Clip, Outputs

CONFIG = ObjectiveConfig(sigreg=SigRegConfig(projections=64))
EPISODES = torch.tensor([4, 9, 4, 7, 9, 7, 4, 7, 9])


def generator():
    return torch.Generator().manual_seed(0)


def term(name, z, episodes=EPISODES):
    blank = torch.zeros(len(z), 1, 1, 1)
    out = Outputs(z=z, z_pred=blank, z_target=blank, actions=blank[:, :, 0], episodes=episodes)
    return TERMS[name].function(out, CONFIG, generator())


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_each_frame_is_compared_with_the_mean_of_its_episode():
    z = drawn(9, 4, 2, 3)
    expected = torch.empty_like(z)
    for clip, episode in enumerate(EPISODES.tolist()):
        frames = [z[other, t] for other in range(9) if EPISODES[other] == episode for t in range(4)]
        mean = sum(frames) / len(frames)
        for t in range(4):
            expected[clip, t] = (z[clip, t] - mean) * (len(frames) / (len(frames) - 1)) ** 0.5
    torch.testing.assert_close(within_episodes(z, EPISODES), expected)
    found = term("sigreg_within", z)
    torch.testing.assert_close(found, sigreg_reference(expected, CONFIG.sigreg, generator()))


def test_the_frames_of_each_episode_are_tested_apart():
    z = drawn(9, 4, 2, 3)
    per_episode = [
        sigreg_reference(z[episode == EPISODES].flatten(0, 1)[:, None], CONFIG.sigreg, generator())
        for episode in (4, 7, 9)
    ]
    torch.testing.assert_close(term("sigreg_episode", z), torch.stack(per_episode).mean())


@pytest.mark.parametrize(
    "name, blind", [("sigreg_within", True), ("sigreg_episode", False), ("sigreg", False)]
)
def test_only_the_centred_form_is_blind_to_what_an_episode_looks_like(name, blind):
    z = drawn(9, 4, 1, 3)
    looks = 3 * drawn(10, 1, 1, 3, seed=2)[EPISODES]
    assert torch.allclose(term(name, z + looks), term(name, z), atol=1e-3) == blind


def test_looks_alone_count_as_a_collapse():
    """The trap of SIGReg over the batch: constant within episodes, Gaussian over them."""
    episodes = torch.arange(64).repeat_interleave(8)
    z = drawn(64, 1, 1, 2)[episodes].expand(-1, 4, -1, -1)
    assert term("sigreg", z, episodes) < 20
    assert term("sigreg_within", z, episodes) == pytest.approx(0.40892 * len(z), rel=1e-3)
    assert term("sigreg_episode", z, episodes) > 0.1 * 32


def test_a_gaussian_that_moves_is_at_the_floor():
    episodes = torch.arange(32).repeat_interleave(16)
    z = drawn(512, 4, 1, 2)
    assert term("sigreg_within", z, episodes) == pytest.approx(GAUSSIAN_FLOOR, rel=0.25)
    assert term("sigreg_episode", z, episodes) == pytest.approx(GAUSSIAN_FLOOR, rel=0.25)


def test_the_gradient_also_flows_through_the_mean():
    z = drawn(9, 4, 1, 3).double().requires_grad_()
    torch.autograd.gradcheck(lambda rows: within_episodes(rows, EPISODES), z)
    (slope,) = torch.autograd.grad(term("sigreg_within", z), z)
    per_episode = torch.stack([slope[episode == EPISODES].sum(dim=(0, 1, 2)) for episode in (4, 7, 9)])
    assert per_episode.abs().max() < 1e-4 * slope.abs().max()  # moving a whole episode changes nothing


def test_the_context_of_an_episode_is_one():
    u = drawn(9, 4, 2, 3)
    blank = torch.zeros(9, 1, 1, 1)
    out = Outputs(z=blank, z_pred=blank, z_target=blank, actions=blank[:, :, 0], u=u, episodes=EPISODES)
    found = TERMS["context_within"].function(out, CONFIG, generator())
    rows = torch.stack(
        [u[episode == EPISODES].flatten(0, 1).flatten(1) for episode in (4, 7, 9)]
    )  # (3, 12, 6)
    mean = rows.mean(dim=1)
    spread = torch.relu(1 - (mean.var(dim=0) + 1e-4).sqrt()).mean()
    cov = torch.cov(mean.T)
    crossed = (cov.square().sum() - cov.diagonal().square().sum()) / 6
    expected = 25 * (rows - mean[:, None]).square().mean() + 25 * spread + crossed
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["sigreg_within", "sigreg_episode", "context_within"])
def test_batches_that_are_not_grouped_are_refused(name):
    config = get_recipe("tworoom-lrc-debug")
    with pytest.raises(BadInput, match=f"{name}.*train.per_episode"):
        replace(config, objective=replace(config.objective, weights={"prediction": 1.0, name: 0.1}))


def test_the_next_clip_is_one_of_the_same_episode():
    episodes = torch.tensor([7, 3, 7, 3, 9, 7, 9, 3, 9])
    other = another_clip(episodes)
    assert torch.equal(episodes[other], episodes)
    assert not (other == torch.arange(9)).any()
    assert sorted(other.tolist()) == list(range(9))
    uneven = torch.tensor([5, 8, 5, 8, 8])
    assert another_clip(uneven).tolist() == [2, 3, 0, 4, 1]


def test_the_decoder_reads_u_of_another_clip_and_its_own_z():
    config = get_recipe("tworoom-lrc+within-debug")
    decoder = replace(config.model.decoder, context="episode")
    torch.manual_seed(0)
    model = build_model(replace(config, model=replace(config.model, decoder=decoder))).eval()
    clip = Clip(
        frames=torch.randint(0, 256, (4, 4, 3, 32, 32), dtype=torch.uint8),
        actions=torch.randn(4, 3, 10),
        episodes=torch.tensor([1, 1, 2, 2]),
    )
    out = model.outputs(clip)
    factors = model.factor(clip.frames)
    swapped = replace(factors, u=factors.u[[1, 0, 3, 2]])
    torch.testing.assert_close(model.pixels.invert(out.recon), model.decode(swapped))
    assert not torch.allclose(model.pixels.invert(out.recon), model.decode(factors))


def test_a_context_of_another_clip_needs_several_clips_of_an_episode():
    config = get_recipe("tworoom-lrc-debug")
    decoder = replace(config.model.decoder, context="episode")
    with pytest.raises(BadInput, match=r"train\.per_episode"):
        replace(config, model=replace(config.model, decoder=decoder))

import ctypes
import platform
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lrc_jepa.models import linear
from lrc_jepa.models.linear import Linear
from lrc_jepa.pixels import in_parts
from lrc_jepa.training import allocator
from lrc_jepa.training.allocator import KEPT, USUAL, memory_kept

SHAPES = [((4352,), 64, 128), ((256, 17), 64, 128), ((64, 4, 16), 200, 96), ((16, 257), 48, 64)]


@pytest.fixture
def convolutions(monkeypatch):
    """The shapes of what was mapped by a convolution."""
    seen, conv2d = [], F.conv2d

    def counted(x, *others):
        seen.append(tuple(x.shape))
        return conv2d(x, *others)

    monkeypatch.setattr(linear.F, "conv2d", counted)
    monkeypatch.setattr(linear, "LEAST", 2**20)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    return seen


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("leading", "width", "out"), SHAPES)
def test_a_convolution_is_the_matrix_product_and_its_gradients(convolutions, leading, width, out, bias):
    """Rows are told apart: with another pairing of rows and answers nothing would agree."""
    torch.manual_seed(0)
    layer = Linear(width, out, bias=bias)
    x = torch.randn(*leading, width, requires_grad=True)
    ours = layer(x)
    assert len(convolutions) == 1
    plain = F.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)
    pull = torch.randn_like(plain)
    wanted = (x, *layer.parameters())
    for one, other in zip(
        torch.autograd.grad(ours, wanted, pull), torch.autograd.grad(plain, wanted, pull), strict=True
    ):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


def test_rows_in_any_layout(convolutions):
    torch.manual_seed(0)
    layer = Linear(64, 128)
    turned = torch.randn(64, 17, 256).transpose(0, 2)  # (256, 17, 64), not as they lie in memory
    torch.testing.assert_close(
        layer(turned), F.linear(turned, layer.weight, layer.bias), rtol=1e-5, atol=1e-5
    )
    assert convolutions == [(64, 64, 68, 1)]


def test_what_is_small_or_odd_or_not_trained_stays_a_product(convolutions):
    layer = Linear(64, 128)
    layer(torch.randn(64, 64))  # too few multiplications
    layer(torch.randn(4353, 64))  # rows that cannot be dealt out
    with torch.no_grad():
        layer(torch.randn(4352, 64))
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.randn(4352, 64))
    layer.double()(torch.randn(4352, 64, dtype=torch.float64))
    assert not convolutions


def test_without_mkl_a_product_is_torchs_own(convolutions, monkeypatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    Linear(64, 128)(torch.randn(4352, 64))
    assert not convolutions


def test_weights_begin_as_torchs_do():
    torch.manual_seed(0)
    ours = Linear(8, 4)
    torch.manual_seed(0)
    plain = nn.Linear(8, 4)
    assert torch.equal(ours.weight, plain.weight) and torch.equal(ours.bias, plain.bias)


def test_frames_in_parts_are_all_frames_in_order():
    frames = torch.arange(10)
    parts = in_parts(frames, 4)
    assert [len(part) for part in parts] == [4, 4, 2]
    assert torch.equal(torch.cat(list(parts)), frames)
    assert [len(part) for part in in_parts(frames.to("meta"), 4)] == [10]


def test_memory_is_kept_while_it_is_asked_for_and_then_as_usual(monkeypatch):
    said = []
    libc = SimpleNamespace(
        mallopt=lambda name, value: said.append((name, value)), malloc_trim=lambda pad: said.append("trim")
    )
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: libc)
    with pytest.raises(KeyError), memory_kept(torch.device("cpu")):
        assert said == list(KEPT.items())
        raise KeyError
    assert said[len(KEPT) :] == [*USUAL.items(), "trim"]
    said.clear()
    with memory_kept(torch.device("meta")):
        pass
    assert not said


def test_another_c_library_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: SimpleNamespace())
    with memory_kept(torch.device("cpu")):
        pass


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_glibc_takes_every_value():
    libc = ctypes.CDLL(None)
    assert all(libc.mallopt(name, value) for name, value in (*KEPT.items(), *USUAL.items()))

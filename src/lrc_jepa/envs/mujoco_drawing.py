"""Drawing MuJoCo models: fast, without a screen, and with a look that can differ by episode.

Shadows, reflections and multisampling are off: on a processor they cost ten times the rest. Frames
are drawn twice as large and averaged instead. Only the published look has them, drawn at the size and
in the way that stable-worldmodel draws. A model passed here is for drawing only.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.envs.appearance import Appearance, shading
from lrc_jepa.envs.mujoco_gl import load_mujoco

mujoco = load_mujoco()
SUPERSAMPLE = 2
SIDE = 256  # pixels of a surface's texture
DIM = 0.62  # of the darker parts of a texture, where the lighter are 1


def _plain() -> Array:
    return np.ones((SIDE, SIDE))


def _checker() -> Array:
    half = np.arange(SIDE) * 2 // SIDE
    return np.where((half[:, None] + half) % 2, 1.0, DIM)


def _stripes() -> Array:
    wave = np.where(np.arange(SIDE) * 8 // SIDE % 2, 1.0, DIM)
    return np.tile(wave, (SIDE, 1))


def _planks() -> Array:
    """Boards of slightly different tone, each with a dark edge."""
    tones = np.random.default_rng(1).uniform(DIM, 1, 8)
    board = np.arange(SIDE) * 8 // SIDE
    edge = np.arange(SIDE) * 8 % SIDE < 24
    return np.tile(np.where(edge, 0.5, tones[board]), (SIDE, 1)).T


def _blotches() -> Array:
    """Soft noise that continues across the texture's border."""
    spectrum = np.fft.rfft2(np.random.default_rng(2).standard_normal((SIDE, SIDE)))
    down, across = np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)
    soft = np.fft.irfft2(spectrum * np.exp(-((down**2 + across**2) * (SIDE / 3) ** 2)), (SIDE, SIDE))
    return np.asarray(np.clip(0.8 + 0.12 * soft / soft.std(), DIM - 0.1, 1.0))


SURFACES: dict[str, Callable[[], Array]] = {
    "plain": _plain,
    "checker": _checker,
    "stripes": _stripes,
    "planks": _planks,
    "blotches": _blotches,
}


def add_surfaces(spec: Any, repeat: float = 2.0) -> None:
    """Give a model one grey material per entry of SURFACES; its colour is set when it is drawn."""
    for name in SURFACES:
        spec.add_texture(
            name=f"surface {name}",
            type=mujoco.mjtTexture.mjTEXTURE_2D,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_FLAT,
            rgb1=[1, 1, 1],
            rgb2=[1, 1, 1],
            width=SIDE,
            height=SIDE,
        )
        material = spec.add_material(name=f"surface {name}", texrepeat=[repeat, repeat], texuniform=True)
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = f"surface {name}"


def _texels(model: Any, texture: str) -> Array:
    number = model.texture(texture).id
    begin = model.tex_adr[number]
    size = model.tex_height[number] * model.tex_width[number] * model.tex_nchannel[number]
    return np.asarray(model.tex_data[begin : begin + size])


def paint_surfaces(model: Any) -> None:
    """Fill the textures that `add_surfaces` declared, once the model is compiled."""
    for name, draw in SURFACES.items():
        _texels(model, f"surface {name}")[:] = np.repeat((draw() * 255).astype(np.uint8).ravel(), 3)


def brighten(model: Any, texture: str, gain: float) -> None:
    """Make a texture lighter: without the shadow pass MuJoCo adds less light to a textured floor."""
    texels = _texels(model, texture)
    texels[:] = np.clip(texels * gain, 0, 255).astype(np.uint8)


def surface_of(model: Any, factors: Array) -> list[int]:
    """The materials that factors (B,) in [0,1] choose."""
    numbers = [model.material(f"surface {name}").id for name in SURFACES]
    return [numbers[min(int(f * len(numbers)), len(numbers) - 1)] for f in factors]


class MujocoCamera:
    """Draws one model from one camera; a single OpenGL context is open at a time.

    `published` keeps the model's shadows, reflections and multisampling, and draws at the size asked for.
    """

    def __init__(self, model: Any, camera: str, *, published: bool = False) -> None:
        self.model, self.data, self.published = model, mujoco.MjData(model), published
        self.camera = model.camera(camera).id
        if not published:
            model.mat_reflectance[:] = 0
            model.vis.quality.offsamples = 0
        self._renderer: Any = None
        self._size = 0

    def _prepare(self, size: int) -> None:
        if self._size == size:
            return
        self.close()
        side = size if self.published else size * SUPERSAMPLE
        self.model.vis.global_.offwidth = self.model.vis.global_.offheight = side
        self._renderer = mujoco.Renderer(self.model, side, side)
        atexit.unregister(self.close)
        atexit.register(self.close)  # runs before the backend, which registered earlier, goes away
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = int(self.published)
        self._size = size

    def draw(
        self, size: int, poses: Array, dress: Callable[[int], None] = lambda b: None
    ) -> NDArray[np.uint8]:
        """Joint positions (B,nq) -> frames (B,size,size,3); `dress(b)` sets the model's look first."""
        self._prepare(size)
        frames = np.empty((len(poses), size, size, 3), np.uint8)
        for b, pose in enumerate(poses):
            dress(b)
            self.data.qpos[:] = pose
            mujoco.mj_kinematics(self.model, self.data)
            mujoco.mj_comPos(self.model, self.data)
            mujoco.mj_camlight(self.model, self.data)
            self._renderer.update_scene(self.data, camera=self.camera)
            cv2.resize(self._renderer.render(), (size, size), frames[b], interpolation=cv2.INTER_AREA)
        return frames

    def close(self) -> None:
        """Give the OpenGL context back."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer, self._size = None, 0


class Look(NamedTuple):
    """How the factors of an episode become its look."""

    clean: Sequence[float]
    """Where each factor stands in the clean scene."""
    dress: Callable[[Any, Array, list[int], bool, int], None]
    """Model, factors (B,F), surface of each episode, whether they vary, and b: sets the look of episode b."""
    surface: int
    """The factor that chooses a surface."""
    light: int
    """The factor of the light; its slopes across and down come after it."""


def draw_dressed(
    place: MujocoCamera, look: Look, appearance: Appearance, factors: Array, size: int, poses: Array
) -> NDArray[np.uint8]:
    """Joint positions (B,nq) -> frames (B,size,size,3), each in the look that its factors (B,F) give it."""
    full = appearance.fill(factors, look.clean)
    surfaces = surface_of(place.model, full[:, look.surface])
    frames = place.draw(size, poses, partial(look.dress, place.model, full, surfaces, appearance.varies))
    light, across, down = full[:, look.light : look.light + 3].T
    shade = shading(0.5 + 0.5 * light, 0.5 * (across - 0.5), 0.5 * (down - 0.5), size)
    return appearance.dressing(factors, size, shade).over(frames)

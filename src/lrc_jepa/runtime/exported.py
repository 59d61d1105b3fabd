"""The folder that `lrc export` wrote, with its graphs loaded: frames in, latents, predictions and pictures out."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.errors import BadInput
from lrc_jepa.runtime.box import Plans
from lrc_jepa.runtime.frames import to_square
from lrc_jepa.runtime.metadata import Metadata
from lrc_jepa.senses import felt

if TYPE_CHECKING:
    import onnxruntime

ENCODER, PREDICTOR, DECODER = "encoder.onnx", "predictor.onnx", "decoder.onnx"
PROPOSER = "proposer.onnx"
ENCODED = 64  # frames encoded at a time
Latents = NDArray[np.float32]


class Exported:
    """A compact world model: one vector a frame. Shapes as in `types`, without the axis of tokens."""

    def __init__(self, folder: Path | str, *, threads: int = 0) -> None:
        """`threads` is how many cores a graph may use, 0: all."""
        self.folder, self.threads = Path(folder), threads
        self.metadata = Metadata.read(self.folder)
        self.shape, self.box = self.metadata.shape, self.metadata.box()

    def _session(self, name: str) -> onnxruntime.InferenceSession:
        import onnxruntime  # here: other parts of this package are for models that were not exported, too

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        try:
            return onnxruntime.InferenceSession(
                self.folder / name, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 - onnxruntime has no common base for what it raises
            said = str(error).splitlines()[0]
            raise BadInput(f"exported model {self.folder}: {name} cannot be loaded ({said})") from None

    @cached_property
    def _encoder(self) -> onnxruntime.InferenceSession:
        return self._session(ENCODER)

    @cached_property
    def _predictor(self) -> onnxruntime.InferenceSession:
        return self._session(PREDICTOR)

    @cached_property
    def _decoder(self) -> onnxruntime.InferenceSession:
        if DECODER not in self.metadata.files:
            raise BadInput(f"the exported model {self.folder} has no decoder")
        return self._session(DECODER)

    @cached_property
    def _proposer(self) -> onnxruntime.InferenceSession:
        return self._session(PROPOSER)

    @property
    def proposes(self) -> bool:
        """Whether the model knows how to begin on the way to a goal."""
        return PROPOSER in self.metadata.files

    def see(self, frames: Frames) -> Frames:
        """A camera's frames (n,h,w,3), cut and scaled as the training data were -> (n,s,s,3)."""
        if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
            raise BadInput(
                f"a camera's frames are uint8 (h, w, 3) or (B, h, w, 3), not {frames.dtype} {frames.shape}"
            )
        size, crop = self.shape.image_size, self.metadata.deployment["crop"]
        if frames.shape[1:3] == (size, size):
            return frames
        return np.stack([to_square(frame, size, crop) for frame in frames])

    def _encoded(self, frames: Frames, proprio: Array | None) -> list[Latents]:
        """Every stream of frames (n,h,w,3); the state without its end where proprioception (n,P) is not known."""
        given: dict[str, Array] = {"frames": self.see(frames)}
        width = self.metadata.proprio_width
        told = np.zeros((len(frames), width), np.float32) if proprio is None and width else proprio
        values = felt(told, self.metadata.proprio, width, len(frames))
        if values is not None:
            given["proprio"] = values
        parts: list[Any] = [
            self._encoder.run(None, {name: rows[first : first + ENCODED] for name, rows in given.items()})
            for first in range(0, len(frames), ENCODED)
        ]
        state, *others = [np.concatenate(stream) for stream in zip(*parts, strict=True)]
        return [state if proprio is not None else state[:, : self.seen], *others]

    @property
    def seen(self) -> int:
        """D - P, the width of what a frame alone tells."""
        return self.shape.width - self.metadata.proprio_width

    def encode(self, frames: Frames, proprio: Array | None = None) -> Latents:
        """Frames (n,h,w,3) uint8 of any size -> states (n,D), which is all that planning reads.

        `proprio` (n,P) is what the robots knew of themselves, for a model that takes it; without it the answer is
        what the frames alone tell, (n,D-P), as goals are.
        """
        return self._encoded(frames, proprio)[0]

    def factor(self, frames: Frames, proprio: Array | None = None) -> tuple[Latents, Latents]:
        """Frames (n,h,w,3), proprioception (n,P) -> states (n,D) and u (n,Q,D-P), Q may be 0."""
        z, *rest = self._encoded(frames, proprio)
        return z, rest[0] if rest else np.zeros((len(z), 0, self.seen), np.float32)

    def step(self, past: Latents, actions: Plans) -> Latents:
        """(n,k,D), normalised blocks (n,k,A) -> (n,D) for k <= K; `actions[:, i]` leaves frame i."""
        (moved,) = self._predictor.run(None, {"past": past, "actions": actions})
        return np.asarray(moved)

    def propose(self, state: Latents, goal: Latents, left: int) -> Plans:
        """States (n,D), goals (n,D-P) that are `left` blocks away -> the next normalised blocks (n,A)."""
        given = {"state": state, "goal": goal, "left": np.full(len(state), left, np.int64)}
        (block,) = self._proposer.run(None, given)
        return np.asarray(block)

    def decode(self, z: Latents, u: Latents) -> NDArray[np.float32]:
        """States (n,D) and u (n,Q,D-P) -> pictures (n,h,w,3) in [0, 1]."""
        given = {"z": z, "u": u} if self.shape.context else {"z": z}
        (pictures,) = self._decoder.run(None, given)
        return np.asarray(pictures)

    def imagine(self, past: Latents, blocks: Plans, plans: Plans) -> Latents:
        """History (B,k,D), the blocks (B,k-1,A) between, plans (B,S,H,A) -> the states after each block (B,S,H,D)."""
        owner = np.repeat(np.arange(len(past)), plans.shape[1])
        flat = plans.reshape(len(owner), *plans.shape[2:])
        chunks = range(0, len(owner), self.metadata.rows)
        parts = [
            self._roll(past[owner[rows]], blocks[owner[rows]], flat[rows])
            for rows in (slice(first, first + self.metadata.rows) for first in chunks)
        ]
        return np.concatenate(parts).reshape(*plans.shape[:3], -1)

    def _roll(self, past: Latents, blocks: Plans, plans: Plans) -> Latents:
        """(n,k,D), (n,k-1,A), (n,H,A) -> (n,H,D); at each step the last K states and the blocks that leave them."""
        known, longest = past.shape[1], self.shape.history
        states, done = past, np.concatenate([blocks, plans], axis=1)
        for newest in range(known, known + plans.shape[1]):
            first = max(0, newest - longest)
            window, left = states[:, first:newest], done[:, first:newest]
            moved = self.step(np.ascontiguousarray(window), np.ascontiguousarray(left))
            states = np.concatenate([states, moved[:, None]], axis=1)
        return states[:, known:]

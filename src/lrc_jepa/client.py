"""Talk to `lrc serve` from anywhere: numpy, msgpack and websockets, no torch.

    with Client("ws://127.0.0.1:8000") as client:
        client.infer({"image": frame, "goal": picture})["actions"]  # (m, a), in the robot's units

An observation also holds `proprio` where `client.metadata["proprio"]` names what the robot must tell of itself.

The protocol is that of openpi's clients, which can be used in its place: the server sends what it knows of the robot
when a connection opens; then each table of arrays is answered by one. An answer in words is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.names import column_name
from lrc_jepa.wire import LARGEST, pack, unpack_table

PORT = 8000
SECONDS = 60.0


class Infers(Protocol):
    """Anything that answers an observation with actions: a `Client`, or a `serve.Session` in this process."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the checkpoint says of the robot."""

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """A table of arrays, answered by one."""


class Client:
    """One connection; the server keeps goal and history for it."""

    def __init__(
        self, address: str = f"ws://127.0.0.1:{PORT}", *, token: str | None = None, seconds: float = SECONDS
    ) -> None:
        """Connect; `seconds` is how long an answer may take."""
        connect = need("websockets.sync.client", "the client").connect
        broken = need("websockets.exceptions", "the client").WebSocketException
        self._failures: tuple[type[Exception], ...] = (broken, OSError, TimeoutError)
        self._address, self._seconds = address, seconds
        headers = {"Authorization": f"Api-Key {token}"} if token else None
        try:
            self._socket = connect(
                address,
                compression=None,
                max_size=LARGEST,
                additional_headers=headers,
                open_timeout=seconds,
                proxy=None,
            )
            self._metadata = self._answer()
        except self._failures as error:
            raise BadInput(f"there is no policy to talk to at {address} ({error})") from None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the checkpoint says of the robot."""
        return self._metadata

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Ask; what the server refuses is a BadInput with its sentence."""
        try:
            self._socket.send(pack(dict(observation)))
            return self._answer()
        except self._failures as error:
            self.close()  # an answer that comes late would be taken for that to the next question
            raise BadInput(f"the policy at {self._address} does not answer ({error})") from None

    def _answer(self) -> dict[str, Any]:
        said = self._socket.recv(self._seconds)
        if isinstance(said, str):
            raise BadInput(f"the policy refused: {said}")
        return unpack_table(said)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


class StepPolicy:
    """Action by action, as LeRobot's robots ask: `select_action(observation)` and `reset()`.

    It looks where a block begins and plans anew when a plan is carried out, as `Policy.act` does. Where an action of
    the model joins several commands they are given one by one.
    """

    def __init__(
        self, policy: Infers, goal: Frames | Mapping[str, Frames], camera: str | None = None
    ) -> None:
        """`goal` is a picture (h,w,3) of where to end, or one for each camera.

        `camera` is the key of observations that holds the picture; left out: the cameras that the model was
        trained on, or of a model of one camera the only picture there is. Proprioception, where the model takes
        it, is found under the name of its column as it is now or was in the source, or as `proprio`.
        """
        self.policy, self.goal = policy, goal if isinstance(goal, np.ndarray) else dict(goal)
        self.camera, self.cameras = camera, list(policy.metadata["cameras"])
        self.proprio = str(policy.metadata.get("proprio", ""))
        self.joined = int(policy.metadata["commands"])
        self.block = int(policy.metadata["block"]) * self.joined
        self.reset()

    def reset(self) -> None:
        """Begin anew, towards the same goal."""
        self._left: list[Actions] = []
        self._done: list[Actions] = []
        self._new = True

    def select_action(self, observation: Mapping[str, Any]) -> Any:
        """The next command (a,); for a batch of one, pictures (1,3,h,w) as LeRobot has them, it is (1,a).

        Pictures are uint8 (h,w,3) or numbers from 0 to 1, the colours first; a torch tensor is answered by one.
        """
        pictures = self._pictures(observation)
        given = next(iter(pictures.values()))
        batch = np.ndim(given) == 4
        if not len(self._done) % self.block:
            frames = {name: _frame(np.asarray(picture)) for name, picture in pictures.items()}
            self._look({**frames, **self._felt(observation)})
        action = self._left.pop(0)
        self._done.append(action)
        answer = action[None] if batch else action
        return given.new_tensor(answer.tolist()).float() if hasattr(given, "new_tensor") else answer

    def _felt(self, observation: Mapping[str, Any]) -> dict[str, Array]:
        """What the robot tells of itself, where the model takes it; a batch of one as its only row."""
        if not self.proprio:
            return {}
        for name, values in observation.items():
            if column_name(name) in (self.proprio, "proprio"):
                return {"proprio": np.ravel(np.asarray(values, np.float32))}
        there = ", ".join(observation) or "nothing"
        raise BadInput(f"the policy must be told {self.proprio}; in the observation there is {there}")

    def _look(self, seen: Mapping[str, Array]) -> None:
        asked: dict[str, Any] = {**seen, "plan": not self._left}
        if self._new:
            asked |= {"goal": self.goal, "reset": True}
        else:
            asked["done"] = np.concatenate(self._done[-self.block :]).reshape(self.block // self.joined, -1)
        answer = self.policy.infer(asked)
        self._new, self._done = False, self._done[-self.block :]
        if asked["plan"]:
            actions = np.asarray(answer["actions"], np.float32)
            self._left = list(actions.reshape(len(actions) * self.joined, -1))

    def _pictures(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """What the policy sees of an observation: a picture, or one for each of several cameras."""
        names = [self.camera] if self.camera else self.cameras
        if names and all(name in observation for name in names):
            return {name if len(names) > 1 else "image": observation[name] for name in names}
        there = ", ".join(observation) or "nothing"
        if self.camera or (len(names) > 1 and "image" not in observation):
            raise BadInput(f"the policy looks at {', '.join(names)}; in the observation there is {there}")
        pictures = ["image"] if len(names) > 1 else [key for key in observation if "image" in key]
        if len(pictures) != 1:
            raise BadInput(f"which of {there} is the picture? Name the camera")
        return {"image": observation[pictures[0]]}


def _frame(values: Array) -> Frames:
    """A picture as robots' libraries have it, as (h,w,3) uint8."""
    picture = values[0] if values.ndim == 4 and len(values) == 1 else values
    if picture.ndim == 3 and picture.shape[0] == 3 and picture.shape[2] != 3:
        picture = picture.transpose(1, 2, 0)
    if picture.ndim != 3 or picture.shape[2] != 3:
        raise BadInput(f"a picture is (h, w, 3), (3, h, w) or a batch of one, not {values.shape}")
    if picture.dtype.kind == "f":
        picture = (np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8)
    return np.ascontiguousarray(picture)

"""What the 46 numbers of a Cube state mean."""

from __future__ import annotations

import numpy as np

from lrc_jepa.arrays import Array

NQ, NV = 21, 20
STATE_DIM = NQ + NV + 5
JOINTS = slice(0, 6)  # of the arm
GRIPPER = 6  # the joint that opens and closes it
BLOCK = slice(14, 21)  # position and quaternion
READINGS = slice(NQ + NV, STATE_DIM)  # end-effector position (3) and yaw, contact
CLOSED = 0.8  # radians of the gripper's joint


def block_yaw(states: Array) -> Array:
    """The cubes' angles about the vertical (n,)."""
    w, x, y, z = states[:, BLOCK][:, 3:].T
    return np.asarray(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y**2 + z**2)))


def gripper_opening(states: Array) -> Array:
    """OGBench's reading (n,): 0 is open, 1 closed."""
    return np.clip(states[:, GRIPPER] / CLOSED, 0, 1)


def quantities(states: Array) -> dict[str, Array]:
    """OGBench's readings under the paper's names; the quaternion keeps the simulator's sign."""
    reading, block = states[:, READINGS], states[:, BLOCK]
    return {
        "joint_position": states[:, JOINTS],
        "joint_velocity": states[:, NQ:][:, JOINTS],
        "end_effector_position": reading[:, :3],
        "end_effector_yaw": reading[:, 3],
        "gripper": gripper_opening(states),
        "block_position": block[:, :3],
        "block_quaternion": block[:, 3:],
        "block_yaw": block_yaw(states),
    }

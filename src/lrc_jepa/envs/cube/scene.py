"""A light copy of OGBench's cube scene, for drawing only: the physics never see it.

The robot's meshes have 185,000 triangles, most of them smaller than a pixel. Their corners are
gathered into cells of a few millimetres, which leaves a tenth and changes a frame by about one grey
level. The floor, which MuJoCo cuts into 40,000 squares to light it, gets 400 instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.envs.mujoco_drawing import add_surfaces, brighten, mujoco, paint_surfaces

CELL = 0.005  # metres
FLOOR_SQUARE = 0.1  # metres
FLOOR_GAIN = 1.3  # makes up for the light of the shadow pass
PURPLE = (0.61, 0.28, 0.82, 1.0)  # OGBench paints the gripper for tasks from pixels
GRIPPER = ("ur5e/robotiq/black", "ur5e/robotiq/pad_gray")
TABLE, TABLE_SIZE = (0.43, 0.0, 0.001), (0.26, 0.42, 0.0005)


def gather(corners: Array, triangles: Array, cell: float) -> tuple[Array, Array]:
    """Merge the corners (n,3) that share a cell; triangles (m,3) that vanish or repeat are dropped."""
    _, owner = np.unique(np.round(corners / cell).astype(np.int64), axis=0, return_inverse=True)
    owner = owner.ravel()
    count = np.bincount(owner)
    merged = np.stack([np.bincount(owner, corners[:, k]) / count for k in range(3)], axis=1)
    faces = owner[triangles]
    real = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 0] != faces[:, 2])
    faces = faces[real]
    _, first = np.unique(np.sort(faces, axis=1), axis=0, return_index=True)
    return merged, faces[np.sort(first)]


def mesh_of(model: Any, number: int) -> tuple[Array, Array]:
    """Corners (n,3) and triangles (m,3) of a compiled mesh, in the frame it was authored in."""
    begin, size = model.mesh_vertadr[number], model.mesh_vertnum[number]
    corners = model.mesh_vert[begin : begin + size].astype(np.float64)
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.mesh_quat[number])
    begin, size = model.mesh_faceadr[number], model.mesh_facenum[number]
    return corners @ turn.reshape(3, 3).T + model.mesh_pos[number], model.mesh_face[begin : begin + size]


def lighten(spec: Any, model: Any, cell: float) -> None:
    """Replace every mesh of `spec` by a coarser one, made from the compiled `model`."""
    for mesh in spec.meshes:
        corners, triangles = gather(*mesh_of(model, model.mesh(mesh.name).id), cell)
        mesh.file, mesh.scale = "", [1, 1, 1]
        mesh.uservert = corners.astype(np.float32).ravel().tolist()
        mesh.userface = triangles.astype(np.int32).ravel().tolist()
        # Coarse meshes may be open or flat, which has no volume to weigh.
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
    spec.compiler.balanceinertia = True
    spec.compiler.boundmass, spec.compiler.boundinertia = 1e-6, 1e-9


def publish(xml: str, assets: dict[str, bytes]) -> Any:
    """OGBench's model as it is, in the colours of tasks from pixels and without its target."""
    model = mujoco.MjSpec.from_string(xml, assets=assets).compile()
    paint(model)
    return model


def paint(model: Any) -> None:
    """Hide the target, and paint the gripper."""
    model.geom("target_object_0").rgba[3] = 0
    for name in GRIPPER:
        model.material(name).rgba[:] = PURPLE


def build(xml: str, assets: dict[str, bytes], physics: Any, cell: float = CELL) -> Any:
    """The model to draw with: coarse meshes, further surfaces, and a table that is hidden at first."""
    spec = mujoco.MjSpec.from_string(xml, assets=assets)
    lighten(spec, physics, cell)
    add_surfaces(spec)
    spec.worldbody.add_geom(
        name="table", type=mujoco.mjtGeom.mjGEOM_BOX, pos=TABLE, size=TABLE_SIZE, rgba=[1, 1, 1, 0], group=1
    )
    model = spec.compile()
    paint_surfaces(model)
    brighten(model, "grid", FLOOR_GAIN)
    model.geom("floor").size[2] = FLOOR_SQUARE
    paint(model)
    return model

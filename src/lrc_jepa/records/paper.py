"""Every value the paper prints, with the table or figure it stands in.

The paper's own runs are of paper size, on its data and machine: ours stand beside them, not against
them. Its figures 1, 3, 4 and 6 show further values that are printed nowhere; they are not read off here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """Values the paper prints for one system in one world."""

    where: str
    """Table or figure of the paper."""
    world: str
    system: str
    """Under this library's name."""
    values: tuple[float, ...]


NAMES = {
    "lrc": "LRC-JEPA",
    "lrc-stopgrad": "LRC-JEPA, stop-gradient",
    "lwm": "LWM",
    "vjepa2-gap-ac": "V-JEPA2-GAP-AC",
    "dino-wm": "DINO-WM",
    "eb-jepa": "EB-JEPA",
}
"""What the paper calls the systems it prints values for."""

SUCCESS = (
    Printed("Table 3", "pusht", "lrc", (0.96,)),
    Printed("Table 3", "pusht", "lrc-stopgrad", (0.92,)),
)
"""Closed-loop success over 50 scenes. Figure 3 has the other worlds and systems, without numbers; the
text says that LRC-JEPA is 9 points above LWM on average over four worlds."""

RECOVERY = (
    Printed("Table 3", "bridge", "lrc", (0.38, 0.64, 0.72, 0.061)),
    Printed("Table 3", "bridge", "lrc-stopgrad", (0.10, 0.28, 0.32, 0.286)),
    Printed("Section 4.1", "bridge", "vjepa2-gap-ac", (0.36, 0.54, 0.62)),
    Printed("Section 4.1", "bridge", "dino-wm", (0.34, 0.54, 0.58)),
    Printed("Section 4.1", "bridge", "lwm", (0.06, 0.12, 0.18)),
)
"""Recall at 1, 5 and 10 and, where printed, normalised rank, on 50 Bridge-v2 scenes."""

SPEED = (
    Printed("Table 1", "bridge", "lrc", (5.5e6, 0.45)),
    Printed("Table 1", "bridge", "lwm", (5.5e6, 0.48)),
    Printed("Table 1", "bridge", "vjepa2-gap-ac", (303.9e6, 0.83)),
    Printed("Table 1", "bridge", "dino-wm", (22.1e6, 57.56)),
    Printed("Table 1", "bridge", "eb-jepa", (1.1e6, 0.20)),
)
"""Parameters of the encoder, and seconds of planning per trajectory on one RTX 5090."""
SPEED_MACHINE = "one RTX 5090"

INTERVENTIONS = {
    "unaltered": Printed("Figure 5", "cube", "lrc", (29.58, 0.923)),
    "u shuffled in time": Printed("Figure 5", "cube", "lrc", (29.26, 0.919)),
    "z shuffled in time": Printed("Figure 5", "cube", "lrc", (17.38, 0.774)),
}
"""PSNR and SSIM of the one sample shown; for u of another trajectory nothing is printed."""

Scores = tuple[float, float]
ProbeKey = tuple[str, str, str, str, str]
"""World, system, stream, quantity, probe (ridge or mlp)."""


def _lines(
    where: str, world: str, columns: list[tuple[str, str, str]], text: str
) -> dict[ProbeKey, tuple[str, Scores]]:
    """Lines of `quantity: mse r, mse r, ...`, a pair per column (system, stream, probe)."""
    scores = {}
    for line in text.strip().splitlines():
        quantity, _, cells = line.strip().partition(":")
        for (system, stream, probe), cell in zip(columns, cells.split(","), strict=True):
            mse, r = map(float, cell.split())
            scores[world, system, stream, quantity, probe] = (where, (mse, r))
    return scores


_Z = [(system, "z", probe) for system in ("lrc", "lwm") for probe in ("ridge", "mlp")]
_BOTH = [("lrc", "z+u", "ridge"), ("lrc", "z+u", "mlp")]

PROBES: dict[ProbeKey, tuple[str, Scores]] = {
    **_lines(
        "Table 2",
        "cube",
        [
            (s, stream, p)
            for p in ("ridge", "mlp")
            for s, stream in (("lwm", "z"), ("lrc", "z"), ("lrc", "u"))
        ],
        """
        joint_position: .293 .698, .274 .723, .572 .500, .311 .692, .305 .696, .444 .653
        joint_velocity: .969 .111, .734 .392, .990 .039, .999 .068, .893 .312, 1.013 .026
        end_effector_position: .019 .990, .011 .995, .380 .685, .009 .995, .007 .997, .144 .925
        end_effector_yaw: .989 .073, .930 .250, .876 .336, 1.009 .100, 1.027 .128, .897 .321
        gripper: .077 .960, .061 .969, .193 .897, .038 .981, .035 .982, .084 .957
        block_position: .007 .996, .006 .997, .120 .933, .006 .997, .005 .998, .017 .991
        block_quaternion: .678 .053, .653 .164, .672 .073, .694 .048, .692 .063, .694 .094
        block_yaw: 1.010 .056, 1.012 .060, .971 .189, 1.046 .066, 1.052 .065, .968 .230
        """,
    ),
    **_lines(
        "Table 4",
        "pusht",
        _Z,
        """
        agent_position: .066 .967, .022 .989, .044 .978, .018 .991
        block_position: .021 .989, .005 .997, .021 .990, .006 .997
        block_angle: .175 .905, .049 .974, .184 .900, .055 .971
        """,
    ),
    **_lines("Table 5", "tworoom", _Z, "agent_position: .002 .999, .000 1.000, .008 .996, .001 1.000"),
    **_lines(
        "Table 6",
        "cube",
        _BOTH,
        """
        joint_position: .272 .731, .306 .711
        joint_velocity: .746 .397, 1.002 .088
        end_effector_position: .009 .996, .019 .991
        end_effector_yaw: .891 .323, .923 .299
        gripper: .058 .970, .060 .969
        block_position: .004 .998, .011 .995
        block_quaternion: .673 .160, .711 .062
        block_yaw: .989 .173, 1.031 .150
        """,
    ),
    **_lines(
        "Table 7",
        "bridge",
        [("lrc", stream, probe) for stream in ("z", "u") for probe in ("ridge", "mlp")],
        """
        gripper_centroid: .724 .690, .604 .735, 1.193 .321, .858 .402
        moving_centroid: 1.001 .484, .879 .473, 1.528 .225, .995 .323
        moving_rgb: 2.440 .131, 1.141 .269, 1.914 .208, 1.179 .265
        static_centroid: 1.841 .252, 1.277 .259, 1.508 .246, 1.239 .267
        static_rgb: 2.324 .036, 1.208 .326, 2.035 .137, .999 .413
        background_centroid: 1.241 .425, .554 .609, 1.211 .337, .684 .489
        """,
    ),
    **_lines(
        "Table 8",
        "bridge",
        _BOTH,
        """
        gripper_centroid: 10.829 .299, .703 .690
        moving_centroid: 15.260 .144, .888 .460
        moving_rgb: 13.374 .165, 1.277 .258
        static_centroid: 13.174 -.018, 1.219 .289
        static_rgb: 11.721 .204, 1.200 .347
        background_centroid: 4.750 .156, .598 .571
        """,
    ),
}
"""Normalised MSE and Pearson r of every probe; the paper's linear probe is the ridge."""


def success_of(world: str, system: str) -> Printed | None:
    """The success printed for a system in a world, if any."""
    return next((p for p in SUCCESS if (p.world, p.system) == (world, system)), None)


def systems_of(printed: tuple[Printed, ...], first: list[str]) -> list[Printed]:
    """Printed values, those of the systems in `first` before the others."""
    return sorted(printed, key=lambda p: p.system not in first)

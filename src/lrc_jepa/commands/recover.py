"""`lrc recover`: offline expert-action recovery, on any dataset and without a simulator."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from lrc_jepa.commands.arguments import Positional, Unprefixed, parse
from lrc_jepa.console import progress_bar, say, table
from lrc_jepa.evaluate.recovery import RecoveryConfig, Source, chance, draw_scenes, recover
from lrc_jepa.report.recovery import summarize_recovery
from lrc_jepa.run import open_run


@dataclass(frozen=True)
class RecoverArgs:
    """Which run, which candidates."""

    run: Positional[Path]
    """Folder of a run or of a checkpoint."""
    data: Path | None = None
    """Dataset; left out: the one the run was trained on."""
    source: Literal["gaussian", "real", "both"] = "both"
    """gaussian: random sequences, the paper's; real: sequences of other episodes, harder."""
    out: Path | None = None
    """Where rows go; left out: the run's folder."""
    device: str = "auto"
    """auto, cpu or cuda."""
    recovery: Unprefixed[RecoveryConfig] = RecoveryConfig()


def main(argv: list[str]) -> dict[str, Any]:
    """Rank, write rows, show the table."""
    args = parse(
        RecoverArgs,
        argv,
        "recover",
        "Rank the demonstrated actions among others by imagined outcome.",
        examples=("lrc recover runs/first",),
    )
    opened = open_run(args.run, args.data, args.out, args.device)
    opened.check_frames()
    deployment, config = opened.checkpoint.deployment, args.recovery
    scenes = draw_scenes(opened.store, opened.split.heldout, deployment.spec, deployment.normalizer, config)
    sources: list[Source] = ["gaussian", "real"] if args.source == "both" else [args.source]
    stamp = {**opened.stamp(recovery=asdict(config)), "kind": "recovery", "metric": "recovery.v1"}
    rows = []
    with progress_bar("recovering actions", len(sources)) as bar:
        for source in sources:
            rows += [{**stamp, **row} for row in recover(opened.model, scenes, source, config)]
            bar.advance()
    opened.write(rows)
    summaries = [summarize_recovery(rows, source, config.horizon) for source in sources]
    columns = ["candidates, model", "recall@1", "recall@5", "recall@10", "rank", "95% interval"]
    lines = []
    for s in summaries:
        for name, part in (("model", s["model"]), ("copy last", s["copy"])):
            recalls = [f"{part[f'recall@{k}']:.3f}" for k in (1, 5, 10)]
            lines.append(
                [f"{s['source']}, {name}", *recalls, f"{part['rank']:.3f}", f"± {part['rank_error']:.3f}"]
            )
    known = chance(config.candidates)
    lines.append(["chance", *(f"{known[f'recall@{k}']:.3f}" for k in (1, 5, 10)), "0.500", ""])
    table(
        f"{scenes.clip.size} scenes, {config.horizon} blocks, {config.candidates} candidates", columns, lines
    )
    say(f"rows in {opened.results}")
    return {"run": str(args.run), "system": stamp["system"], "chance": known, "recovery": summaries}

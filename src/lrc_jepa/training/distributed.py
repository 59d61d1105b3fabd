"""Several processes, on one machine or several: torchrun's environment, DDP, and a launcher.

Every process reads its own share of each batch, so N processes take the same steps as one. Only
rank 0 writes. `collective` holds the statistics that run over the batch of all processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lrc_jepa.collective import world_size
from lrc_jepa.config import TrainConfig
from lrc_jepa.errors import BadInput

PATIENCE = 30.0  # seconds that processes get to end by themselves once one of them has failed


def launched() -> bool:
    """Whether this is one of several processes that torchrun, SLURM or `launch` started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def leads() -> bool:
    """Whether this process is the first or the only one, also outside of a `team`."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def team(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes for the length of the block; yields this process's device."""
    if not launched():
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(backend)
    except ValueError as error:
        raise BadInput(f"the processes cannot find each other: {error}") from None
    try:
        with warnings.catch_warnings():
            # A 1x1 kernel's gradient has other strides than the kernel, which changes nothing.
            warnings.filterwarnings("ignore", message="Grad strides do not match")
            yield device
    finally:
        dist.destroy_process_group()


@contextmanager
def all_alive() -> Iterator[None]:
    """Say in one sentence that another process is gone, which this one can only see as a lost connection."""
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, dist.DistError) or "gloo" in str(error) or "onnection" in str(error)
        if world_size() == 1 or not lost:
            raise
        raise BadInput("another process of this run ended, so this one stops; --resume continues") from None


def check_shares(config: TrainConfig, world: int) -> None:
    """Refuse a batch that cannot be shared out evenly: then a mean of means is not the mean."""
    if config.batch_size % world or config.batch_size < 2 * world:
        raise BadInput(
            f"a batch of {config.batch_size} clips cannot be shared evenly by {world} processes, with at "
            "least 2 clips for each"
        )
    if config.batch_size // config.per_episode % world:
        raise BadInput(
            f"the {config.batch_size // config.per_episode} episodes of a batch cannot be shared evenly by "
            f"{world} processes, and an episode's clips stay together"
        )


def wait_for_all() -> None:
    """Go on when every process has come here."""
    if world_size() > 1:
        dist.barrier()


def spread(network: nn.Module, device: torch.device, *, parts_left_out: bool) -> nn.Module:
    """Average the gradients of all processes; starts from the weights and buffers of rank 0."""
    if world_size() == 1:
        return network
    for buffer in network.buffers():
        dist.broadcast(buffer, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the argument's later name is not in older torch
        return nn.parallel.DistributedDataParallel(
            network,
            device_ids=[device.index] if device.type == "cuda" else None,
            broadcast_buffers=False,  # BatchNorm's stay equal: they are those of the whole batch
            find_unused_parameters=parts_left_out,
            gradient_as_bucket_view=True,
        )


def mean_over_ranks(values: Tensor) -> Tensor:
    """What the processes measured, averaged."""
    if world_size() > 1:
        values = values / world_size()
        dist.all_reduce(values)
    return values


def agree(step: int, optimizer: torch.optim.Optimizer) -> int:
    """Give every process rank 0's step and optimiser state; a negative step means that it has none."""
    if world_size() == 1:
        return step
    agreed = torch.tensor(step)
    dist.broadcast(agreed, 0)
    if int(agreed) < 0:
        raise BadInput("rank 0 could not start")
    if int(agreed) > 0:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                state = optimizer.state[parameter]
                state.setdefault("step", torch.zeros((), device=parameter.device))
                for moment in ("exp_avg", "exp_avg_sq"):
                    state.setdefault(moment, torch.zeros_like(parameter))
                for key in ("step", "exp_avg", "exp_avg_sq"):  # in the same order everywhere
                    dist.broadcast(state[key], 0)
    return int(agreed)


def launch(arguments: list[str], processes: int) -> dict[str, Any]:
    """Run `lrc ARGUMENTS --json` in several processes on this machine -> rank 0's result.

    The short form of `torchrun --standalone --nproc-per-node N`; it ends with the exit code of the
    run, and a stop signal reaches every process.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    shared = {
        **os.environ,
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store above is the meeting point
        "OMP_NUM_THREADS": threads,
    }
    command = [sys.executable, "-c", "from lrc_jepa.cli import main; main()", *arguments, "--json"]
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as others:
        running = []
        for number in range(processes):
            own = {**shared, "RANK": str(number), "LOCAL_RANK": str(number)}
            streams = (answer, None) if number == 0 else (subprocess.DEVNULL, others)
            running.append(subprocess.Popen(command, env=own, stdout=streams[0], stderr=streams[1]))
        codes = _wait(running)
        if any(codes):
            _explain(codes, others)
            raise SystemExit(codes[0] or next(code for code in codes if code))
        answer.seek(0)
        result: dict[str, Any] = json.load(answer)
        return result


def _wait(running: list[subprocess.Popen[bytes]]) -> list[int]:
    """Exit codes of all; a signal to this process goes to each, and one failure ends the others."""

    def forward(number: int, frame: Any) -> None:
        for process in running:
            if process.poll() is None:
                process.send_signal(number)

    previous = {s: signal.signal(s, forward) for s in (signal.SIGTERM, signal.SIGINT)}
    failed_at = 0.0
    try:
        while any(process.poll() is None for process in running):
            time.sleep(0.05)
            if not failed_at and any(process.poll() for process in running):
                failed_at = time.monotonic()
            if failed_at and time.monotonic() - failed_at > PATIENCE:
                for process in running:
                    process.kill()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return [code if code >= 0 else 128 - code for code in (process.wait() for process in running)]


def _explain(codes: list[int], others: IO[bytes]) -> None:
    """Show what another rank said if rank 0, which everybody can read, did not fail by itself."""
    if codes[0] in (0, 1) or codes[0] > 128:
        others.seek(0)
        lines = [line for line in others.read().decode(errors="replace").splitlines() if line.strip()]
        if lines:
            sys.stderr.write("\n".join(lines[-5:]) + "\n")

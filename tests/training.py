"""What the training tests share: a tiny dataset, a small run, and processes that start at once."""

import multiprocessing
import os
import queue
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist

from lrc_jepa.data.store import Store
from lrc_jepa.data.synthetic import synthetic_store
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.assemble import assemble

CPU = torch.device("cpu")


def make_store(path):
    """A dataset that the debug recipe can be trained on."""
    return synthetic_store(path, episodes=8, length=40, size=32)


def small_run(**train):
    """The debug recipe without dropout, so that several processes can match one exactly."""
    config = get_recipe("tworoom-lrc-debug")
    predictor = replace(config.model.predictor, dropout=0.0)
    return replace(
        config,
        model=replace(config.model, predictor=predictor),
        train=replace(config.train, **{"batch_size": 12, **train}),
    )


def pieces_of(config, data, run):
    """All pieces of a run on the CPU."""
    return assemble(config, Store(data), Path(run), CPU)


@cache
def forkserver():
    """A process that has already imported torch, from which others start in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["lrc_jepa.training.loop", "tensorboard.compat.proto.event_pb2", "torch._dynamo"]
    )
    return context


def _enter(function, rank, world, meeting, answers, arguments):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    try:
        answer = function(*arguments)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        answer = error
    answers.put((rank, answer))
    if world > 1:
        dist.destroy_process_group()


@contextmanager
def _started(world, function, arguments, meeting):
    """`world` gloo processes that call a function, and the queue of their answers; none outlives the block."""
    context = forkserver()
    answers = context.Queue()
    processes = [
        context.Process(target=_enter, args=(function, rank, world, str(meeting), answers, arguments))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    try:
        yield processes, answers
    finally:
        for process in processes:
            process.kill()
            process.join()


def with_deaths(world, function, *arguments, meeting):
    """Like `in_processes`, but some may die -> the answers of the others by rank, and all exit codes."""
    found = {}
    with _started(world, function, arguments, meeting) as (processes, answers):
        while any(process.exitcode is None for process in processes) or not answers.empty():
            with suppress(queue.Empty):
                number, answer = answers.get(timeout=0.1)
                found[number] = answer
        return found, [process.exitcode for process in processes]


def in_processes(world, function, *arguments, meeting):
    """Call a function in `world` gloo processes -> their answers by rank; errors are raised."""
    with suppress(FileNotFoundError):
        Path(meeting).unlink()
    found = {}
    with _started(world, function, arguments, meeting) as (processes, answers):
        while len(found) < world:
            try:
                number, answer = answers.get(timeout=1)
                found[number] = answer
            except queue.Empty:
                crashed = [p.exitcode for p in processes if p.exitcode]
                assert not crashed, f"processes ended with {crashed}"
        for process in processes:
            process.join()
    for answer in found.values():
        if isinstance(answer, Exception):
            raise answer
    return [found[rank] for rank in range(world)]

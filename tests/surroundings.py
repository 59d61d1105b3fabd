"""The same surroundings for every test, whatever came before it in its process and wherever it runs."""

import os
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

# A terminal's width and colours would show in what commands print; loopback is never behind a proxy.
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE"):
    os.environ.pop(name, None)
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "localhost,127.0.0.1,::1"
os.environ.setdefault("MPLBACKEND", "Agg")
# A virtual machine may announce AMX that it does not let run: bfloat16 would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

THREADS = 1  # tiny tensors: a second thread costs more than it brings
torch.set_num_threads(THREADS)
PRIORITY = (os.sched_getscheduler(0), os.sched_getparam(0)) if hasattr(os, "sched_getscheduler") else None

# The same examples everywhere, none judged by how long a busy machine takes to make it.
settings.register_profile(
    "suite", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Draws that name no generator depend on the test alone, not on its place in the order."""
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """What belongs to the whole process is put back: SVT-AV1's encoder, for one, takes real-time priority for good."""
    arguments = list(sys.argv)
    try:
        return (yield)
    finally:
        sys.argv = arguments
        torch.set_num_threads(THREADS)
        if PRIORITY and os.sched_getscheduler(0) != PRIORITY[0]:
            os.sched_setscheduler(0, *PRIORITY)

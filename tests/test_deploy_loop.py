"""The loop at a fixed rate: what it asks the planner, and what it does in the period in which something fails."""

import os
import threading
from collections import deque
from functools import partial

import numpy as np
import pytest
from driving import BLOCK, GOAL, Desk
from forked import in_child

from lrc_jepa.deploy.log import Log
from lrc_jepa.deploy.planner import Seen
from lrc_jepa.deploy.stolen import stolen_seconds
from lrc_jepa.lines import read_lines


def test_plans_follow_each_other_without_a_gap_and_are_asked_for_one_block_ahead():
    desk = Desk(actions=12)
    summary = desk.run()
    assert desk.why() == ["first plan"] + [""] * 12
    assert (summary.late, summary.late_unhandled, summary.actions) == (0, 0, 12)
    assert np.allclose(np.stack(desk.robot.sent)[:, 0], [0.01, 0.011, 0.012, 0.013, 0.02, 0.021, 0.022, 0.023,
                                                         0.03, 0.031, 0.032, 0.033])  # fmt: skip
    heard = desk.planner.heard
    assert heard[0][0] == "begin" and np.array_equal(heard[0][1], GOAL)
    asks = [what[1] for what in heard if what[0] == "ask"]
    assert [len(ahead) for ahead in asks[:3]] == [0, BLOCK, BLOCK]
    assert np.allclose(asks[1][:, 0], [0.012, 0.013])  # the actions on their way, not those done
    sees = [what[1:] for what in heard if what[0] == "see"]
    assert [frame for frame, _ in sees] == [0, 0, 2, 4, 6, 8, 10]  # one at the beginning of each block
    assert sees[0][1] is None and sees[1][1] is None  # before, nothing was done
    assert np.allclose(sees[2][1][:, 0], [0.01, 0.011]) and np.allclose(sees[3][1][:, 0], [0.012, 0.013])
    assert desk.robot.stops == 1


@pytest.mark.parametrize(("fallback", "sent"), [("zero", 0.0), ("hold", 0.013)])
def test_a_late_plan_is_bridged_and_then_carried_out(fallback, sent):
    desk = Desk(takes=0.25, fallback=fallback, actions=8)
    summary = desk.run()
    # Asked for at the start of the last block, two periods before it is needed; it takes three.
    assert desk.why() == ["first plan"] * 3 + [""] * 4 + ["plan late"] + [""] * 4
    assert (summary.late, summary.late_unhandled) == (1, 0)
    assert np.allclose(desk.robot.sent[4], sent) and np.allclose(desk.robot.sent[5], 0.02)
    assert desk.did()[7] == fallback


def test_a_longer_lead_gives_a_slow_planner_time():
    desk = Desk(takes=0.25, lead=2, actions=12)
    assert desk.run().late == 0
    asks = [what[1] for what in desk.planner.heard if what[0] == "ask"]
    assert [len(ahead) for ahead in asks[:3]] == [0, 2 * BLOCK, 2 * BLOCK]


def test_stop_means_that_nothing_more_is_sent():
    desk = Desk(takes=0.25, fallback="stop")
    summary = desk.run()
    assert summary.ended == "stopped: plan late" and len(desk.robot.sent) == 4 and desk.robot.stops == 1


def frozen(desk):
    desk.robot.freeze()


def garbage(desk):
    desk.robot.garbage = np.zeros((4, 4), np.float32)


def killed(desk):
    desk.planner.fault = "planner dead"


def nonsense(desk):
    desk.planner.fault = "planner talks nonsense"


FAULTS = {
    "camera stalled": frozen,
    "camera sent garbage": garbage,
    "planner dead": killed,
    "planner talks nonsense": nonsense,
}


@pytest.mark.parametrize("why", FAULTS)
@pytest.mark.parametrize("fallback", ["zero", "stop"])
@pytest.mark.parametrize("period", [4, 5, 6])
def test_every_fault_is_answered_in_the_period_it_shows(why, fallback, period):
    desk = Desk(fallback=fallback, stale=1.5, actions=20)
    desk.at(period, lambda: FAULTS[why](desk))
    desk.at(20, lambda: [setattr(desk.robot, "frozen", None), setattr(desk.robot, "garbage", None)])
    summary = desk.run()
    shows = period + 2 * (why == "camera stalled")  # a frame is stale only after its time
    assert desk.why()[shows] == why and not any(desk.why()[1:shows])
    assert summary.late_unhandled == 0
    if fallback == "stop":
        assert summary.ended == f"stopped: {why}" and len(desk.why()) == shows + 1
        return
    assert desk.did()[shows] == "zero" and np.allclose(desk.robot.sent[shows - 1], 0)
    assert summary.actions == 20  # it went on
    assert desk.planner.restarts == summary.restarts == why.startswith("planner")


def test_a_restarted_planner_begins_anew_from_what_is_seen():
    desk = Desk(actions=20)
    desk.at(4, lambda: killed(desk))
    desk.run()
    begun = [place for place, what in enumerate(desk.planner.heard) if what[0] == "begin"]
    assert len(begun) == 2
    assert desk.planner.heard[begun[1] + 1][0] == "see" and desk.planner.heard[begun[1] + 1][2] is None
    assert desk.why()[4:8] == ["planner dead"] + ["planner starting"] * 3
    assert {"fault", "ready"} <= {line["kind"] for line in desk.periods}


def no_process():
    raise BlockingIOError(11, "Resource temporarily unavailable")


def test_a_planner_that_the_system_cannot_start_is_a_fallback_and_tried_again(monkeypatch):
    desk = Desk(actions=20)
    start = desk.planner.restart
    monkeypatch.setattr(desk.planner, "restart", no_process)
    desk.at(4, lambda: killed(desk))
    desk.at(10, lambda: monkeypatch.setattr(desk.planner, "restart", start))
    summary = desk.run()
    assert summary.ended == "20 actions" and summary.late_unhandled == 0 and summary.restarts == 2
    assert desk.why()[4:14] == ["planner dead"] + ["planner does not start"] * 9
    assert {line["did"] for line in desk.periods if line.get("why") == "planner does not start"} == {"zero"}


def test_a_planner_that_never_starts_again_ends_the_drive_with_a_sentence(monkeypatch):
    desk = Desk(actions=20)
    monkeypatch.setattr(desk.planner, "restart", no_process)
    desk.at(4, lambda: killed(desk))
    summary = desk.run()
    assert summary.ended == "the planner was started anew 3 times and made no plan" and desk.robot.stops == 1


def test_a_plan_that_waited_too_long_is_made_anew():
    desk = Desk(blocks=4, stale=1.5, actions=20)
    desk.at(2, lambda: desk.robot.freeze())
    desk.at(5, lambda: setattr(desk.robot, "frozen", None))
    desk.run()
    assert desk.why()[3:7] == ["", "camera stalled", "", ""]  # a short wait: it goes on where it was
    again = Desk(blocks=4, stale=1.5, actions=20)
    again.at(2, lambda: again.robot.freeze())
    again.at(9, lambda: setattr(again.robot, "frozen", None))
    again.run()
    assert again.why()[4:10] == ["camera stalled"] * 5 + ["plan late"]
    asks = [what[1] for what in again.planner.heard if what[0] == "ask"]
    assert len(asks[1]) == 0  # from where the robot is


def test_a_planner_that_hangs_is_restarted_and_given_up_in_the_end():
    desk = Desk(patience=1.0, actions=20)
    desk.at(4, lambda: setattr(desk.planner, "seconds", 1e9))
    summary = desk.run()
    assert summary.ended == "the planner was started anew 3 times and made no plan"
    assert "planner hung" in summary.why and summary.late_unhandled == 0


def test_periods_that_the_loop_itself_sleeps_through_are_told_as_they_are():
    desk = Desk(actions=10)
    desk.at(5, lambda: setattr(desk.clock, "time", desk.clock.time + 0.35))
    summary = desk.run()
    assert (summary.late, summary.late_unhandled, summary.why["loop overslept"]) == (3, 3, 3)
    slow = Desk(actions=10)
    slow.at(5, lambda: setattr(slow.robot, "slow", 0.24))
    slow.at(7, lambda: setattr(slow.robot, "slow", 0.0))
    assert slow.run().late_unhandled == 2  # the action that came too late, and the period that got none


ENDS = {
    "time": ({"seconds": 1.0, "actions": None}, "1 seconds"),
    "actions": ({"actions": 7}, "7 actions"),
    "goal": ({"reached": 0.5, "actions": None}, "the goal: latent distance 0.25, at most 0.5"),
}


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_on_time_on_actions_and_on_the_goal(name):
    settings, ended = ENDS[name]
    desk = Desk(**settings)
    desk.at(6, lambda: setattr(desk.planner, "distances", 0.25))
    assert desk.run().ended == ended and desk.robot.stops == 1


def test_a_distance_of_the_drive_before_does_not_end_this_one():
    desk = Desk(reached=0.5, actions=6)
    desk.planner.number = 3
    desk.planner.waiting = [(0.0, Seen(3, 0.1))]  # the last answer of the drive before comes now
    assert desk.run().ended == "6 actions"
    desk = Desk(reached=0.5, actions=6)
    desk.planner.distances = 0.1
    assert desk.run().ended.startswith("the goal")


def test_whatever_is_sent_keeps_to_the_limit_on_changes():
    limited = {"action_change": [0.004, 0.004]}

    def largest(desk):
        return np.abs(np.diff(np.stack(desk.robot.sent), axis=0)).max()

    late = Desk(takes=0.25, actions=20, facts=limited)  # zeros in between, and back to the plan
    late.run()
    assert "plan late" in late.why() and largest(late) <= 0.004 + 1e-6
    assert 0 < late.robot.sent[4][0] < late.robot.sent[3][0]  # on the way to zero, not there at once
    dead = Desk(actions=20, facts=limited)
    dead.at(4, lambda: killed(dead))
    dead.run()
    assert dead.planner.restarts == 1 and largest(dead) <= 0.004 + 1e-6
    frozen_once = Desk(blocks=4, stale=1.5, actions=20, facts=limited)
    frozen_once.at(2, lambda: frozen_once.robot.freeze())
    frozen_once.at(5, lambda: setattr(frozen_once.robot, "frozen", None))
    frozen_once.run()
    assert "camera stalled" in frozen_once.why() and largest(frozen_once) <= 0.004 + 1e-6
    # The planner is told what was sent, not what it had planned.
    done = [what[2] for what in frozen_once.planner.heard if what[0] == "see" and what[2] is not None]
    sent = np.stack(frozen_once.robot.sent)
    assert all(any(np.array_equal(a, b[:BLOCK]) for b in windows(sent)) for a in done[:1] + done[-1:])
    free = Desk(takes=0.25, actions=8)
    free.run()
    assert largest(free) > 0.004


def windows(sent):
    return [sent[first : first + BLOCK] for first in range(len(sent) - BLOCK + 1)]


@pytest.mark.parametrize("fallback", ["zero", "stop"])
def test_the_fallback_does_not_wait_for_a_planner_that_is_started_anew(fallback):
    desk = Desk(fallback=fallback, actions=20)
    desk.planner.slow = 0.35  # three periods and a half
    stopped = []
    desk.robot.stop = lambda: stopped.append(desk.clock.now())
    desk.at(4, lambda: killed(desk))
    summary = desk.run()
    faulty = next(line for line in desk.periods if line.get("why") == "planner dead" and "number" in line)
    assert faulty["number"] == 4 and faulty["sent_ms"] == 0 and desk.planner.restarts == 1
    if fallback == "stop":
        assert stopped == [pytest.approx(100.4)] and summary.ended == "stopped: planner dead"


def test_a_human_ends_it_with_a_file_or_ctrl_c(tmp_path):
    desk = Desk(stop_file=tmp_path / "stop")
    desk.at(6, (tmp_path / "stop").touch)
    assert desk.run().ended.startswith("a human's word (the file") and len(desk.robot.sent) == 5

    def interrupt():
        raise KeyboardInterrupt

    again = Desk()
    again.at(6, interrupt)
    with pytest.raises(KeyboardInterrupt):
        again.run()
    assert again.robot.stops == 1 and again.periods[-1]["ended"] == "a human's word (interrupted)"


def test_joined_commands_are_sent_one_by_one():
    facts = {"commands": 2, "action_width": 4, "block": 2, "action_low": [-1.0] * 4, "action_high": [1.0] * 4}
    desk = Desk(facts=facts, actions=16)
    summary = desk.run()
    assert all(action.shape == (2,) for action in desk.robot.sent) and summary.actions == 16
    assert desk.loop.period == pytest.approx(0.05)
    assert [what[1].shape for what in desk.planner.heard if what[0] == "ask"][1] == (2, 4)


def test_ten_thousand_periods_on_a_told_clock_with_a_fault_in_every_hundred():
    desk = Desk(actions=None, seconds=1000.0, stale=1.5)
    faults = list(FAULTS.values())
    for number in range(100, 10_000, 100):
        desk.at(number, lambda number=number: faults[number // 100 % 4](desk))
        desk.at(
            number + 9, lambda: [setattr(desk.robot, "frozen", None), setattr(desk.robot, "garbage", None)]
        )
    desk.loop.log.put = lambda line: None
    summary = desk.run()
    assert summary.periods == 10_000 and summary.late_unhandled == 0 and summary.late > 99
    assert set(FAULTS) <= set(summary.why)


def replanned(count):
    """A drive of so many plans, a block each, where nothing but the loop could keep anything."""
    desk = Desk(blocks=1, actions=BLOCK * count)
    desk.loop.log.put = lambda line: None
    desk.planner.heard, desk.robot.sent = deque(maxlen=4), deque(maxlen=4)
    return desk.run().plans


def test_ten_thousand_plans_take_no_memory():
    """But the newest latencies, 32 bytes each."""
    ended = in_child(partial(replanned, 10_000))
    assert not ended.error and ended.answer >= 10_000
    assert ended.grew < 4_000_000


def test_the_log_has_a_checked_line_for_every_period(tmp_path):
    path = tmp_path / "drive.jsonl"
    with Log(path) as log:
        put = log.put
        desk = Desk(actions=6, log=log)
        log.put = put
        summary = desk.run()
    lines, damaged = read_lines(path)
    periods = [line for line in lines if line["kind"] == "period"]
    assert not damaged and [line["number"] for line in periods] == list(range(summary.periods))
    assert lines[-1]["kind"] == "end" and lines[-1]["ended"] == "6 actions"
    assert path.read_bytes().count(b'"crc"') == len(lines)


def test_the_loop_runs_before_everything_else_where_the_system_allows(monkeypatch, capsys):
    import os

    before, held = os.sched_getscheduler(0), {}
    monkeypatch.setattr(
        os, "sched_setscheduler", lambda thread, policy, _: held.setdefault(thread, []).append(policy)
    )
    threads = [thread.native_id for thread in threading.enumerate()]
    assert Desk(realtime=True, actions=2).run().actions == 2
    # Every thread: one that waits for a processor while it holds the interpreter holds up the loop.
    assert held == {thread: [os.SCHED_RR | os.SCHED_RESET_ON_FORK, before] for thread in threads}

    def refuse(*words):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert Desk(realtime=True, actions=2).run().actions == 2
    assert "gives no real-time priority (Operation not permitted)" in capsys.readouterr().out


def test_where_nothing_can_be_put_first_the_loop_runs_all_the_same(monkeypatch, capsys):
    """macOS has no such calls at all."""
    for name in [name for name in vars(os) if name.lower().startswith("sched_")]:
        monkeypatch.delattr(os, name)
    assert Desk(realtime=True, actions=2).run().actions == 2
    assert "gives no real-time priority: what else runs" in capsys.readouterr().out


def test_time_that_the_host_of_a_virtual_machine_takes_is_counted_and_written_down(monkeypatch, tmp_path):
    stat = tmp_path / "stat"
    monkeypatch.setattr("lrc_jepa.deploy.stolen.STAT", stat)
    assert stolen_seconds() == 0.0  # a system that does not say
    ticks = os.sysconf("SC_CLK_TCK")
    stat.write_text(f"cpu  11 22 33 44 55 66 77 {3 * ticks} 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n")
    assert stolen_seconds() == 3.0
    taken = iter([0.0, 0.02, 0.02, 0.05, *[0.05] * 9])
    monkeypatch.setattr("lrc_jepa.deploy.loop.stolen_seconds", lambda: next(taken))
    desk = Desk(actions=8)
    assert desk.run().stolen_s == pytest.approx(0.05)
    periods = [line for line in desk.periods if line["kind"] == "period"]
    assert [line["stolen_ms"] for line in periods][:4] == [20, 0, 30, 0]

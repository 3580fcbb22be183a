"""The worker, one event at a time: what it starts and ends, and what it tells its master."""

from __future__ import annotations

import dataclasses

import pytest
from builders import SETTINGS, VERSIONS, ended, letters, log_of, place, ready, running, start

from parl_lite.cluster.worker_state import (
    Action,
    EndChild,
    Event,
    JobDied,
    JobMeasured,
    JobPrintedHere,
    JobSpoke,
    Joined,
    MeasureChild,
    StartChild,
    WorkerState,
)
from parl_lite.machine import (
    MASTER,
    REFUSALS,
    Babbled,
    Connected,
    Disconnected,
    Finish,
    HandshakeFailed,
    Interrupted,
    Received,
    Say,
    Send,
    Woke,
)
from parl_lite.messages import (
    DrainWorker,
    EndJob,
    Goodbye,
    JobEnded,
    JobWrote,
    JoinAgain,
    JoinWorker,
    LeaveWorker,
    Message,
    Needs,
    Refused,
    RunningJob,
    Status,
    StopCluster,
    StopNode,
    Welcome,
)

MB = 1024 * 1024
PATIENCE = SETTINGS.master_patience


class Worker:
    """A worker with four slots and the time; whatever happens, its invariants are checked afterwards."""

    def __init__(self) -> None:
        self.state = WorkerState(VERSIONS, place("w"), 4, ("0",), 1 << 30, "/logs", SETTINGS)
        self.now = 100.0

    def does(self, *events: Event) -> list[Action]:
        actions = [action for event in events for action in self.state.handle(event, self.now)]
        self.state.check()
        return actions

    def hears(self, *messages: Message) -> list[Action]:
        return self.does(*(Received(MASTER, message) for message in messages))

    def waits(self, seconds: float) -> list[Action]:
        self.now += seconds
        return self.does(Woke())


def joining(*jobs: RunningJob) -> JoinWorker:
    return JoinWorker(VERSIONS, place("w"), 4, ("0",), 1 << 30, jobs)


def spoke(job: str = "e.1") -> JobSpoke:
    return JobSpoke(job, 7, (f"tcp://{job}",))


def died(job: str = "e.1", reason: str = "ended with exit code 1") -> JobDied:
    return JobDied(job, 7, 1, None, reason, "last words")


@pytest.fixture
def worker() -> Worker:
    """A worker that has joined."""
    worker = Worker()
    worker.does(Connected())
    worker.hears(Welcome("town"))
    return worker


@pytest.fixture
def busy(worker: Worker) -> Worker:
    """A worker that runs one job, e.1."""
    worker.hears(start("e.1"))
    worker.does(spoke())
    return worker


# Joining


def test_a_worker_joins_when_its_connection_stands() -> None:
    worker = Worker()
    assert worker.does(Connected()) == [Send(MASTER, joining())]
    assert not worker.state.joined
    assert worker.hears(Welcome("town")) == [Joined("town")]
    assert worker.state.joined


def test_it_joins_again_with_its_jobs_and_what_is_known_of_them(busy: Worker) -> None:
    busy.hears(start("e.2"))
    again = Send(MASTER, joining(running("e.1"), running("e.2", spoke=False)))
    assert busy.does(Connected()) == [again]
    assert busy.hears(JoinAgain()) == [again]


def test_a_worker_that_is_refused_ends_with_the_reason(worker: Worker) -> None:
    assert worker.hears(Refused("version", "numpy 1 here and 2 there")) == [Finish(1, "numpy 1 here and 2 there")]


@pytest.mark.parametrize("failures", [[HandshakeFailed()] * REFUSALS, [HandshakeFailed(final=True)]])
def test_a_stranger_to_the_master_gives_up_after_failed_handshakes(failures: list[Event]) -> None:
    worker = Worker()
    assert worker.does(*failures[:-1]) == []
    (end,) = worker.does(failures[-1])
    assert isinstance(end, Finish)
    assert end.code == 1
    assert "`parl-lite key`" in end.reason


def test_a_connection_that_stands_forgives_failed_handshakes() -> None:
    worker = Worker()
    worker.does(*[HandshakeFailed()] * (REFUSALS - 1), Connected())
    assert worker.does(HandshakeFailed()) == []


def test_a_worker_that_was_welcome_once_tries_for_ever(worker: Worker) -> None:
    assert worker.does(Disconnected(), *[HandshakeFailed()] * 100)[1:] == []


# Jobs


def test_a_job_is_started_and_tells_where_it_listens(worker: Worker) -> None:
    assert worker.hears(start("e.1")) == [StartChild(start("e.1"), "/logs/Actor-e.1.log")]
    assert worker.does(spoke()) == [Send(MASTER, ready("e.1"))]


def test_an_order_repeated_is_one_order(worker: Worker) -> None:
    assert len(worker.hears(start("e.1"), start("e.1"))) == 1


def test_a_job_that_died_is_told_with_all_that_is_known(busy: Worker) -> None:
    death = JobDied("e.1", 7, None, 9, "was killed by SIGKILL", "last words")
    told = JobEnded("e.1", 7, None, 9, "was killed by SIGKILL", False, "last words", log_of("e.1"))
    assert busy.does(death) == [Send(MASTER, told)]
    assert busy.does(death) == []


def test_a_job_that_could_not_be_started_is_told_too(worker: Worker) -> None:
    worker.hears(start("e.1"))
    (told,) = letters(worker.does(JobDied("e.1", 0, None, None, "could not be started: no memory", "")))
    assert told == JobEnded("e.1", 0, None, None, "could not be started: no memory", False, "", log_of("e.1"))


def test_a_job_that_does_not_speak_in_time_is_killed(worker: Worker) -> None:
    worker.hears(start("e.1"))
    assert worker.state.deadline() == worker.now + SETTINGS.job_start_timeout
    assert worker.waits(SETTINGS.job_start_timeout) == [EndChild("e.1", kill=True)]
    assert worker.state.deadline() is None


def test_a_job_that_spoke_has_all_the_time_of_the_world(busy: Worker) -> None:
    assert busy.state.deadline() is None
    assert busy.waits(1e6) == []


def test_what_a_job_prints_is_passed_on_if_its_client_wants_to_see_it(busy: Worker) -> None:
    assert busy.does(JobPrintedHere("e.1", "hello\n")) == [Send(MASTER, JobWrote("e.1", "hello\n"))]
    busy.hears(dataclasses.replace(start("e.2"), show_logs=False))
    assert busy.does(JobPrintedHere("e.2", "hello\n")) == []


@pytest.mark.parametrize("event", [spoke("x.1"), died("x.1"), JobPrintedHere("x.1", "hello")])
def test_a_job_that_is_gone_says_nothing_any_more(worker: Worker, event: Event) -> None:
    assert worker.does(event) == []


# Ending jobs


def test_a_job_is_asked_to_end_and_killed_after_a_grace(busy: Worker) -> None:
    assert busy.hears(EndJob("e.1"), EndJob("e.1")) == [EndChild("e.1", kill=False)]
    assert busy.state.deadline() == busy.now + SETTINGS.job_grace
    assert busy.waits(SETTINGS.job_grace) == [EndChild("e.1", kill=True)]
    assert busy.state.deadline() is None


def test_a_job_that_ends_when_asked_is_not_killed(busy: Worker) -> None:
    busy.hears(EndJob("e.1"))
    assert busy.does(died()) == [Send(MASTER, ended("e.1"))]
    assert busy.waits(60.0) == []


def test_a_job_that_speaks_after_it_was_asked_to_end_is_not_told(worker: Worker) -> None:
    worker.hears(start("e.1"), EndJob("e.1"))
    assert worker.does(spoke()) == []


def test_the_end_of_a_job_that_is_not_here_is_confirmed(worker: Worker) -> None:
    assert worker.hears(EndJob("x.1")) == [Send(MASTER, JobEnded("x.1", 0, None, None, "was not here", False, "", ""))]


# The master is away


def test_jobs_go_on_while_the_master_is_away(busy: Worker) -> None:
    assert [type(action) for action in busy.does(Disconnected())] == [Say]
    assert busy.does(Disconnected()) == []
    assert busy.state.deadline() == busy.now + PATIENCE
    assert busy.waits(PATIENCE - 0.1) == []


def test_jobs_are_ended_when_the_master_stays_away(busy: Worker) -> None:
    busy.does(Disconnected())
    assert busy.waits(PATIENCE) == [EndChild("e.1", kill=False)]
    assert busy.state.deadline() == busy.now + SETTINGS.job_grace
    assert busy.waits(SETTINGS.job_grace) == [EndChild("e.1", kill=True)]
    assert busy.state.deadline() is None


def test_a_connection_is_no_welcome(busy: Worker) -> None:
    busy.does(Disconnected(), Connected())
    assert busy.waits(PATIENCE) == [EndChild("e.1", kill=False)]


def test_a_master_that_is_back_in_time_finds_its_jobs(busy: Worker) -> None:
    busy.does(Disconnected())
    busy.waits(PATIENCE - 1)
    busy.does(Connected())
    busy.hears(Welcome("town"))
    assert busy.waits(PATIENCE) == []


def test_a_worker_without_jobs_waits_for_its_master_for_ever(worker: Worker) -> None:
    worker.does(Disconnected())
    assert worker.state.deadline() is None
    assert worker.waits(1e6) == []


# Memory


@pytest.fixture
def limited(worker: Worker) -> Worker:
    """A worker that runs one job, e.1, with max_memory, which used 300 MB when it was measured first."""
    worker.hears(dataclasses.replace(start("e.1"), needs=Needs(1, 0, 100 * MB)))
    assert worker.does(spoke()) == [Send(MASTER, ready("e.1")), MeasureChild("e.1")]
    assert worker.does(JobMeasured("e.1", 300 * MB)) == []
    return worker


def test_a_job_with_a_limit_is_measured_at_intervals_as_long_as_it_lives(limited: Worker) -> None:
    assert limited.state.deadline() == limited.now + SETTINGS.memory_interval
    assert limited.waits(SETTINGS.memory_interval) == [MeasureChild("e.1")]
    limited.does(died())
    assert limited.state.deadline() is None


def test_a_job_without_a_limit_is_not_measured(busy: Worker) -> None:
    assert busy.waits(SETTINGS.memory_interval) == []
    assert busy.does(JobMeasured("e.1", 1 << 40), JobMeasured("x.1", 1 << 40)) == []


def test_what_a_job_used_at_its_start_does_not_count(limited: Worker) -> None:
    assert limited.does(JobMeasured("e.1", 400 * MB)) == []


def test_a_job_that_uses_too_much_is_killed_once_and_the_figures_are_told(limited: Worker) -> None:
    over = JobMeasured("e.1", 450 * MB)
    assert limited.does(over, over) == [EndChild("e.1", kill=True)]
    (told,) = letters(limited.does(JobDied("e.1", 7, None, 9, "was killed by SIGKILL", "last words")))
    reason = "was killed: it used 150 MB more memory than at its start, max_memory is 100 MB"
    assert told == JobEnded("e.1", 7, None, 9, reason, True, "last words", log_of("e.1"))


# Leaving


def test_a_worker_without_jobs_leaves_at_once(worker: Worker) -> None:
    assert worker.does(Interrupted("received SIGTERM")) == [
        Send(MASTER, DrainWorker("received SIGTERM")),
        Send(MASTER, LeaveWorker("received SIGTERM")),
        Finish(0, "received SIGTERM"),
    ]


@pytest.mark.parametrize("asked", [Interrupted("the end"), Received(MASTER, StopNode("the end"))])
def test_a_worker_that_is_asked_to_end_ends_its_jobs_first(busy: Worker, asked: Event) -> None:
    assert busy.does(asked) == [Send(MASTER, DrainWorker("the end")), EndChild("e.1", kill=False)]
    assert busy.does(Interrupted("again")) == []
    assert busy.does(died())[1:] == [Send(MASTER, LeaveWorker("the end")), Finish(0, "the end")]


def test_a_worker_that_leaves_starts_nothing(busy: Worker) -> None:
    busy.does(Interrupted("the end"))
    told = JobEnded("e.2", 0, None, None, "was not started: the end", False, "", "")
    assert busy.hears(start("e.2")) == [Send(MASTER, told)]


def test_a_worker_that_leaves_and_joins_again_says_that_it_leaves(busy: Worker) -> None:
    busy.does(Interrupted("the end"))
    assert [type(message) for message in letters(busy.does(Connected()))] == [JoinWorker, DrainWorker]


# Nonsense


def test_what_the_master_should_not_say_is_noted_and_ignored(busy: Worker) -> None:
    assert busy.does(Babbled(MASTER, "no message")) == [Say("the master sent nonsense: no message")]
    assert busy.hears(Goodbye()) == [Say("the master sent Goodbye, which is not for a worker")]
    assert busy.hears(StopCluster(), Status("{}"))[1:] == [Say("the master sent Status, which is not for a worker")]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", "x" * 500])
def test_a_name_from_a_peer_does_not_lead_out_of_the_log_folder(name):
    [asked] = Worker().hears(dataclasses.replace(start("1.1"), name=name))
    assert asked.log_path.startswith("/logs/") and asked.log_path.count("/") == 2
    assert len(asked.log_path) < 150

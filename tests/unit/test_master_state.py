"""The master, one message at a time: who is here, which slots are free, who gets one."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest
from builders import (
    C2,
    SETTINGS,
    VERSIONS,
    W2,
    C,
    Master,
    W,
    client,
    ended,
    granted,
    letters,
    log_of,
    lost,
    place,
    random_messages,
    ready,
    running,
    start,
    want,
    worker,
)

from parl_lite.cluster.master_state import Action
from parl_lite.machine import Babbled, Finish, Interrupted, Say, Send
from parl_lite.messages import (
    AskStatus,
    DrainWorker,
    EndJob,
    ForgetWish,
    Goodbye,
    JobEnded,
    JobGranted,
    JobLost,
    JobPrinted,
    JobWrote,
    JoinAgain,
    JoinClient,
    JoinWorker,
    LeaveClient,
    LeaveWorker,
    Message,
    Needs,
    Place,
    Refused,
    ReleaseJob,
    StartJob,
    Status,
    StopCluster,
    StopNode,
    WantJob,
    Welcome,
    WishRefused,
    WishWaits,
)

GRACE = SETTINGS.rejoin_grace
CLAIM = SETTINGS.liveness_timeout


@pytest.fixture
def master() -> Master:
    """A master without anybody."""
    return Master()


@pytest.fixture
def town() -> Master:
    """A master with one worker of two slots and one client."""
    master = Master()
    master.hears(W, worker())
    master.hears(C, client())
    return master


def n_free(master: Master, peer: bytes = W) -> int:
    return master.state.workers[peer].free_cpu


def status(master: Master) -> dict[str, Any]:
    (found,) = letters(master.hears(b"cli", AskStatus()), b"cli")
    assert isinstance(found, Status)
    report: dict[str, Any] = json.loads(found.report)
    return report


def run_job(master: Master, wish: int, job: str, on: bytes = W, of: bytes = C) -> None:
    """Bring a wish to a running job."""
    assert letters(master.hears(of, want(wish)), on) == [start(job, of)]
    master.hears(on, ready(job))


# Joining


def test_a_worker_that_joins_is_welcome(master: Master) -> None:
    assert master.hears(W, worker(n_cpu=4)) == [Say("worker w joined with 4 CPUs"), Send(W, Welcome("town"))]


def test_a_client_that_joins_is_welcome(master: Master) -> None:
    assert master.hears(C, client()) == [Say("client c pid 1 joined"), Send(C, Welcome("town"))]


@pytest.mark.parametrize("join", [worker(), dataclasses.replace(client(), place=place("w"))])
def test_another_version_is_refused_and_both_sides_are_named(master: Master, join: JoinWorker | JoinClient) -> None:
    theirs = dataclasses.replace(VERSIONS, package="0.2.0", python="3.12")
    conflict = "package 0.1.0 here and 0.2.0 there, python 3.11 here and 3.12 there"
    assert master.hears(W, dataclasses.replace(join, versions=theirs)) == [
        Say(f"refused w pid 1: {conflict}"),
        Send(W, Refused("version", f"the master and w do not fit together: {conflict} (here is the master)")),
    ]
    assert master.state.peers() == []


@pytest.mark.parametrize("said", [ready("e.1"), ended("e.1"), JobWrote("e.1", "x"), DrainWorker(""), LeaveWorker("")])
def test_a_stranger_who_speaks_as_a_worker_is_asked_to_join(master: Master, said: Message) -> None:
    assert master.hears(W, said) == [Send(W, JoinAgain())]


@pytest.mark.parametrize("said", [want(1), ForgetWish(1), ReleaseJob("e.1")])
def test_a_stranger_who_speaks_as_a_client_is_asked_to_join(master: Master, said: Message) -> None:
    assert master.hears(C, said) == [Send(C, JoinAgain())]


def test_a_stranger_who_leaves_is_let_go(master: Master) -> None:
    assert master.hears(C, LeaveClient()) == [Send(C, Goodbye())]


def test_only_those_whose_connections_stand_are_watched(town: Master) -> None:
    town.hears(W2, worker())
    town.loses(W, C)
    assert town.state.peers() == [W2]


# Wishes


def test_a_wish_becomes_a_job_and_the_client_hears_where_it_runs(town: Master) -> None:
    assert town.hears(C, want(1)) == [Send(W, start("e.1"))]
    assert town.hears(W, ready("e.1")) == [Send(C, granted(1, "e.1"))]


def test_a_wish_waits_for_the_first_worker(master: Master) -> None:
    assert letters(master.hears(C, client(), want(1))) == [Welcome("town")]
    assert letters(master.hears(W, worker())) == [Welcome("town"), start("e.1")]


def test_wishes_are_granted_in_order_of_arrival_whoever_made_them(master: Master) -> None:
    master.hears(C, client(), want(1))
    master.hears(C2, client(), want(1))
    master.hears(C, want(2))
    assert letters(master.hears(W, worker(n_cpu=3)), W) == [
        Welcome("town"),
        start("e.1", C),
        start("e.2", C2),
        start("e.3", C),
    ]


def test_a_small_wish_does_not_overtake_a_large_one(town: Master) -> None:
    town.hears(C, want(1), want(2, n_cpu=2), want(3))
    assert n_free(town) == 1
    assert letters(town.hears(W, ended("e.1")), W) == [start("e.2", n_cpu=2)]


def test_a_slot_is_handed_over_when_its_job_has_ended(town: Master) -> None:
    town.hears(C, want(1), want(2), want(3))
    assert town.hears(C, ReleaseJob("e.1")) == [Send(W, EndJob("e.1"))]
    assert town.hears(W, ended("e.1")) == [Send(W, start("e.3"))]


def test_the_worker_with_most_free_slots_gets_the_job(town: Master) -> None:
    town.hears(W2, worker(n_cpu=3))
    actions = town.hears(C, want(1), want(2), want(3), want(4))
    assert [action.peer for action in actions if isinstance(action, Send)] == [W2, W, W2, W]


def test_a_wish_repeated_while_it_waits_is_one_wish(master: Master) -> None:
    master.hears(C, client(), want(1), want(1))
    assert letters(master.hears(W, worker()), W) == [Welcome("town"), start("e.1")]


def test_a_wish_repeated_while_its_job_starts_is_granted_once(town: Master) -> None:
    assert letters(town.hears(C, want(1), want(1))) == [start("e.1")]


def test_a_wish_repeated_when_its_job_runs_is_granted_again(town: Master) -> None:
    run_job(town, 1, "e.1")
    assert town.hears(C, want(1)) == [Send(C, granted(1, "e.1"))]


def test_a_wish_given_up_leaves_the_queue(town: Master) -> None:
    town.hears(C, want(1, n_cpu=2), want(2), want(3), ForgetWish(2))
    assert letters(town.hears(W, ended("e.1")), W) == [start("e.2")]
    assert town.state.jobs["e.2"].wish == 3


@pytest.mark.parametrize("speaks", [False, True])
def test_a_wish_given_up_after_its_job_began_ends_the_job(town: Master, speaks: bool) -> None:
    town.hears(C, want(1))
    town.hears(W, *([ready("e.1")] if speaks else []))
    assert town.hears(C, ForgetWish(1)) == [Send(W, EndJob("e.1"))]
    assert town.hears(W, ended("e.1")) == []


# Wishes that never can be granted


def test_what_no_worker_can_ever_run_is_refused_at_once_with_figures(town: Master) -> None:
    town.hears(W2, worker(n_cpu=4, gpus=("0",)))
    reason = (
        "no worker can ever run it: it needs 5 CPUs and 0 GPUs on one machine, and the largest of 2 workers has 4 CPUs and 1 GPU"
    )
    assert town.hears(C, want(1, n_cpu=5)) == [Send(C, WishRefused(1, reason))]


def test_what_can_never_run_is_refused_at_once_although_others_wait_before_it(town: Master) -> None:
    town.hears(C, want(1, n_cpu=2), want(2))
    (refused,) = letters(town.hears(C, want(3, n_gpu=1)))
    assert isinstance(refused, WishRefused)
    assert refused.wish == 3


def test_without_any_worker_nothing_is_impossible_until_one_joins(master: Master) -> None:
    assert letters(master.hears(C, client(), want(1), want(2, n_cpu=99))) == [Welcome("town")]
    found = letters(master.hears(W, worker()))
    assert [type(message) for message in found] == [WishRefused, Welcome, StartJob]


def test_a_wish_is_refused_when_the_only_worker_that_could_run_it_is_gone(town: Master) -> None:
    town.hears(W2, worker(n_cpu=4))
    town.hears(C, want(1, n_cpu=4), want(2, n_cpu=3))
    refused = letters(town.hears(W2, LeaveWorker("stopped")), C)
    assert [type(message) for message in refused] == [WishRefused, WishRefused]
    assert [message.wish for message in refused if isinstance(message, WishRefused)] == [1, 2]


# Notices


def test_a_wish_that_waits_is_told_why_after_a_second_and_then_at_intervals(town: Master) -> None:
    town.hears(C, want(1), want(2), want(3))
    assert town.state.deadline() == town.now + 1
    notice = Send(C, WishWaits(3, "it needs 1 CPU; 0 of 2 CPUs are free, and 0 wishes came before"))
    assert town.waits(0.9) == []
    assert town.waits(0.1) == [notice]
    assert town.waits(SETTINGS.notice_interval - 0.1) == []
    assert town.waits(0.1) == [notice]


def test_a_notice_counts_the_wishes_before_and_names_the_gpus(master: Master) -> None:
    master.hears(W, worker(n_cpu=4, gpus=("0", "1")))
    master.hears(C, client(), want(1, n_gpu=2), want(2, n_gpu=1), want(3, n_cpu=2, n_gpu=2))
    assert letters(master.waits(1.0)) == [
        WishWaits(2, "it needs 1 CPU, 1 GPU; 3 of 4 CPUs, 0 of 2 GPUs are free, and 0 wishes came before"),
        WishWaits(3, "it needs 2 CPUs, 2 GPUs; 3 of 4 CPUs, 0 of 2 GPUs are free, and 1 wish came before"),
    ]


def test_a_notice_says_that_there_is_no_worker(master: Master) -> None:
    master.hears(C, client(), want(1))
    assert letters(master.waits(1.0)) == [WishWaits(1, "no worker has joined the cluster yet")]


def test_a_wish_that_came_true_is_told_nothing_more(town: Master) -> None:
    town.hears(C, want(1))
    assert town.waits(60.0) == []
    assert town.state.deadline() is None


# GPUs


def test_gpus_are_given_to_one_job_each_and_come_back(master: Master) -> None:
    master.hears(W, worker(n_cpu=9, gpus=("3", "5", "7")))
    master.hears(C, client())
    assert letters(master.hears(C, want(1, n_gpu=2), want(2, n_gpu=1))) == [
        start("e.1", gpus=("3", "5")),
        start("e.2", gpus=("7",)),
    ]
    assert letters(master.hears(C, want(3, n_gpu=2))) == []
    assert letters(master.hears(W, ended("e.2"), ended("e.1")), W) == [start("e.3", gpus=("7", "3"))]


# The ends of jobs


def test_a_job_that_ends_before_it_speaks_refuses_its_wish(town: Master) -> None:
    town.hears(C, want(1))
    assert town.hears(W, ended("e.1", "was killed by SIGSEGV")) == [
        Send(C, WishRefused(1, "the process on w was killed by SIGSEGV"))
    ]
    assert n_free(town) == 2


def test_a_job_that_ran_is_lost_with_all_that_is_known_of_its_end(town: Master) -> None:
    run_job(town, 1, "e.1")
    death = JobEnded("e.1", 7, None, 9, "was killed by SIGKILL", True, "last words", log_of("e.1"))
    loss = JobLost("e.1", place("w", 7), None, 9, "was killed by SIGKILL", True, "last words", log_of("e.1"))
    assert town.hears(W, death) == [Send(C, loss)]
    assert n_free(town) == 2


def test_deaths_are_remembered_for_the_status_but_not_the_ends_that_were_asked_for(town: Master) -> None:
    run_job(town, 1, "e.1")
    run_job(town, 2, "e.2")
    town.hears(C, ReleaseJob("e.1"))
    town.hears(W, ended("e.1"), ended("e.2", "was killed by SIGKILL"))
    death = {"actor": "Actor", "job": "e.2", "host": "w", "pid": 7, "reason": "was killed by SIGKILL"}
    assert status(town)["deaths"] == [death]


def test_a_released_job_keeps_its_slot_until_it_has_ended(town: Master) -> None:
    run_job(town, 1, "e.1")
    assert town.hears(C, ReleaseJob("e.1"), ReleaseJob("e.1")) == [Send(W, EndJob("e.1"))]
    assert n_free(town) == 1
    assert town.hears(W, ended("e.1")) == []
    assert n_free(town) == 2


def test_nobody_can_release_the_job_of_another(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.hears(C2, client())
    assert town.hears(C2, ReleaseJob("e.1")) == []
    assert town.state.jobs["e.1"].state == "running"


def test_a_job_that_speaks_after_it_was_given_up_is_not_granted(town: Master) -> None:
    town.hears(C, want(1), ForgetWish(1))
    assert town.hears(W, ready("e.1")) == []


def test_a_job_that_nobody_knows_is_ended(town: Master) -> None:
    assert town.hears(W, ready("x.1")) == [Send(W, EndJob("x.1"))]
    assert town.hears(W, ended("x.1")) == []


def test_what_a_job_prints_goes_to_its_client_while_it_is_here(town: Master) -> None:
    run_job(town, 1, "e.1")
    assert town.hears(W, JobWrote("e.1", "hello\n")) == [Send(C, JobPrinted("e.1", "Actor", place("w", 7), "hello\n"))]
    town.hears(C, LeaveClient())
    assert letters(town.hears(W, JobWrote("e.1", "more\n")), C) == [JobPrinted("e.1", "Actor", place("w", 7), "more\n")]
    town.does(Babbled(C, "nonsense"))
    assert town.hears(W, JobWrote("e.1", "too late\n")) == []


def test_a_job_is_told_whether_its_client_wants_to_see_what_it_prints(town: Master) -> None:
    town.hears(C2, client(show_logs=False))
    assert town.hears(C2, want(1)) == [Send(W, dataclasses.replace(start("e.1", C2), show_logs=False))]


# Absence


def test_an_absent_worker_gets_no_jobs(town: Master) -> None:
    town.loses(W)
    assert town.hears(C, want(1)) == []


def test_a_worker_that_joins_again_in_time_loses_nothing(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.loses(W)
    assert town.waits(GRACE - 0.1) == []
    assert town.hears(W, worker(jobs=[running("e.1")])) == [Send(W, Welcome("town"))]
    assert town.waits(60.0) == []


def test_a_worker_that_speaks_is_absent_no_more(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.loses(W)
    town.hears(W, JobWrote("e.1", "I am here\n"))
    assert town.waits(60.0) == []
    assert town.state.peers() == [W, C]


def test_a_loss_noticed_twice_does_not_lengthen_the_grace(town: Master) -> None:
    town.loses(W)
    town.waits(GRACE - 1)
    assert town.loses(W) == []
    assert Say("worker w is gone") in town.waits(1.0)


def test_the_jobs_of_a_worker_away_for_too_long_are_lost(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.loses(W)
    assert town.state.deadline() == town.now + GRACE
    assert town.waits(GRACE) == [
        Say("worker w is gone"),
        Send(C, lost("e.1", "is out of reach: the connection to its worker on w was lost")),
        Send(W, JoinAgain()),
    ]


def test_a_silent_worker_loses_its_wishes_to_the_next(town: Master) -> None:
    town.hears(C, want(1), want(2))
    town.hears(W2, worker())
    town.loses(W)
    town.waits(GRACE)
    assert {name: job.wish for name, job in town.state.jobs.items()} == {"e.3": 1, "e.4": 2}
    assert {job.worker.peer for job in town.state.jobs.values()} == {W2}


def test_wishes_that_a_worker_took_with_it_are_first_in_the_queue_again(town: Master) -> None:
    town.hears(C, want(1), want(2), want(3))
    town.loses(W)
    assert letters(town.waits(GRACE), C) == [WishWaits(wish, "no worker has joined the cluster yet") for wish in (1, 2, 3)]


def test_a_wish_that_lost_its_worker_has_waited_since_it_was_made(town: Master) -> None:
    town.hears(C, want(1))
    town.loses(W)
    town.waits(GRACE)
    assert [wish["waited"] for wish in status(town)["wishes"]] == [GRACE]


def test_a_client_away_for_too_long_loses_its_jobs_and_wishes(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.hears(C, want(2, n_cpu=2))
    town.loses(C)
    assert town.waits(GRACE) == [Say("client c pid 1 is gone"), Send(W, EndJob("e.1")), Send(C, JoinAgain())]
    assert town.hears(W, ended("e.1")) == []
    assert n_free(town) == 2


def test_a_client_that_speaks_is_absent_no_more(town: Master) -> None:
    town.loses(C)
    town.hears(C, want(1))
    assert town.waits(60.0) == []


def test_the_loss_of_a_stranger_is_no_news(town: Master) -> None:
    assert town.loses(b"nobody") == []


# A worker joins again


def test_a_job_that_spoke_while_its_worker_was_away_is_granted_at_the_join(town: Master) -> None:
    town.hears(C, want(1))
    town.loses(W)
    assert town.hears(W, worker(jobs=[running("e.1")])) == [Send(C, granted(1, "e.1")), Send(W, Welcome("town"))]


def test_a_job_that_still_starts_is_waited_for(town: Master) -> None:
    town.hears(C, want(1))
    assert town.hears(W, worker(jobs=[running("e.1", spoke=False)])) == [Send(W, Welcome("town"))]
    assert town.hears(W, ready("e.1")) == [Send(C, granted(1, "e.1"))]


def test_a_job_that_ended_while_its_worker_was_away_is_lost(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.loses(W)
    assert town.hears(W, worker()) == [
        Send(C, lost("e.1", "ended while its worker was away")),
        Send(W, EndJob("e.1")),
        Send(W, Welcome("town")),
    ]
    assert n_free(town) == 1
    town.hears(W, ended("e.1", "was not here"))
    assert n_free(town) == 2


def test_a_job_whose_order_was_lost_on_the_way_is_wished_again(town: Master) -> None:
    town.hears(C, want(1))
    town.loses(W)
    assert town.hears(W, worker()) == [Send(W, EndJob("e.1")), Send(W, Welcome("town")), Send(W, start("e.2"))]
    assert town.hears(W, ready("e.1"), ended("e.1"), ready("e.2")) == [Send(C, granted(1, "e.2"))]


def test_a_worker_is_told_again_to_end_a_job_that_it_still_has(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.hears(C, ReleaseJob("e.1"))
    assert town.hears(W, worker(jobs=[running("e.1")])) == [Send(W, EndJob("e.1")), Send(W, Welcome("town"))]


def test_a_worker_that_comes_back_after_it_was_forgotten_ends_what_was_given_to_others(town: Master) -> None:
    town.hears(C, want(1))
    town.hears(W2, worker())
    town.loses(W)
    town.waits(GRACE)
    town.hears(W2, ready("e.2"))
    actions = town.hears(W, worker(jobs=[running("e.1")]))
    assert letters(actions, C) == []
    assert letters(town.waits(CLAIM), W) == [EndJob("e.1")]


def test_a_job_that_another_worker_has_is_not_taken_over(town: Master) -> None:
    run_job(town, 1, "e.1")
    assert letters(town.hears(W2, worker(jobs=[running("e.1")]))) == [EndJob("e.1"), Welcome("town")]
    assert town.state.jobs["e.1"].worker.peer == W


def test_jobs_that_do_not_fit_into_what_a_worker_offers_are_ended(master: Master) -> None:
    jobs = [running("x.1"), running("x.2", n_cpu=2), dataclasses.replace(running("x.3"), gpus=("9",))]
    assert letters(master.hears(W, worker(jobs=jobs))) == [EndJob("x.2"), EndJob("x.3"), Welcome("town")]
    assert n_free(master) == 1


# A client joins again


def test_a_client_that_joins_again_in_time_keeps_its_jobs_and_wishes(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.hears(C, want(2, n_cpu=2))
    town.loses(C)
    assert town.hears(C, client(["e.1"], [2])) == [Send(C, Welcome("town"))]
    assert letters(town.hears(W, ended("e.1")), W) == [start("e.2", n_cpu=2)]


def test_what_a_client_released_while_it_was_away_is_ended(town: Master) -> None:
    run_job(town, 1, "e.1")
    run_job(town, 2, "e.2")
    town.loses(C)
    assert town.hears(C, client(["e.2"])) == [Send(W, EndJob("e.1")), Send(C, Welcome("town"))]


def test_what_a_client_gave_up_while_it_was_away_is_forgotten(town: Master) -> None:
    town.hears(C, want(1), want(2, n_cpu=2), want(3))
    town.loses(C)
    assert town.hears(C, client([], [3])) == [Send(W, EndJob("e.1")), Send(C, Welcome("town")), Send(W, start("e.2"))]
    assert town.state.jobs["e.2"].wish == 3


def test_a_grant_that_was_lost_on_the_way_keeps_its_job_for_the_wish_that_is_repeated(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.loses(C)
    assert town.hears(C, client([], [1]), want(1)) == [Send(C, Welcome("town")), Send(C, granted(1, "e.1"))]


def test_a_client_that_comes_back_too_late_hears_that_its_job_was_ended(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.loses(C)
    town.waits(GRACE)
    assert letters(town.hears(C, client(["e.1"]))) == [
        lost("e.1", "was ended: its client was away for too long"),
        Welcome("town"),
    ]


def test_a_job_that_no_worker_knows_is_lost_after_a_while(town: Master) -> None:
    assert letters(town.hears(C, client(["x.1"]))) == [Welcome("town")]
    assert town.state.deadline() == town.now + CLAIM
    assert town.waits(CLAIM - 0.1) == []
    loss = JobLost("x.1", Place("", 0, ""), None, None, "is not known to any worker any more", False, "", "")
    assert town.waits(0.1) == [Send(C, loss)]
    assert town.waits(CLAIM) == []


def test_a_job_that_was_released_is_not_missed(town: Master) -> None:
    town.hears(C, client(["x.1"]), ReleaseJob("x.1"))
    assert town.waits(CLAIM) == []


# A master that starts anew


def test_a_new_master_learns_jobs_from_the_worker_and_their_owner_from_the_client() -> None:
    master = Master("new")
    assert letters(master.hears(W, worker(jobs=[running("e.1")]))) == [Welcome("town")]
    assert n_free(master) == 1
    assert letters(master.hears(C, client(["e.1"]))) == [Welcome("town")]
    assert master.waits(CLAIM) == []
    assert master.hears(C, ReleaseJob("e.1")) == [Send(W, EndJob("e.1"))]


def test_a_new_master_may_hear_from_the_client_first() -> None:
    master = Master("new")
    master.hears(C, client(["e.1"]))
    assert letters(master.hears(W, worker(jobs=[running("e.1")]))) == [Welcome("town")]
    assert master.waits(CLAIM) == []
    assert letters(master.hears(W, ended("e.1")), C) == [
        JobLost("e.1", place("w", 7), 1, None, "ended with exit code 1", False, "last words", log_of("e.1"))
    ]


def test_a_new_master_ends_a_job_that_nobody_claims() -> None:
    master = Master("new")
    master.hears(W, worker(jobs=[running("e.1")]))
    master.hears(C2, client())
    assert master.state.deadline() == master.now + CLAIM
    assert master.waits(CLAIM - 0.1) == []
    assert master.waits(0.1) == [Send(W, EndJob("e.1"))]
    assert master.state.deadline() is None
    assert master.hears(W, ended("e.1")) == []
    assert n_free(master) == 2


def test_a_new_master_ends_a_job_that_was_never_granted() -> None:
    assert letters(Master("new").hears(W, worker(jobs=[running("e.1", spoke=False)]))) == [EndJob("e.1"), Welcome("town")]


def test_nobody_can_claim_the_job_of_another() -> None:
    master = Master("new")
    master.hears(W, worker(jobs=[running("e.1", of=C)]))
    master.hears(C2, client(["e.1"]))
    (end, loss) = letters(master.waits(CLAIM))
    assert end == EndJob("e.1")
    assert isinstance(loss, JobLost)


# Leaving


def test_a_client_without_jobs_is_let_go_at_once(town: Master) -> None:
    assert town.hears(C, LeaveClient()) == [Send(C, Goodbye())]
    assert town.state.clients == {}


def test_a_client_is_let_go_when_its_last_job_has_ended(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.hears(C, want(2), want(3))
    assert town.hears(C, LeaveClient()) == [Send(W, EndJob("e.1")), Send(W, EndJob("e.2"))]
    assert town.hears(W, ended("e.1")) == []
    assert town.hears(W, ended("e.2")) == [Send(C, Goodbye())]


def test_a_client_that_leaves_does_not_wait_for_a_worker_that_is_away(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.hears(C, LeaveClient())
    assert town.loses(W) == [Send(C, Goodbye())]


def test_a_client_that_leaves_wants_nothing_any_more(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.hears(C, LeaveClient())
    assert town.hears(C, want(2)) == []


def test_the_jobs_of_a_worker_that_leaves_are_lost(town: Master) -> None:
    run_job(town, 1, "e.1")
    assert town.hears(W, LeaveWorker("received SIGTERM")) == [
        Say("worker w leaves: received SIGTERM"),
        Say("worker w is gone"),
        Send(C, lost("e.1", "ended with its worker (received SIGTERM)")),
    ]
    assert town.hears(W, ended("e.1")) == [Send(W, JoinAgain())]


def test_a_draining_worker_gets_no_jobs(town: Master) -> None:
    town.hears(W, DrainWorker("received SIGTERM"))
    assert town.hears(C, want(1)) == []
    assert status(town)["workers"][0]["draining"]


def test_the_starting_jobs_of_a_draining_worker_are_wished_again(town: Master) -> None:
    town.hears(C, want(1))
    town.hears(W, DrainWorker("received SIGTERM"))
    town.hears(W2, worker())
    assert town.hears(W, ended("e.1", "was not started: received SIGTERM")) == [Send(W2, start("e.2"))]


def test_the_running_jobs_of_a_draining_worker_are_lost(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.hears(W, DrainWorker("received SIGTERM"))
    (loss,) = letters(town.hears(W, ended("e.1")))
    assert isinstance(loss, JobLost)


# Nonsense


def test_a_worker_that_babbles_is_dropped_and_its_jobs_are_lost(town: Master) -> None:
    run_job(town, 1, "e.1")
    assert town.does(Babbled(W, "unknown control message b'X'")) == [
        Say(f"peer {W.hex()} is dropped: unknown control message b'X'"),
        Send(W, Refused("protocol", "unknown control message b'X'")),
        Say("worker w is gone"),
        Send(C, lost("e.1", "is out of reach: its worker sent nonsense")),
    ]


def test_a_client_that_babbles_is_dropped_and_its_jobs_are_ended(town: Master) -> None:
    run_job(town, 1, "e.1")
    actions = town.does(Babbled(C, "no"))
    assert actions[1:] == [Send(C, Refused("protocol", "no")), Say("client c pid 1 is gone"), Send(W, EndJob("e.1"))]


def test_a_stranger_that_babbles_is_answered_and_changes_nothing(town: Master) -> None:
    assert letters(town.does(Babbled(b"x", "no")), b"x") == [Refused("protocol", "no")]
    assert town.state.peers() == [W, C]


@pytest.mark.parametrize("said", [Welcome("x"), start("e.1"), StopNode("x"), granted(1, "e.1"), Goodbye(), Status("{}")])
def test_what_only_the_master_says_is_nonsense(town: Master, said: Message) -> None:
    (refused,) = letters(town.hears(W, said))
    assert refused == Refused("protocol", f"{type(said).__name__} is the master's to send")
    assert W not in town.state.workers


@pytest.mark.parametrize(("peer", "join"), [(W, client()), (C, worker())])
def test_nobody_is_worker_and_client(town: Master, peer: bytes, join: Message) -> None:
    (refused,) = letters(town.hears(peer, join))
    assert isinstance(refused, Refused)
    assert peer not in town.state.peers()


# The end of the cluster


def test_who_stops_the_cluster_and_all_that_joined_are_told(town: Master) -> None:
    end = StopNode("the cluster was stopped")
    assert town.hears(b"cli", StopCluster()) == [
        Say("the cluster is stopped"),
        Send(W, end),
        Send(C, end),
        Send(b"cli", end),
    ]


def test_a_stopped_master_finishes_when_its_last_worker_has_left(town: Master) -> None:
    town.hears(W2, worker())
    town.hears(C, StopCluster())
    assert town.hears(W, LeaveWorker("stopped"))[-1] == Say("worker w is gone")
    assert town.hears(W2, LeaveWorker("stopped"))[-1] == Finish(0, "stopped")


def test_a_stopped_master_does_not_wait_for_ever(town: Master) -> None:
    town.hears(C, StopCluster())
    patience = SETTINGS.job_grace + GRACE
    assert town.state.deadline() == town.now + patience
    assert town.waits(patience - 0.1) == []
    assert town.waits(0.1) == [Finish(0, "stopped")]


def test_a_stopped_master_without_workers_finishes_at_once(master: Master) -> None:
    assert master.hears(C, StopCluster())[-1] == Finish(0, "stopped")


@pytest.mark.parametrize("join", [worker(), client()])
def test_nobody_joins_a_cluster_that_is_being_stopped(town: Master, join: Message) -> None:
    town.hears(C, StopCluster())
    assert town.hears(b"new", join) == [Send(b"new", StopNode("the cluster is being stopped"))]


def test_wishes_are_not_granted_while_the_cluster_is_being_stopped(town: Master) -> None:
    town.hears(C, want(1, n_cpu=2), want(2), StopCluster())
    assert town.hears(C, want(3)) == []
    assert town.hears(W, ready("e.1"), ended("e.1"))[1:] != []
    assert town.state.jobs == {}


def test_a_master_that_is_interrupted_ends_alone(town: Master) -> None:
    assert town.does(Interrupted("received SIGTERM")) == [Finish(0, "received SIGTERM")]


# The status


def test_anybody_may_ask_for_the_status(town: Master) -> None:
    run_job(town, 1, "e.1")
    town.hears(C, want(2, n_cpu=2))
    town.now += 2.5
    found = status(town)
    assert {name: found[name] for name in ("cluster", "address", "version", "n_cpu", "free_cpu", "n_wishes")} == {
        "cluster": "town",
        "address": "here:8010",
        "version": "0.1.0",
        "n_cpu": 2,
        "free_cpu": 1,
        "n_wishes": 1,
    }
    assert found["wishes"][0]["waited"] == 2.5


# Whatever is said


def sayings(seed: int) -> dict[bytes, list[Message]]:
    """Return what each peer may say about few jobs and wishes, and now and then anything of the catalogue."""
    of_workers: list[Message] = [worker(), worker(gpus=("0",), jobs=[running("e.4", C2), running("x.2", spoke=False)])]
    of_clients: list[Message] = [client(), client(["e.1"], [1]), client(["e.2", "x.9"], [2]), LeaveClient()]
    for job in ("e.1", "e.2", "x.1"):
        of_workers += [ready(job), ended(job), JobWrote(job, "x"), worker(jobs=[running(job)])]
        of_clients += [ReleaseJob(job)]
    for wish in (1, 2, 3):
        of_clients += [*[want(wish)] * 3, want(wish, n_gpu=1), WantJob(wish, "Actor", Needs(0, 0, 1)), ForgetWish(wish)]
    anything: list[Message] = [message for message in random_messages(seed, 1) if not isinstance(message, StopCluster)]
    nonsense = random.Random(seed).sample(anything, 4)
    said = {W: of_workers, W2: of_workers, C: of_clients, C2: of_clients}
    return {peer: [*messages * 3, *nonsense] for peer, messages in said.items()}


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_messages_ends_the_master_or_upsets_its_books(seed: int) -> None:
    master, dice, said = Master(), random.Random(seed), sayings(seed)
    actions: list[Action] = []
    for _ in range(300):
        peer = dice.choice(list(said))
        actions += master.hears(peer, dice.choice(said[peer]))
        if master.state.jobs:
            job = dice.choice(list(master.state.jobs.values()))
            actions += master.hears(job.worker.peer, ready(job.job) if dice.random() < 0.5 else ended(job.job))
        if dice.random() < 0.1:
            actions += master.loses(peer) + master.waits(dice.choice([0.1, 1.0, GRACE, CLAIM]))
    assert not any(isinstance(action, Finish) for action in actions)
    assert any(isinstance(message, JobGranted) for message in letters(actions))

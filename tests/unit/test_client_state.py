"""The client's control side, one event at a time: its wishes and jobs survive everything but their own end."""

from __future__ import annotations

import pytest
from builders import VERSIONS, granted, letters, lost, place, start, want

from parl_lite.client_state import (
    Action,
    AskedStatus,
    ClientState,
    Denied,
    Event,
    GaveUp,
    Granted,
    Joined,
    Left,
    Lost,
    Print,
    Quit,
    Rejected,
    Released,
    Reported,
    Waits,
    Wished,
)
from parl_lite.machine import (
    MASTER,
    REFUSALS,
    Babbled,
    Connected,
    Disconnected,
    Finish,
    HandshakeFailed,
    Received,
    Say,
    Send,
    Woke,
)
from parl_lite.messages import (
    AskStatus,
    EndJob,
    ForgetWish,
    Goodbye,
    JobPrinted,
    JoinAgain,
    JoinClient,
    LeaveClient,
    Message,
    Refused,
    ReleaseJob,
    Status,
    StopNode,
    Welcome,
    WishRefused,
    WishWaits,
)

LOSS = lost("e.1", "was killed by SIGKILL")


class Client:
    """A client; whatever happens, its invariants are checked afterwards."""

    def __init__(self) -> None:
        self.state = ClientState(VERSIONS, place("c"), True)

    def does(self, *events: Event) -> list[Action]:
        actions = [action for event in events for action in self.state.handle(event, 100.0)]
        self.state.check()
        return actions

    def hears(self, *messages: Message) -> list[Action]:
        return self.does(*(Received(MASTER, message) for message in messages))


def joining(jobs: tuple[str, ...] = (), wishes: tuple[int, ...] = ()) -> JoinClient:
    return JoinClient(VERSIONS, place("c"), jobs, wishes, True)


@pytest.fixture
def client() -> Client:
    """A client that has joined."""
    client = Client()
    client.does(Connected())
    client.hears(Welcome("town"))
    return client


@pytest.fixture
def owner(client: Client) -> Client:
    """A client that holds the job e.1 and waits for wish 2."""
    client.does(Wished(want(1)), Wished(want(2)))
    client.hears(granted(1, "e.1"))
    return client


# Joining


def test_a_client_joins_when_its_connection_stands() -> None:
    client = Client()
    assert client.does(Connected()) == [Send(MASTER, joining())]
    assert not client.state.joined
    assert client.hears(Welcome("town")) == [Joined("town")]
    assert client.state.joined


def test_wishes_made_without_a_connection_are_part_of_the_join() -> None:
    client = Client()
    assert client.does(Wished(want(1)), Wished(want(2)), GaveUp(1), AskedStatus()) == []
    assert letters(client.does(Connected())) == [joining(wishes=(2,)), want(2), AskStatus()]


@pytest.mark.parametrize("again", [[Disconnected(), Connected()], [Received(MASTER, JoinAgain())]])
def test_every_join_names_the_jobs_held_and_repeats_the_wishes_that_wait(owner: Client, again: list[Event]) -> None:
    assert letters(owner.does(*again)) == [joining(("e.1",), (2,)), want(2)]


def test_what_ended_while_the_connection_was_broken_is_not_named(owner: Client) -> None:
    assert owner.does(Disconnected(), Released("e.1"), GaveUp(2)) == []
    assert letters(owner.does(Connected())) == [joining()]


def test_a_client_that_is_refused_tells_why(client: Client) -> None:
    assert client.hears(Refused("version", "numpy differs")) == [Rejected("version", "numpy differs")]


@pytest.mark.parametrize("failures", [[HandshakeFailed()] * REFUSALS, [HandshakeFailed(final=True)]])
def test_a_stranger_to_the_master_hears_that_handshakes_fail(failures: list[Event]) -> None:
    client = Client()
    assert client.does(*failures[:-1]) == []
    assert client.does(failures[-1]) == [Rejected("handshake", "the handshake failed")]


def test_a_client_that_was_welcome_once_is_not_rejected_by_failed_handshakes(client: Client) -> None:
    assert client.does(Disconnected(), *[HandshakeFailed(final=True)] * 100) == []


def test_a_connection_that_stands_forgives_failed_handshakes() -> None:
    client = Client()
    client.does(*[HandshakeFailed()] * (REFUSALS - 1), Connected())
    assert client.does(HandshakeFailed()) == []


# Wishes


def test_a_wish_comes_true_once(client: Client) -> None:
    assert client.does(Wished(want(1))) == [Send(MASTER, want(1))]
    assert client.hears(granted(1, "e.1"), granted(1, "e.1")) == [Granted(granted(1, "e.1"))]
    assert client.state.jobs == {"e.1"}


def test_a_wish_that_waits_tells_why(owner: Client) -> None:
    assert owner.hears(WishWaits(2, "no slot")) == [Waits(2, "no slot")]


def test_a_wish_that_never_can_come_true_is_denied_once(owner: Client) -> None:
    assert owner.hears(WishRefused(2, "no GPU"), WishRefused(2, "no GPU")) == [Denied(2, "no GPU")]


def test_a_wish_given_up_is_forgotten_by_the_master_too(owner: Client) -> None:
    assert owner.does(GaveUp(2), GaveUp(2)) == [Send(MASTER, ForgetWish(2))]


def test_giving_up_what_came_true_changes_nothing(owner: Client) -> None:
    assert owner.does(GaveUp(1)) == []
    assert owner.state.jobs == {"e.1"}


def test_a_grant_that_comes_after_the_wish_was_given_up_is_released(owner: Client) -> None:
    owner.does(GaveUp(2))
    assert owner.hears(granted(2, "e.2")) == [Send(MASTER, ReleaseJob("e.2"))]


def test_a_notice_of_a_wish_that_ended_here_makes_the_master_forget_it(owner: Client) -> None:
    assert owner.hears(WishWaits(9, "no slot")) == [Send(MASTER, ForgetWish(9))]


# Jobs


def test_a_job_is_released_once(owner: Client) -> None:
    assert owner.does(Released("e.1"), Released("e.1")) == [Send(MASTER, ReleaseJob("e.1"))]


def test_a_job_is_lost_once(owner: Client) -> None:
    assert owner.hears(LOSS, LOSS) == [Lost(LOSS)]
    assert owner.does(Released("e.1")) == []


def test_the_loss_of_a_job_that_was_released_is_no_news(owner: Client) -> None:
    owner.does(Released("e.1"))
    assert owner.hears(LOSS) == []


def test_what_jobs_print_and_the_status_are_passed_on(owner: Client) -> None:
    printed = JobPrinted("e.1", "Actor", place("w"), "hello\n")
    assert owner.hears(printed) == [Print(printed)]
    assert owner.does(AskedStatus()) == [Send(MASTER, AskStatus())]
    assert owner.hears(Status("{}")) == [Reported("{}")]


def test_a_status_that_was_not_answered_is_asked_for_again_at_the_join(client: Client) -> None:
    client.does(AskedStatus(), Disconnected())
    assert letters(client.does(Connected())) == [joining(), AskStatus()]
    client.hears(Status("{}"))
    assert letters(client.does(Connected())) == [joining()]


# Leaving


def test_a_client_that_leaves_waits_for_the_goodbye(owner: Client) -> None:
    assert owner.does(Left()) == [Send(MASTER, LeaveClient())]
    assert owner.hears(Goodbye()) == [Finish(0, "left")]


def test_a_client_that_leaves_wants_nothing(owner: Client) -> None:
    owner.does(Left())
    assert owner.does(Wished(want(3))) == [Denied(3, "this process is disconnecting")]
    assert owner.hears(granted(2, "e.2")) == [Send(MASTER, ReleaseJob("e.2"))]


def test_a_client_leaves_at_once_when_the_master_is_gone(owner: Client) -> None:
    owner.does(Disconnected())
    assert owner.does(Left()) == [Finish(0, "the master is gone")]


def test_a_client_whose_master_goes_while_it_leaves_waits_no_more(owner: Client) -> None:
    owner.does(Left())
    assert owner.does(Disconnected()) == [Finish(0, "the master is gone")]


def test_a_client_that_is_asked_to_join_again_while_it_leaves_leaves_again(client: Client) -> None:
    client.does(Left())
    assert letters(client.hears(JoinAgain())) == [joining(), LeaveClient()]


def test_a_client_that_nobody_waits_for_finishes(client: Client) -> None:
    assert client.does(Quit()) == [Finish(0, "left")]


# What is not for it


def test_what_is_not_for_a_client_is_noted_and_ignored(client: Client) -> None:
    assert client.does(Babbled(MASTER, "no message")) == [Say("the master sent nonsense: no message")]
    assert client.hears(StopNode("the cluster was stopped")) == [Say("the cluster was stopped")]
    assert client.hears(start("e.1"), EndJob("e.1")) == [
        Say("the master sent StartJob, which is not for a client"),
        Say("the master sent EndJob, which is not for a client"),
    ]


def test_a_client_is_bound_to_no_time_and_watches_nobody(owner: Client) -> None:
    assert owner.does(Woke()) == []
    assert owner.state.deadline() is None
    assert owner.state.peers() == ()

"""What a pool decides: who is made when, who gets which item, which broadcasts are missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from parl_lite.errors import ActorLostError, RemoteError, ResourceError
from parl_lite.machine import Say, Woke
from parl_lite.pool_state import (
    FIRST_DELAY,
    LAST_DELAY,
    Backlog,
    Begin,
    Born,
    Broadcasts,
    Dropped,
    Failed,
    Lost,
    NoRoom,
    Opened,
    Receipts,
    Roster,
    Tell,
)

LOSS = ActorLostError("Actor here 1 is lost.")
BUG = RemoteError("no such game")
FULL = ResourceError("no slot for Actor now.")


class InnerLoss(RemoteError, ActorLostError):
    """What arrives when the loss of another actor is raised in the constructor."""


class Pool:
    """A roster, with a clock that the test moves."""

    def __init__(self, n: int) -> None:
        self.now = 0.0
        self.roster = Roster("Actor", n, 5.0, self.now)

    def __call__(self, *events) -> list:
        """Return the actions of all events, without what is only said."""
        actions = [action for event in events for action in self.roster.handle(event, self.now)]
        self.roster.check()
        return [action for action in actions if not isinstance(action, Say)]

    def after(self, seconds: float) -> list:
        self.now += seconds
        return self(Woke())

    def open(self) -> Pool:
        self(Woke(), *(Born(seat) for seat in range(len(self.roster.seats))), Opened())
        return self


@pytest.fixture
def pair() -> Iterator[Pool]:
    """Two actors that are there."""
    yield Pool(2).open()


def test_all_actors_are_made_at_once_and_one_of_them_waits_for_a_slot():
    pool = Pool(3)
    assert pool(Woke()) == [Begin(0, True), Begin(1, False), Begin(2, False)]
    assert pool(Woke()) == []
    assert not pool.roster.is_settled()
    assert pool(Born(0), NoRoom(1, FULL)) == []
    assert not pool.roster.is_settled()
    pool(Born(2))
    assert pool.roster.is_settled()


def test_without_room_a_seat_stays_empty_and_is_tried_again(pair):
    pair(Lost(1, LOSS, proven=True))
    assert pair(NoRoom(1, FULL)) == []
    assert pair.roster.deadline() == pair.now + 5.0
    assert pair.after(4.9) == []
    assert pair.after(0.1) == [Begin(1, False)]


def test_no_room_for_anybody_is_told():
    pool = Pool(2)
    pool(Woke())
    assert pool(NoRoom(1, FULL)) == []
    assert pool(NoRoom(0, FULL)) == [Tell(FULL)]


def test_an_actor_that_worked_is_replaced_at_once(pair):
    assert pair(Lost(0, LOSS, proven=True)) == [Begin(0, False)]
    for _ in range(5):
        assert pair(Born(0), Lost(0, LOSS, proven=True)) == [Begin(0, False)]


def test_the_first_of_all_that_are_lost_waits_for_a_slot(pair):
    assert pair(Lost(0, LOSS, proven=True)) == [Begin(0, False)]
    assert pair(Lost(1, LOSS, proven=True)) == [Begin(1, True)]
    assert pair(NoRoom(0, FULL)) == []
    assert pair(NoRoom(1, FULL)) == [Tell(FULL)]


def test_a_constructor_that_raises_is_told_at_once_while_the_pool_is_opened():
    pool = Pool(2)
    pool(Woke(), Born(0))
    assert pool(Failed(1, BUG)) == [Tell(BUG)]


def test_another_actors_loss_that_the_constructor_raises_is_an_error_of_the_constructor():
    pool = Pool(1)
    pool(Woke())
    error = InnerLoss("another")
    assert pool(Failed(0, error)) == [Tell(error)]


@pytest.mark.parametrize("error", [BUG, LOSS])
def test_a_constructor_that_fails_later_is_tried_again_ever_later_and_told_after_the_third_time(pair, error):
    pair(Lost(0, LOSS, proven=True))
    assert pair(Failed(0, error)) == []
    assert pair.after(FIRST_DELAY * 0.9) == []
    assert pair.after(FIRST_DELAY * 0.1) == [Begin(0, False)]
    assert pair(Failed(0, error)) == []
    assert pair.after(FIRST_DELAY * 1.9) == []
    assert pair.after(FIRST_DELAY * 0.1) == [Begin(0, False)]
    assert pair(Failed(0, error)) == [Tell(error)]
    assert pair.after(LAST_DELAY * 0.9) == []
    assert pair.after(LAST_DELAY * 0.1) == [Begin(0, False)]


def test_processes_that_die_in_their_constructor_are_tried_again_while_the_pool_is_opened():
    pool = Pool(1)
    pool(Woke())
    assert pool(Failed(0, LOSS)) == []
    assert not pool.roster.is_settled()
    assert pool.after(FIRST_DELAY) == [Begin(0, True)]


def test_actors_lost_before_their_first_answer_count_as_failures_until_one_answers(pair):
    def die(proven: bool) -> list:
        actions = pair(Lost(0, LOSS, proven))
        pair.after(1.0)
        pair(Born(0))
        return [action for action in actions if isinstance(action, Tell)]

    assert [die(False), die(False), die(True), die(False), die(False)] == [[]] * 5
    assert die(False) == [Tell(LOSS)]


def test_a_machine_that_goes_with_many_new_actors_is_nobodys_fault():
    pool = Pool(8).open()
    assert not any(isinstance(action, Tell) for action in pool(*(Lost(seat, LOSS, proven=False) for seat in range(8))))


def test_what_was_interrupted_is_done_again_a_little_later(pair):
    pair(Lost(1, LOSS, proven=True))
    assert pair(Dropped(1)) == []
    assert pair.after(FIRST_DELAY) == [Begin(1, False)]


def test_a_lack_of_room_is_said_once(pair):
    def said(*events) -> int:
        return sum(isinstance(action, Say) for event in events for action in pair.roster.handle(event, pair.now))

    pair(Lost(1, LOSS, proven=True))
    assert said(NoRoom(1, FULL)) == 1
    pair.after(5.0)
    assert said(NoRoom(1, FULL)) == 0
    pair.after(5.0)
    assert said(Born(1), Lost(1, LOSS, proven=True), NoRoom(1, FULL)) == 2


def test_restarts_can_be_counted(pair):
    pair(Lost(1, LOSS, proven=True), Born(1))
    assert [seat.n_born for seat in pair.roster.seats] == [1, 2]


# --- the items of a map ------------------------------------------------------------------------------------


def test_items_are_dealt_one_each_and_then_one_behind_it_while_there_are_many():
    backlog = Backlog("abcdefgh")
    assert backlog.deal([0, 0, 0]) == [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4)]
    assert backlog.deal([1, 2, 1]) == []
    assert backlog.deal([0, 1, 1]) == [(0, 5)]
    assert backlog.deal([0, 0, 1]) == [(0, 6), (1, 7)]
    assert backlog.deal([0, 0, 0]) == []


def test_nobody_gets_nothing():
    assert Backlog("ab").deal([]) == []
    assert Backlog("").is_done()


def test_results_are_in_the_order_of_the_items():
    backlog = Backlog("abc")
    backlog.deal([0, 0, 0])
    for number in (2, 0, 1):
        assert not backlog.is_done()
        backlog.finish(number, number * 10)
    assert backlog.is_done()
    assert backlog.results() == [0, 10, 20]


def test_an_item_whose_actor_was_lost_is_the_next_to_be_dealt_three_times():
    backlog = Backlog("abcd")
    backlog.deal([0, 0])
    assert backlog.take_back(0, was_running=True)
    assert backlog.deal([0, 1]) == [(0, 0)]
    assert backlog.take_back(0, was_running=False)
    assert backlog.take_back(0, was_running=True)
    assert not backlog.take_back(0, was_running=True)


# --- broadcasts --------------------------------------------------------------------------------------------


def test_an_actor_misses_the_last_broadcast_of_each_method_in_their_order():
    broadcasts, receipts = Broadcasts(), Receipts()
    for method, value in (("set_weights", 1), ("set_level", 2), ("set_weights", 3)):
        broadcasts.record(method, value, None)
    missing = broadcasts.missing(receipts)
    assert [(each.method, each.arguments, each.version) for each in missing] == [("set_level", 2, 1), ("set_weights", 3, 2)]
    receipts.sent["set_weights"] = missing[1].number
    assert broadcasts.missing(receipts) == missing[:1]


def test_versions_must_grow_for_each_method():
    broadcasts = Broadcasts()
    broadcasts.record("set_weights", None, 10)
    broadcasts.record("set_level", None, 3)
    assert broadcasts.record("set_weights", None, None).version == 11
    with pytest.raises(ValueError, match="version is 11, it must be above the last, 11"):
        broadcasts.record("set_weights", None, 11)


def test_the_lag_is_that_of_the_method_which_is_furthest_behind():
    broadcasts, receipts = Broadcasts(), Receipts()
    assert broadcasts.lag(receipts) == 0
    broadcasts.record("set_weights", None, 1000)
    assert broadcasts.lag(receipts) == 1
    broadcasts.record("set_weights", None, 1004)
    broadcasts.record("set_level", None, None)
    receipts.acknowledged["set_weights"] = 1001
    assert broadcasts.lag(receipts) == 3
    receipts.acknowledged["set_weights"] = 1004
    assert broadcasts.lag(receipts) == 1

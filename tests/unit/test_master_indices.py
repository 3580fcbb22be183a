"""What lets a master look at no more than an event concerns: each index gives what a look at everything would give."""

from __future__ import annotations

import random

import pytest
from builders import VERSIONS, C, place

from parl_lite.cluster.free_slots import FreeSlots
from parl_lite.cluster.records import Wish, Worker
from parl_lite.cluster.timetable import Timetable
from parl_lite.cluster.wish_queue import WishQueue
from parl_lite.messages import Needs

ONE = Needs(1, 0, None)


def wish(number: int, client: bytes = C, needs: Needs = ONE, notice: float = 101.0) -> Wish:
    return Wish(client, number, "Actor", needs, 100.0, notice)


# Times


def test_what_is_due_comes_out_in_the_order_of_time_then_of_setting() -> None:
    table: Timetable[str] = Timetable()
    for key, when in (("late", 3.0), ("early", 1.0), ("second", 2.0), ("third", 2.0)):
        table.set(key, when)
    assert [table.pop(2.0) for _ in range(4)] == ["early", "second", "third", None]
    assert table.first() == 3.0


def test_a_key_has_one_time_the_last_that_was_set() -> None:
    table: Timetable[str] = Timetable()
    table.set("a", 1.0)
    table.set("a", 5.0)
    table.set("b", 2.0)
    table.set("b", None)
    assert (table.pop(4.0), table.first(), len(table)) == (None, 5.0, 1)


def test_times_that_no_longer_count_do_not_pile_up() -> None:
    table: Timetable[str] = Timetable()
    for when in range(100_000):
        table.set("a", 1.0 + when)
    assert len(table._heap) < 200


@pytest.mark.parametrize("seed", range(5))
def test_a_timetable_agrees_with_a_list(seed: int) -> None:
    dice, table, plain = random.Random(seed), Timetable[int](), dict[int, float]()
    for now in range(2000):
        key, when = dice.randrange(30), dice.choice([None, now + dice.random() * 50])
        table.set(key, when)
        plain.pop(key, None)
        plain |= {} if when is None else {key: when}
        assert table.first() == min(plain.values(), default=None)
        while (due := table.pop(now)) is not None:
            assert plain.pop(due) <= now
        assert all(when > now for when in plain.values())


# Free slots


def new_worker(number: int, n_cpu: int, n_gpu: int = 0) -> Worker:
    gpus = tuple(map(str, range(n_gpu)))
    return Worker(b"w%d" % number, VERSIONS, place(f"w{number}"), n_cpu, n_cpu, gpus, list(gpus), 1, number=number)


@pytest.mark.parametrize("seed", range(8))
def test_the_roomiest_worker_is_found_as_by_a_look_at_all(seed: int) -> None:
    dice, slots = random.Random(seed), FreeSlots()
    workers = [new_worker(number, dice.randrange(6), dice.choice([0, 0, 1, 3])) for number in range(12)]
    for worker in workers:
        slots.file(worker)
    for _ in range(500):
        worker = dice.choice(workers)
        worker.free_cpu = dice.randrange(worker.n_cpu + 1)
        worker.free_gpus = list(worker.gpus[: dice.randrange(len(worker.gpus) + 1)])
        worker.draining, worker.absent_until = dice.random() < 0.2, 5.0 if dice.random() < 0.2 else None
        slots.file(worker)
        needs = Needs(dice.randrange(5), dice.choice([0, 0, 1, 2]), None)
        roomy = [worker for worker in workers if worker.has_room_for(needs)]
        assert slots.roomiest(needs) is max(roomy, key=lambda worker: worker.free_cpu, default=None)


def test_a_worker_that_is_forgotten_is_never_found() -> None:
    slots, worker = FreeSlots(), new_worker(1, 4)
    slots.file(worker)
    slots.forget(worker)
    assert slots.roomiest(ONE) is None


def test_files_do_not_grow_with_what_happens() -> None:
    slots, worker = FreeSlots(), new_worker(1, 4)
    for turn in range(10_000):
        worker.free_cpu = turn % 5
        slots.file(worker)
        slots.roomiest(ONE)
    assert len(slots._files[0]) == len(slots._filed) <= 5


# The queue


def test_the_queue_keeps_the_order_and_lets_some_in_before_all() -> None:
    queue = WishQueue()
    for number in (1, 2, 3):
        queue.append(wish(number))
    queue.put_first(wish(9))
    assert [number for _, number in queue.wishes] == [9, 1, 2, 3]
    queue.check()


def test_wishes_of_a_client_and_of_a_size_are_found_in_their_order() -> None:
    queue = WishQueue()
    large = Needs(4, 0, None)
    for number, client, needs in ((1, b"a", ONE), (2, b"b", large), (3, b"a", large), (4, b"b", ONE)):
        queue.append(wish(number, client, needs))
    assert queue.of_client(b"a") == [1, 3]
    assert [one.wish for one in queue.of_size(large)] == [2, 3]
    queue.remove(b"b", 2)
    assert queue.remove(b"b", 2) is None
    assert [needs.n_cpu for needs in queue.sizes()] == [1, 4]
    queue.check()


def test_the_first_of_many_is_found_without_a_search() -> None:
    queue = WishQueue()
    for number in range(20_000):
        queue.append(wish(number))
    for number in range(20_000):
        first = queue.first()
        assert first is not None and first.wish == number
        queue.remove(C, number)
    assert queue.first() is None and queue.next_look() is None


def test_notices_say_how_many_are_before_and_come_again_after_the_interval() -> None:
    queue = WishQueue()
    for number in range(3):
        queue.append(wish(number, notice=101.0 + number))
    assert (queue.next_look(), queue.notices(100.9, 5.0)) == (101.0, [])
    assert [(n_before, one.wish) for n_before, one in queue.notices(102.0, 5.0)] == [(0, 0), (1, 1)]
    assert queue.next_look() == 103.0
    assert [(n_before, one.wish) for n_before, one in queue.notices(107.0, 5.0)] == [(0, 0), (1, 1), (2, 2)]


def test_many_notices_share_one_look() -> None:
    queue = WishQueue()
    for number in range(1000):
        queue.append(wish(number, notice=101.0 + number / 1000))
    looks, now = 0, 101.0
    while now < 102.5:
        looks, now = looks + (len(list(queue.notices(now, 50.0))) > 0), queue.next_look() or 0.0
    assert looks <= 6

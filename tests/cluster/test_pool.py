"""ActorPool over real actors: made together, kept alive, kept busy; what they raise and what they were told."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from conftest import alive, until
from daemons import StandingCluster

import parl_lite
from parl_lite import ActorLostError, NotConnectedError, ParlError, RemoteError, ResourceError, SerializationError
from parl_lite.creation import Creation, finish
from parl_lite.pool import RANK, ActorPool

PATIENCE = 30.0


@parl_lite.remote_class
class Player:
    """Counts what it is asked, waits for files, and dies when it is told to."""

    def __init__(self, scale=1, *, meet: str = "", n: int = 0, fail: str = "", die: str = "") -> None:
        self.scale = scale
        self.n = 0
        self.heard: list = []
        if meet:
            self._meet(Path(meet), n)
        if fail and Path(fail).exists():
            raise ValueError("no such game")
        if die:
            mark(Path(die))
            os._exit(3)

    def _meet(self, folder: Path, n: int) -> None:
        mark(folder)
        until(lambda: len(list(folder.iterdir())) >= n, PATIENCE, f"{n} constructors run")

    def sample(self) -> int:
        self.n += 1
        return self.n

    def times(self, number):
        return number * self.scale

    def hear(self, word) -> None:
        self.heard.append(word)

    def all_heard(self) -> list:
        return self.heard

    def refuse(self, word) -> None:
        raise ValueError(f"not {word}")

    def sample_until(self, limit: int) -> int:
        if self.n >= limit:
            raise ValueError(f"{self.n} is enough")
        return self.sample()

    def wait_for(self, path: str) -> int:
        until(Path(path).exists, PATIENCE, path)
        return self.sample()

    def take(self, token: str) -> int:
        """Wait for the file and remove it: each lets one call end."""
        until(Path(token).exists, PATIENCE, token)
        Path(token).unlink()
        return self.sample()

    def pid(self) -> int:
        return os.getpid()

    def pid_and(self, number: int) -> tuple[int, int]:
        return os.getpid(), number

    def array(self) -> np.ndarray:
        return np.zeros(3)

    def square_or_die(self, item: tuple[int, str]) -> int:
        """Die at the first try of an item that has the path of a file which is not there yet, always if it is 'poison'."""
        number, path = item
        if path == "poison":
            os._exit(7)
        if path and not Path(path).exists():
            Path(path).touch()
            os._exit(7)
        return number * number

    def die(self) -> None:
        os._exit(7)

    def raise_a_loss(self) -> None:
        raise ActorLostError("another actor is lost.")


def mark(folder: Path) -> None:
    (folder / str(os.getpid())).touch()


@pytest.fixture(autouse=True, scope="module")
def short_times(nothing_left: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARL_LITE_NOTICE_INTERVAL", "0.2")
        yield


@pytest.fixture
def slots(cluster) -> Iterator[None]:
    """A cluster with four slots, all of which must be free again after the test."""
    yield
    gc.collect()  # an error that was raised holds the test's frame, and with it the handles
    until(lambda: parl_lite.cluster_info()["free_cpu"] == 4, PATIENCE, "all slots are free")
    assert parl_lite.cluster_info()["n_wishes"] == 0


@pytest.fixture
def pool(slots) -> Iterator[ActorPool]:
    """Three actors."""
    with ActorPool(Player, 3) as pool:
        yield pool


@pytest.fixture
def other_cluster(nothing_left: Path) -> Iterator[None]:
    """A cluster of its own, for tests that leave it."""
    parl_lite.disconnect()
    parl_lite.connect(n_cpu=2, log_to_driver=False)
    yield
    parl_lite.disconnect()


def kill(actor) -> None:
    """Kill an actor, and wait until its process is gone."""
    pid = actor.pid()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), PATIENCE, f"process {pid} is gone")


def await_restart(pool: ActorPool, number: int) -> None:
    until(lambda: pool.figures()[number]["restarts"] and pool.figures()[number]["alive"], PATIENCE, "it is replaced")


# --- making and ending -------------------------------------------------------------------------------------


def test_constructors_run_at_the_same_time(slots, tmp_path):
    with ActorPool(Player, 3, meet=str(tmp_path), n=3) as pool:
        assert len(pool) == 3
        assert len({actor.pid() for actor in pool}) == 3
        assert pool.actors == list(pool)
    assert len(pool) == 0


def test_actors_of_a_plain_list_can_be_made_at_the_same_time(slots, tmp_path):
    creations = [Creation(Player, (), {"meet": str(tmp_path), "n": 3}) for _ in range(3)]
    made = finish(creations)
    assert len({link.address.job for link, _ in made}) == 3
    for creation in creations:
        creation.abandon()


def test_what_a_constructor_raises_is_raised_and_no_actor_is_left(slots, tmp_path):
    with pytest.raises(RemoteError, match="no such game") as info:
        ActorPool(Player, 3, fail=str(tmp_path))
    assert isinstance(info.value, ValueError)


def test_a_process_that_dies_in_its_constructor_is_tried_three_times(slots, tmp_path):
    with pytest.raises(ActorLostError, match="exit code 3"):
        ActorPool(Player, 1, die=str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_pool_without_a_slot_for_everybody_begins_with_fewer(slots):
    with ActorPool(Player, 6) as pool:
        assert len(pool) == 4
        assert pool.map("times", range(9)) == list(range(9))
        assert [figure["alive"] for figure in pool.figures()].count(True) == 4


def test_a_pool_that_waits_for_slots_is_in_nobodys_way(slots):
    with ActorPool(Player.options(n_cpu=3), 2) as pool:
        stream = pool.stream("sample")
        for _ in range(3):
            next(stream)
            assert Player().sample() == 1  # takes the slot that is too few for the pool
        assert len(pool) == 1


def test_without_any_slot_it_says_so(slots):
    with ActorPool(Player.options(n_cpu=4), 1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(parl_lite.client.current(), "timeout", 0.5)
        with pytest.raises(ResourceError, match=r"no slot for it within 0.5 s"):
            ActorPool(Player, 2)
    with pytest.raises(ResourceError, match="no worker can ever run it"):
        ActorPool(Player.options(n_cpu=5), 2)


def test_a_pool_that_is_forgotten_gives_its_slots_back(slots):
    pool = ActorPool(Player, 3)
    assert next(pool.stream("sample")).result == 1
    del pool


def test_each_actor_has_a_rank_that_no_other_ever_has(slots):
    with ActorPool(Player, 2, scale=RANK) as pool:
        assert [actor.times(1) for actor in pool] == [0, 1]
        kill(pool.actors[1])
        await_restart(pool, 1)
        assert [actor.times(1) for actor in pool] == [0, 3]


def test_arguments_are_those_of_the_beginning(slots):
    scale = np.ones(2)
    with ActorPool(Player, 1, scale) as pool:
        scale[:] = 5
        kill(pool.actors[0])
        assert [list(result) for result in pool.map("times", [1, 2])] == [[1, 1], [2, 2]]


# --- streams -----------------------------------------------------------------------------------------------


def test_a_stream_has_results_of_all_actors_as_they_come(pool):
    results: dict[int, list] = {0: [], 1: [], 2: []}
    for actor, result in pool.stream("sample"):
        results[actor].append(result)
        if all(len(of_one) >= 5 for of_one in results.values()):
            break
    assert all(of_one == list(range(1, len(of_one) + 1)) for of_one in results.values())


def test_a_result_that_was_taken_is_held_by_nobody_else(slots):
    with ActorPool(Player, 1) as pool:
        stream = pool.stream("array", in_flight=3)
        next(stream)
        until(lambda: pool.figures()[0]["results_waiting"] == 3, PATIENCE, "three results wait, that are looked for together")
        taken = weakref.ref(next(stream).result)
        next(stream)
        assert taken() is None


def test_actors_do_not_run_ahead_of_the_consumer(slots):
    with ActorPool(Player, 1) as pool:
        stream = pool.stream("sample", in_flight=3)
        taken = len(list(islice(stream, 5)))
        assert pool.actors[0].n == taken + 3
        assert pool.figures()[0]["results_waiting"] == 3
        assert next(stream) == (0, 6)


def test_a_closed_stream_takes_back_what_has_not_begun(slots, tmp_path):
    token = tmp_path / "token"
    with ActorPool(Player, 1) as pool:
        stream = pool.stream("take", str(token), in_flight=20)
        token.touch()
        assert next(stream) == (0, 1)
        stream.close()
        last = pool.actors[0].futures.sample()
        until(lambda: token.touch() or last.done(), PATIENCE, "the call behind the stream's")
        # One had begun; few others may, before the job hears that they are taken back: each waits for a token of its own.
        assert 3 <= last.result() < 12
        assert pool.figures()[0]["in_flight"] == 0


def test_what_a_method_raises_ends_the_stream_and_not_the_pool(pool):
    with pytest.raises(RemoteError, match="4 is enough"):
        for _ in pool.stream("sample_until", 4):
            pass
    assert pool.map("times", range(4)) == [0, 1, 2, 3]
    assert [figure["restarts"] for figure in pool.figures()] == [0, 0, 0]


def test_a_loss_that_a_method_raises_is_not_the_actors_own(pool):
    with pytest.raises(RemoteError, match="another actor is lost"):
        next(pool.stream("raise_a_loss"))
    assert [(figure["restarts"], figure["dropped"]) for figure in pool.figures()] == [(0, 0)] * 3


def test_a_lost_actor_is_replaced_and_its_calls_are_counted(pool):
    stream = pool.stream("sample")
    for _ in range(6):
        next(stream)
    kill(pool.actors[1])
    after = [item for item in islice(stream, 2000) if item.actor == 1]
    until(lambda: next(stream).actor == 1, PATIENCE, "the new actor answers")
    figures = pool.figures()
    assert [figure["restarts"] for figure in figures] == [0, 1, 0]
    assert figures[1]["dropped"] <= 2
    assert all(figure["alive"] for figure in figures)
    assert len(after) < 2000


def test_actors_that_a_method_kills_again_and_again_are_an_error(slots):
    with ActorPool(Player, 1) as pool:
        with pytest.raises(ActorLostError, match="exit code 7"):
            next(pool.stream("die"))
        figures = pool.figures()
        assert (figures[0]["dropped"], figures[0]["restarts"]) == (6, 2)


def test_a_constructor_that_fails_later_is_told_and_the_others_go_on(slots, tmp_path):
    bad = tmp_path / "bad"
    with ActorPool(Player, 2, fail=str(bad)) as pool:
        bad.touch()
        kill(pool.actors[0])
        with pytest.raises(RemoteError, match="no such game"):
            for _ in pool.stream("sample"):
                pass
        assert pool.map("times", [1, 2]) == [1, 2]
        assert len(pool) == 1


def test_ctrl_c_ends_the_wait_and_not_the_pool(slots, tmp_path):
    with ActorPool(Player, 2) as pool:
        gate = tmp_path / "gate"
        timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(pool.stream("wait_for", str(gate)))
        timer.join()
        gate.touch()
        assert pool.map("times", range(5)) == [0, 1, 2, 3, 4]


def test_ctrl_c_while_actors_are_made_leaves_none(slots, tmp_path):
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        ActorPool(Player, 2, meet=str(tmp_path), n=99)
    timer.join()


def test_a_map_can_be_made_within_a_stream(pool):
    for _, result in islice(pool.stream("sample"), 10):
        assert pool.map("times", range(result)) == list(range(result))


# --- map ---------------------------------------------------------------------------------------------------


def test_a_map_gives_every_item_once_and_in_order_to_all_actors(pool):
    results = pool.map("pid_and", iter(range(300)))
    assert [number for _, number in results] == list(range(300))
    assert len({pid for pid, _ in results}) == 3
    assert pool.map("times", []) == []
    assert sum(figure["calls"] for figure in pool.figures()) == 300


def test_an_item_whose_actor_was_lost_goes_to_another(pool, tmp_path):
    items = [(number, str(tmp_path / str(number)) if number in (3, 4, 11) else "") for number in range(20)]
    assert pool.map("square_or_die", items) == [number * number for number in range(20)]
    assert sum(figure["dropped"] for figure in pool.figures()) >= 3


def test_an_item_that_kills_three_actors_is_an_error(pool):
    assert pool.map("times", range(9)) == list(range(9))
    items = [(number, "poison" if number == 5 else "") for number in range(9)]
    with pytest.raises(ActorLostError, match=r"3 actors were lost with item 5.*exit code 7"):
        pool.map("square_or_die", items)
    assert pool.map("times", range(4)) == [0, 1, 2, 3]


def test_a_map_raises_what_the_method_raises(pool):
    with pytest.raises(RemoteError, match="not b"):
        pool.map("refuse", "b")
    assert pool.map("times", [1]) == [1]


def test_a_map_ends_when_its_time_is_over(pool, tmp_path):
    gate = tmp_path / "gate"
    with pytest.raises(TimeoutError, match=r"4 of 4 items have no result within 0.2 s"):
        pool.map("wait_for", [str(gate)] * 4, timeout=0.2)
    gate.touch()
    assert pool.map("times", [1], timeout=PATIENCE) == [1]


# --- broadcasts --------------------------------------------------------------------------------------------


def test_a_broadcast_reaches_all_actors_in_order(pool):
    futures = [future for word in "abc" for future in pool.broadcast("hear", word)]
    assert parl_lite.get(futures) == [None] * 9
    assert [actor.all_heard() for actor in pool] == [["a", "b", "c"]] * 3


def test_a_new_actor_gets_the_last_broadcast_of_each_method_first(pool):
    for word in "ab":
        pool.broadcast("hear", word)
    value = np.zeros(3)
    pool.broadcast("sample_until", 9)
    pool.broadcast("hear", value)
    value[:] = 1  # too late: it was fixed
    kill(pool.actors[1])
    await_restart(pool, 1)
    [heard] = pool.actors[1].all_heard()
    assert list(heard) == [0, 0, 0]
    assert pool.actors[1].n == 1


def test_what_a_broadcast_raises_is_raised_at_the_next_use(pool):
    futures = pool.broadcast("refuse", "x")
    parl_lite.wait(futures)
    with pytest.raises(RemoteError, match="not x"):
        pool.map("times", [1])


def test_what_a_broadcast_raises_is_raised_in_the_place_of_later_results(slots):
    with ActorPool(Player, 1) as pool:
        stream = pool.stream("sample")
        next(stream)
        pool.broadcast("refuse", "y")
        with pytest.raises(RemoteError, match="not y"):
            for _ in range(4):  # the two under way, and the one made when the first was handed out
                next(stream)


def test_the_lag_is_the_versions_that_an_actor_has_not_run(slots, tmp_path):
    with ActorPool(Player, 1) as pool:
        gate = tmp_path / "gate"
        pool.broadcast("hear", 1, version=10)[0].result()
        assert pool.figures()[0]["lag"] == 0
        [future] = pool.broadcast("wait_for", str(gate))
        pool.broadcast("hear", 2, version=17)
        assert pool.figures()[0]["lag"] == 7
        gate.touch()
        future.result()
        assert pool.actors[0].all_heard() == [1, 2]
        assert pool.figures()[0]["lag"] == 0
        with pytest.raises(ValueError, match="version is 17, it must be above the last, 17"):
            pool.broadcast("hear", 3, version=17)


# --- use and misuse ----------------------------------------------------------------------------------------


WRONG = [
    (lambda pool: ActorPool(Player._original, 2), TypeError, "for classes decorated with @parl_lite.remote_class"),
    (lambda pool: ActorPool(Player, 0), ValueError, "n is 0: it must be at least 1"),
    (lambda pool: ActorPool(Player, 2.0), TypeError, "n is 2.0: it must be a whole number"),
    (lambda pool: ActorPool(Player, 1, threading.Lock()), SerializationError, r"argument of Player\(\)"),
    (lambda pool: pool.stream("sample", in_flight=0), ValueError, "in_flight is 0"),
    (lambda pool: pool.stream(Player.sample), TypeError, "must be the name of a method"),
    (lambda pool: pool.stream("__len__"), TypeError, "must be the name of a method"),
    (lambda pool: pool.map("times", [1], timeout=-1), ValueError, "timeout is -1"),
    (lambda pool: pool.broadcast("hear", 1, version="2"), TypeError, "version is '2'"),
    (lambda pool: pool.broadcast("hear", threading.Lock()), SerializationError, "argument of hear"),
    (lambda pool: pool.map("nope", [1]), RemoteError, "nope"),
]


def test_wrong_arguments_are_named(pool):
    for use, error, said in WRONG:
        with pytest.raises(error, match=said):
            use(pool)
    assert pool.map("times", [1]) == [1]
    assert [figure["calls"] + figure["dropped"] for figure in pool.figures()] == [2, 0, 0]


# --- connections and machines ------------------------------------------------------------------------------


def test_figures_count_calls(other_cluster):
    with ActorPool(Player, 2) as pool:
        pool.map("times", range(10))
        first, second = pool.figures()
    assert (first["actor"], second["actor"]) == (0, 1)
    assert first["calls"] + second["calls"] == 10
    assert first["calls_per_second"] > 0 and first["waiting_seconds"] > 0
    assert {name: first[name] for name in ("alive", "in_flight", "results_waiting", "restarts", "dropped", "lag")} == {
        "alive": True,
        "in_flight": 0,
        "results_waiting": 0,
        "restarts": 0,
        "dropped": 0,
        "lag": 0,
    }


def test_a_pool_of_another_connection_or_thread_or_a_closed_one_says_so(other_cluster):
    pool = ActorPool(Player, 1)
    said: list[str] = []

    def use() -> None:
        try:
            pool.map("times", [1])
        except ParlError as error:
            said.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "for the thread that made it" in said[0]
    parl_lite.disconnect()
    with pytest.raises(NotConnectedError, match="connection that this pool was made with has ended"):
        pool.stream("sample")
    pool.close()
    pool.close()
    with pytest.raises(ParlError, match="pool of Player is closed"):
        pool.map("times", [1])
    assert (len(pool), list(pool), bool(pool)) == (0, [], True)
    assert repr(pool) == "<ActorPool of Player, closed>"
    with pytest.raises(NotConnectedError):
        ActorPool(Player, 1)


def test_a_pool_grows_when_a_machine_joins_and_goes_on_when_one_leaves(nothing_left):
    parl_lite.disconnect()
    town = StandingCluster()
    try:
        town.start_master()
        first = town.start_worker(1)
        parl_lite.connect(town.address, log_to_driver=False)
        with ActorPool(Player, 2) as pool:
            assert len(pool) == 1
            pool.broadcast("hear", "word")
            stream = pool.stream("sample")
            town.start_worker(1)
            until(lambda: next(stream).actor == 1, PATIENCE, "the actor on the new machine answers")
            assert pool.actors[1].all_heard() == ["word"]
            town.end_worker(first)
            assert all(item.actor == 1 for item in islice(stream, 200, 220))
            assert len(pool) == 1
            town.start_worker(1)
            until(lambda: next(stream).actor == 0, PATIENCE, "the lost actor is replaced")
    finally:
        parl_lite.disconnect()
        town.end()

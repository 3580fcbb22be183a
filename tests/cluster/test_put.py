"""put and Ref on one machine: stored once, mapped by all who are given the Ref, gone with the last of them."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal

import numpy as np
import pytest
from patients import Patient

import parl_lite
from parl_lite import lending, shm

pytestmark = pytest.mark.skipif(not shm.AVAILABLE, reason="this system has no anonymous files")

SIZE = 500_000


@parl_lite.remote_class
class Holder:
    """Is given Refs."""

    def __init__(self, ref=None) -> None:
        self.ref = ref
        self.value = None

    def hold(self, ref) -> None:
        self.ref = ref

    def look(self, nested) -> list:
        """Return what an array in a nested Ref is like: sum, whether it can be written to, whether it is memory of its own."""
        array = parl_lite.get(nested["refs"][0])["w"]
        return [float(array.sum()), array.flags.writeable, array.flags.owndata]

    def keep_array(self, ref) -> None:
        self.value = parl_lite.get(ref)["w"]

    def sum(self) -> float:
        return float((self.value if self.ref is None else parl_lite.get(self.ref)["w"]).sum())

    def let_go(self) -> None:
        self.ref = self.value = None

    def give(self) -> object:
        return self.ref

    def give_to(self, other) -> float:
        other.hold(self.ref)
        return other.sum()

    def make(self, number: float) -> object:
        return parl_lite.put(weights(number))

    def failing_get(self) -> str:
        try:
            parl_lite.get(self.ref)
        except parl_lite.ParlError as error:
            return type(error).__name__
        return "no error"

    def pid(self) -> int:
        return os.getpid()


def weights(number: float = 1.0) -> dict:
    return {"w": np.full(SIZE, number), "name": "weights"}


def n_stored() -> int:
    """Return how many objects somebody may still read."""
    gc.collect()
    return sum(segment.pinned or not (segment.escaped or segment.is_idle()) for segment in lending.objects()._segments)


@pytest.fixture
def holders(cluster):
    gc.collect()
    holders = [Holder() for _ in range(2)]
    yield holders
    for holder in holders:
        holder.destroy()


def test_the_value_is_read_everywhere_without_a_copy_and_cannot_be_written(holders) -> None:
    ref = parl_lite.put(weights())
    assert [holder.look({"refs": [ref, 1]}) for holder in holders] == [[SIZE, False, False]] * 2
    here = parl_lite.get(ref)
    assert here["name"] == "weights" and not here["w"].flags.writeable and here["w"].sum() == SIZE
    with pytest.raises(ValueError, match="read-only"):
        here["w"][0] = 2
    with pytest.raises(ValueError, match="WRITEABLE"):
        here["w"].flags.writeable = True


def test_the_value_is_fixed_when_it_is_put(holders) -> None:
    value = weights(1)
    ref = parl_lite.put(value)
    value["w"][:] = 5
    assert holders[0].look({"refs": [ref]})[0] == SIZE
    assert parl_lite.get([ref, ref])[1]["w"][0] == 1


@pytest.mark.parametrize("value", [None, 1, "text", [1, {"a": (2.5, "x")}], np.arange(3), {"a": np.zeros(0)}, b"x" * 300000])
def test_any_value_can_be_put(value, holders) -> None:
    ref = parl_lite.put(value)
    holders[0].hold(ref)
    for got in (parl_lite.get(ref), parl_lite.get(holders[0].give())):
        assert pickle.dumps(got) == pickle.dumps(value) or np.array_equal(got, value)


def test_tensors_are_the_readers_own(cluster) -> None:
    torch = pytest.importorskip("torch")
    for value in (torch.ones(SIZE), {"t": torch.ones(SIZE), "name": "x"}):
        ref = parl_lite.put(value)
        first, second = ((got["t"] if isinstance(value, dict) else got) for got in parl_lite.get([ref, ref]))
        first.zero_()
        assert second.sum() == SIZE


def test_it_goes_when_the_last_holder_lets_go(holders) -> None:
    before = n_stored()
    ref = parl_lite.put(weights())
    holders[0].hold(ref)
    holders[1].keep_array(ref)
    del ref
    assert n_stored() == before + 1
    assert [holder.sum() for holder in holders] == [SIZE, SIZE]
    holders[0].let_go()
    assert n_stored() == before + 1
    assert holders[1].sum() == SIZE
    holders[1].let_go()
    assert n_stored() == before


def test_an_array_here_keeps_it(cluster) -> None:
    before = n_stored()
    array = parl_lite.get(parl_lite.put(weights(3)))["w"]
    others = [parl_lite.put(weights(4)) for _ in range(3)]
    assert n_stored() == before + 4 and array.sum() == 3 * SIZE
    del array, others
    assert n_stored() == before


def test_memory_is_used_again(cluster) -> None:
    for number in range(30):
        assert parl_lite.get(parl_lite.put(weights(number)))["w"][0] == number
    assert len(lending.objects()._segments) < 10


def test_calls_under_way_keep_what_they_carry(holders) -> None:
    futures = [holders[0].futures.look({"refs": [parl_lite.put(weights(number))]}) for number in range(10)]
    gc.collect()
    assert [future.result()[0] for future in futures] == [number * SIZE for number in range(10)]


def test_the_death_of_a_holder_hurts_nobody(holders) -> None:
    ref = parl_lite.put(weights())
    for holder in holders:
        holder.hold(ref)
    os.kill(holders[0].pid(), signal.SIGKILL)
    with pytest.raises(parl_lite.ActorLostError):
        holders[0].pid()
    assert holders[1].sum() == SIZE and parl_lite.get(ref)["w"].sum() == SIZE
    before = n_stored()
    del ref
    holders[1].let_go()
    assert n_stored() < before


def test_an_actor_passes_on_what_it_was_given(holders) -> None:
    first, second = holders
    first.hold(parl_lite.put(weights(2)))
    assert first.give_to(second) == 2 * SIZE
    first.let_go()
    others = [parl_lite.put(weights(9)) for _ in range(4)]
    assert second.sum() == 2 * SIZE, "nothing else was written there meanwhile"
    assert len(others) == 4
    back = second.give()
    second.let_go()
    assert parl_lite.get(back)["w"].sum() == 2 * SIZE


def test_a_ref_comes_back_as_itself(holders) -> None:
    ref = parl_lite.put(weights())
    holders[0].hold(ref)
    back = holders[0].give()
    assert back is ref and back == ref and hash(back) == hash(ref) and {back} == {ref}
    assert parl_lite.put(1) != parl_lite.put(1)
    assert copy.deepcopy([ref])[0] is ref and copy.copy(ref) is ref
    assert repr(ref) == f"<Ref to {ref.nbytes} bytes>" and ref.nbytes > 8 * SIZE


def test_an_actor_puts(holders) -> None:
    first, second = holders
    ref = first.make(6)
    assert second.look({"refs": [ref]})[0] == 6 * SIZE
    os.kill(first.pid(), signal.SIGKILL)
    with pytest.raises(parl_lite.ActorLostError):
        first.pid()
    assert parl_lite.get(ref)["w"].sum() == 6 * SIZE, "who had it before still has it"
    second.hold(ref)
    del ref
    gc.collect()
    assert second.sum() == 6 * SIZE, "who has it hands it on"


def test_a_ref_that_is_lost_on_its_way_is_a_typed_error(holders, monkeypatch) -> None:
    ref = parl_lite.put(weights())
    monkeypatch.setattr(shm.Segment, "place", lambda self, size, slot=0: shm.Place(self.token, os.getpid(), 10**6, slot, size))
    with pytest.raises(parl_lite.SerializationError, match="is gone"):
        holders[0].hold(ref)
    assert holders[0].give() is None


def test_a_constructor_is_given_a_ref_and_a_restarted_actor_again(cluster) -> None:
    actor = Holder.options(max_restarts=1)(parl_lite.put(weights(2)))
    gc.collect()
    assert actor.sum() == 2 * SIZE
    os.kill(actor.pid(), signal.SIGKILL)
    with pytest.raises(parl_lite.ActorLostError):
        actor.pid()
    assert actor.sum() == 2 * SIZE
    actor.destroy()


def test_where_a_ref_cannot_go_a_sentence_says_so(holders) -> None:
    ref = parl_lite.put(weights())
    with pytest.raises(parl_lite.SerializationError, match="a Ref cannot be put"):
        parl_lite.put([ref])
    with pytest.raises(parl_lite.SerializationError, match="put"):
        parl_lite.put(number for number in range(3))
    packed = pickle.dumps(ref)
    assert pickle.loads(packed) is ref
    del ref
    gc.collect()
    with pytest.raises(parl_lite.SerializationError, match="arguments and results of calls"):
        pickle.loads(packed)
    patient = Patient()
    with pytest.raises(parl_lite.SerializationError, match="cannot be sent"):
        patient.echo([parl_lite.put(1), (number for number in range(3))])
    assert patient.echo(1) == 1
    patient.destroy()


def test_no_memory_is_a_typed_error(cluster, monkeypatch) -> None:
    monkeypatch.setattr("parl_lite.hostos.available_memory", lambda: 1000)
    with pytest.raises(parl_lite.ResourceError, match="there is no memory"):
        parl_lite.put(np.zeros(40_000_000))


def test_descriptors_come_back(cluster) -> None:
    def n_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    few = n_files()
    refs = [parl_lite.put(number) for number in range(200)]
    assert n_files() > few + 100
    del refs
    for size in range(1, 600, 10):
        parl_lite.put(np.zeros(size * 10000))
    assert n_files() < few + 50


def test_a_pool_sends_large_broadcasts_once(cluster) -> None:
    with parl_lite.ActorPool(Learner, 2) as pool:
        n_before = len(lending.objects()._segments)
        for version in range(1, 6):
            array = np.full(SIZE, version, np.float32)
            futures = pool.broadcast("set_weights", array, version=version)
            array[:] = -1
        assert [future.result() for future in futures] == [(5.0, True, version) for _ in range(2)]
        assert len(lending.objects()._segments) >= n_before
        with parl_lite.ActorPool(Learner, 1) as single:
            assert single.broadcast("set_weights", np.zeros(SIZE))[0].result()[0] == 0.0
        ref = parl_lite.put(np.full(SIZE, 8.0))
        assert {future.result()[0] for future in pool.broadcast("set_weights", ref, np.zeros(SIZE))} == {8.0}
    gc.collect()
    assert n_stored() <= 1


@parl_lite.remote_class
class Learner:
    """Has weights."""

    def __init__(self) -> None:
        self.n = 0

    def set_weights(self, array, *_: object) -> tuple:
        """Return the first number as it came, whether the array is writable and private, and how many there were."""
        self.n += 1
        if isinstance(array, parl_lite.Ref):
            array = parl_lite.get(array).copy()
        first = float(array[0])
        array[:] = 77
        return first, array.flags.writeable, self.n

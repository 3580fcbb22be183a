"""The rate limiter, a shard, and several as one for a learner, with handles that run calls at once and can be lost."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from test_replay_saving import assert_same
from test_replay_sequences import with_state
from test_replay_transitions import counting

from parl_lite.agents.replay import (
    PrioritizedSampler,
    RateLimiter,
    Receipt,
    ReplayClient,
    ReplayShard,
    ReplayWriter,
    Sample,
    SequenceReplay,
    TransitionReplay,
    Wait,
)
from parl_lite.agents.replay.requests import allot
from parl_lite.errors import ActorLostError, ParlError

# The limiter


def test_the_band_of_reverb_by_hand():
    limiter = partial(RateLimiter, samples_per_insert=2.0, min_size=10, error_buffer=6.0)
    assert limiter().band == (14.0, 26.0)
    assert not limiter(inserted=9).may_sample(1, 9) and limiter(inserted=9).may_insert(100, 9)
    surplus_20 = partial(limiter, inserted=10)
    assert surplus_20().may_sample(6, 10) and not surplus_20().may_sample(7, 10)
    assert surplus_20().may_insert(3, 10) and not surplus_20().may_insert(4, 10)
    assert not limiter(inserted=10, sampled=6).may_sample(1, 10) and limiter(inserted=10, sampled=6).may_insert(6, 10)


def test_without_a_ratio_only_the_size_counts():
    limiter = RateLimiter(min_size=3)
    limiter.inserted = 1000
    assert limiter.may_insert(10**6, 3) and limiter.may_sample(10**6, 3) and not limiter.may_sample(1, 2)


@pytest.mark.parametrize("wrong", [{"samples_per_insert": 0.0}, {"min_size": 0}, {"error_buffer": -1.0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ParlError):
        RateLimiter(**wrong)


@seed(5)
@settings(max_examples=150, deadline=None, database=None)
@given(data=st.data())
def test_one_side_can_always_go_on_and_the_ratio_is_kept(data):
    ratio, min_size = data.draw(st.sampled_from([0.25, 1.0, 4.0])), data.draw(st.integers(1, 50))
    limiter = RateLimiter(ratio, min_size, data.draw(st.sampled_from([0.0, 1.0, 30.0])))
    eager = data.draw(st.sampled_from(["insert", "sample", "both"]))
    n_insert, n_sample = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    for _ in range(200):
        may_insert, may_sample = limiter.may_insert(n_insert, limiter.inserted), limiter.may_sample(n_sample, limiter.inserted)
        assert may_insert or may_sample
        if may_insert and (eager != "sample" or not may_sample):
            limiter.inserted += n_insert
        elif may_sample:
            limiter.sampled += n_sample
        low, high = limiter.band
        if limiter.inserted >= min_size:
            assert limiter.surplus <= high + ratio * n_insert
            assert limiter.surplus >= low or not limiter.sampled


# One shard


def test_calls_that_may_not_go_on_are_answered_at_once_and_nothing_has_happened():
    shard = ReplayShard(partial(TransitionReplay, 100), RateLimiter(1.0, min_size=4, error_buffer=6.0))
    assert shard.sample(1) == Wait("too few items")
    assert shard.insert(counting(0, 4)) == Receipt(4, go_on=True)
    assert shard.insert(counting(4, 4)) == Receipt(4, go_on=False)
    assert shard.insert(counting(8, 4)) == Wait("inserts are ahead")
    assert len(shard.sample(4).batch["reward"]) == 4
    assert shard.insert(counting(8, 4)) == Receipt(4, go_on=False)
    assert isinstance(shard.sample(7), Sample)
    assert shard.sample(7) == Wait("samples are ahead")
    figures = shard.figures()
    assert {name: figures[name] for name in ("size", "inserted", "consumed", "insert_waits", "sample_waits")} == {
        "size": 12,
        "inserted": 12,
        "consumed": 11,
        "insert_waits": 1,
        "sample_waits": 2,
    }


def test_a_rollout_that_comes_twice_counts_once():
    shard = ReplayShard(partial(TransitionReplay, 100))
    assert shard.insert(counting(0, 4), 3, 0).n_items == 4
    assert shard.insert(counting(0, 4), 3, 0).n_items == 0
    assert (shard.figures()["inserted"], shard.limiter.inserted, shard.figures()["next_source"]) == (4, 4, 4)


def test_a_saved_shard_goes_on_with_its_counts_and_refuses_what_it_has(tmp_path):
    make = partial(TransitionReplay, 100, sampler=None)
    shard = ReplayShard(make, RateLimiter(1.0, 4, 8.0), tmp_path)
    shard.insert(counting(0, 4), 0, 0)
    shard.insert(counting(4, 4), 0, 1)
    shard.sample(3)
    shard.save(tmp_path)
    again = ReplayShard(make, RateLimiter(1.0, 4, 8.0), tmp_path)
    assert again.figures() == shard.figures()
    assert again.limiter == shard.limiter
    assert again.insert(counting(4, 4), 0, 1).n_items == 0
    assert_same(again.sample(2).batch, shard.sample(2).batch)


def test_a_limiter_that_would_never_let_go_on_is_refused():
    with pytest.raises(ParlError, match="the limiter's min_size is 500: it must lie between"):
        ReplayShard(partial(TransitionReplay, 100), RateLimiter(min_size=500))
    with pytest.raises(ParlError, match="the limiter's min_size is 1: it must lie between the buffer's min_size 5"):
        ReplayShard(partial(TransitionReplay, 100, min_size=5), RateLimiter(1.0))


# Several shards


class Done:
    """A future whose call has run."""

    def __init__(self, call, arguments):
        try:
            self.value, self.error = call(*arguments), None
        except ActorLostError as error:
            self.error = error

    def done(self):
        return True

    def result(self):
        if self.error:
            raise self.error
        return self.value


class Handle:
    """Stands for a remote shard; `lost` makes all calls fail."""

    def __init__(self, shard):
        self.shard, self.lost, self.futures = shard, False, HandleFutures(self)

    def call(self, name, arguments):
        if self.lost:
            raise ActorLostError("gone")
        return getattr(self.shard, name)(*arguments)

    def __getattr__(self, name):
        return lambda *arguments: self.call(name, arguments)

    def destroy(self):
        self.lost = True


class HandleFutures:
    def __init__(self, handle):
        self.handle = handle

    def __getattr__(self, name):
        return lambda *arguments: Done(lambda *a: self.handle.call(name, a), arguments)


def make_handle(number: int, **settings) -> Handle:
    sampler = PrioritizedSampler(alpha=1.0, beta=0.0, epsilon=0.0)
    return Handle(ReplayShard(partial(TransitionReplay, 1000, sampler=sampler, seed=number, **settings)))


def fill(client: ReplayClient, priorities: list[list[float]]) -> None:
    """Give each shard rows whose reward is their priority."""
    for source, values in enumerate(priorities):
        rollout = counting(100 * source, len(values))
        rollout["reward"] = np.array(values, np.float32)[:, None]
        client.insert({**rollout, "priority": rollout["reward"]}, source)


def test_shares_become_whole_numbers_that_are_right_on_average():
    shares = np.array([0.1, 0.0, 0.55, 0.35])
    offsets = (np.arange(1000) + 0.5) / 1000
    counts = np.array([allot(7, shares, offset) for offset in offsets])
    assert (counts.sum(axis=1) == 7).all()
    assert (counts[:, 1] == 0).all()
    np.testing.assert_allclose(counts.mean(axis=0), 7 * shares, atol=2e-3)
    assert (np.abs(counts - 7 * shares) < 1).all()


def test_items_of_all_shards_are_drawn_in_proportion_to_their_priorities_and_weighed_exactly():
    with ReplayClient(make_handle, 3, batch_size=10, beta=0.5) as client:
        fill(client, [[1.0], [2.0, 3.0], [4.0, 5.0, 5.0]])
        counts: dict[float, int] = {}
        for _ in range(600):
            batch = client.sample()
            for value in batch["reward"].tolist():
                counts[value] = counts.get(value, 0) + 1
            expected = batch["reward"] ** -0.5
            np.testing.assert_allclose(batch["weight"], expected / expected.max(), rtol=1e-5)
    for value, n in counts.items():
        share = {5.0: 10.0}.get(value, value) / 20
        assert abs(n / 6000 - share) < 0.02


def test_weights_are_exact_though_masses_were_told_long_ago():
    """While masses have changed, a batch is drawn by the old ones: what it is weighed by is how it was drawn."""
    with ReplayClient(make_handle, 2, batch_size=8, prefetch=0, beta=1.0) as client:
        fill(client, [[1.0], [3.0]])
        client.sample()
        client.shards[0].update_priorities(np.array([0]), np.array([3.0]))
        batch = client.sample()
        drawn = {value: int((batch["reward"] == value).sum()) for value in (1.0, 3.0)}
        assert drawn == {1.0: 2, 3.0: 6}
        np.testing.assert_allclose(batch["weight"], np.where(batch["reward"] == 1.0, 1.0, 1 / 3))


def test_priorities_go_back_to_the_shard_of_their_rows():
    with ReplayClient(make_handle, 2, batch_size=16) as client:
        fill(client, [[1.0], [3.0]])
        batch = client.sample()
        client.update_priorities(batch["index"], batch["reward"] * 10)
        assert [handle.shard.buffer.sampler.total for handle in client.shards] == [10.0, 30.0]


@pytest.mark.parametrize("recreate", [True, False])
def test_a_lost_shard_is_replaced_or_the_others_go_on(recreate):
    with ReplayClient(make_handle, 2, batch_size=8, recreate=recreate) as client:
        fill(client, [[1.0, 1.0], [2.0, 2.0]])
        old = client.sample()
        client.shards[0].lost = True
        for _ in range(6):
            batch = client.sample()
        assert batch["reward"].tolist() == [2.0] * 8
        assert batch["weight"].tolist() == [1.0] * 8
        assert (client.n_lost, len(client.shards)) == (1, 2 if recreate else 1)
        client.update_priorities(old["index"], np.full(8, 9.0))  # those of the lost shard hit nothing
        if recreate:
            fill(client, [[6.0]])
            for _ in range(8):  # its mass is asked with a batch, and counts for those asked for after that
                rewards = client.sample()["reward"]
            assert set(rewards.tolist()) == {2.0, 6.0}
            assert client.shards[0].shard.buffer.sampler.tree.leaves[0] == 6.0


def test_shards_that_are_lost_again_and_again_end_it():
    def make(number: int) -> Handle:
        handle = make_handle(number)
        handle.lost = True
        return handle

    with pytest.raises(ActorLostError), ReplayClient(make, 1, batch_size=8) as client:
        client.sample()


def test_a_learner_waits_for_data_and_says_what_there_was():
    with (
        ReplayClient(make_handle, 2, batch_size=8) as client,
        pytest.raises(TimeoutError, match=r"items by shard: \{0: 0, 1: 0\}"),
    ):
        client.sample(timeout=0.02)


def test_a_learner_that_is_ahead_waits_for_inserts():
    def make(number: int) -> Handle:
        return Handle(ReplayShard(partial(TransitionReplay, 1000), RateLimiter(1.0, 8, 8.0)))

    with ReplayClient(make, 1, batch_size=8, prefetch=0) as client:
        client.insert(counting(0, 8))
        client.sample()
        with pytest.raises(TimeoutError):
            client.sample(timeout=0.02)
        client.insert(counting(8, 8))
        assert len(client.sample()["reward"]) == 8
        figures = client.figures()
        assert (figures["inserted"], figures["consumed"], figures["lost"]) == (16, 16, 0)


def test_sequences_of_several_shards_are_joined():
    def make(number: int) -> Handle:
        return Handle(ReplayShard(partial(SequenceReplay, 100, length=4, burn_in=1, period=4)))

    with ReplayClient(make, 2, batch_size=6) as client:
        for source in range(2):
            client.insert(with_state(counting(100 * source, 4), float(source)), source)
        batch = client.sample()
    assert batch["obs"].shape == (4, 6, 1)
    assert batch["burn_in"] == 1
    np.testing.assert_array_equal(batch["state"][0][:, 0], batch["obs"][0, :, 0] // 100)


# Writers


def test_a_writer_asks_with_a_small_call_until_its_rollout_is_taken():
    shard = ReplayShard(partial(TransitionReplay, 1000), RateLimiter(1.0, 4, 4.0))
    writer = ReplayWriter([Handle(shard)], source=5)
    taken = [writer.offer(counting(4 * i, 4)) for i in range(3)]
    assert taken == [True, True, False]
    with pytest.raises(TimeoutError, match="rollout 2 of source 5 was not taken within 0 s by 1 shards"):
        writer.write(counting(8, 4), timeout=0)
    assert shard.n_waits["insert"] == 0  # the rollout itself was never sent in vain
    shard.sample(8)
    writer.write(counting(8, 4), timeout=1)
    assert (writer.number, shard.figures()["inserted"]) == (3, 12)


def test_a_writer_goes_to_another_shard_when_its_own_is_lost():
    handles = [make_handle(0), make_handle(1)]
    writer = ReplayWriter(handles, source=1)
    assert writer.offer(counting(0, 2))
    handles[1].lost = True
    assert writer.offer(counting(2, 2))
    assert [len(handle.shard.buffer) for handle in handles] == [2, 2]
    handles[0].lost = True
    assert not writer.offer(counting(4, 2))
    with pytest.raises(TimeoutError, match="no shard: all are lost"):
        writer.write(counting(4, 2), timeout=0)
    new = make_handle(0)
    writer.set_shards([new])
    writer.write(counting(4, 2))
    assert writer.number == 3 and len(new.shard.buffer) == 2

"""PARL's utilities: the logger leaves others' logging and files alone, schedules, windows, returns, memory, ports."""

from __future__ import annotations

import logging
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from parl_lite import utils
from parl_lite.agent import Agent
from parl_lite.algorithm import Algorithm
from parl_lite.model import Model
from parl_lite.utils import CSVLogger, ReplayMemory, logger, machine_info, rl_utils, summary
from parl_lite.utils.scheduler import LinearDecayScheduler, PiecewiseScheduler
from parl_lite.utils.time_stat import TimeStat
from parl_lite.utils.window_stat import WindowStat


def test_every_name_is_there_and_an_unknown_one_is_answered_with_them() -> None:
    for name in utils.__all__:
        assert getattr(utils, name).__doc__, name
        assert name in dir(utils)
    with pytest.raises(AttributeError, match="has no attribute 'visualdl'; it has CSVLogger, "):
        utils.visualdl  # noqa: B018


def test_tensorboard_is_the_older_name_of_summary() -> None:
    assert utils.tensorboard is summary


# --- the logger ----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test in a folder of its own, and leave the logger as it was."""
    monkeypatch.chdir(tmp_path)
    yield
    summary.close()
    for handler in logging.getLogger("parl_lite.script").handlers[1:]:
        logging.getLogger("parl_lite.script").removeHandler(handler)
        handler.close()
    logger.set_level(logger.DEBUG)


def python(text: str) -> list[str]:
    """Return what a process of its own printed, lines of both streams."""
    done = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    return done.stdout.splitlines()


def test_a_line_names_the_place_and_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    logger.info("reward %s", 3)
    logger.warning("careful")
    first, second = capsys.readouterr().out.splitlines()
    assert "MainThread @test_parl_utils.py:" in first
    assert first.endswith("] reward 3")
    assert second.endswith("] WRN careful")


def test_the_level_hides_what_is_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    logger.set_level("ERROR")
    for say in (logger.debug, logger.info, logger.warn, logger.error):
        say("line")
    assert [line.rpartition("] ")[2] for line in capsys.readouterr().out.splitlines()] == ["ERR line"]
    assert logging.getLogger().level == logging.WARNING


def test_the_logging_of_the_program_stays_as_it_is() -> None:
    text = """if True:
        import logging
        root = logging.getLogger()
        before = root.handlers[:], root.level
        import parl_lite
        from parl_lite.utils import logger, summary
        assert (root.handlers[:], root.level) == before
        logging.basicConfig(level=logging.INFO)
        logging.getLogger("mine").info("once by the program")
        logging.getLogger("other").debug("never")
        logging.getLogger("parl_lite").info("once by the library")
        logger.info("once by the script")
        logger.set_level("ERROR")
        logging.getLogger("mine").info("still there")
    """
    said = [line.split("] ")[-1].split(":")[-1] for line in python(text)]
    assert sorted(said) == ["once by the library", "once by the program", "once by the script", "still there"]
    assert os.listdir() == []  # no folder, no file


def test_a_folder_is_added_to_and_never_emptied(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "run"
    assert logger.get_dir() is None
    logger.set_dir(folder)
    logger.info("first")
    (folder / "model.ckpt").write_text("precious")
    logger.set_dir(tmp_path / "elsewhere")
    logger.info("other")
    logger.set_dir(str(folder))
    logger.info("second")
    logger.set_level("INFO")
    assert logger.get_dir() == str(folder)
    assert (folder / "model.ckpt").read_text() == "precious"
    assert [line.rpartition("] ")[2] for line in (folder / "log.log").read_text().splitlines()] == ["first", "second"]


def test_a_folder_named_by_the_script_is_taken_without_asking_or_deleting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/somewhere/train.py")
    assert logger.auto_set_dir() == "train_log/train"
    Path("train_log/train/curve.csv").touch()
    assert logger.auto_set_dir("d") == logger.auto_set_dir("k") == "train_log/train"
    assert Path("train_log/train/curve.csv").exists()
    fresh = logger.auto_set_dir("n")
    assert fresh.startswith("train_log/train-")
    assert os.listdir(fresh) == ["log.log"]
    with pytest.raises(FileExistsError, match="train_log/train has files in it already"):
        logger.auto_set_dir("q")


# --- figures -------------------------------------------------------------------------------------------------


def points(folder: Path) -> list[tuple[str, int, float]]:
    """Return (tag, step, value) of all event files directly in a folder."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.glob("events.*")):
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + length])
            data = data[12 + length + 4 :]
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
    return found


def test_scalars_go_to_the_folder_of_the_logger_with_their_steps(tmp_path: Path) -> None:
    logger.set_dir(tmp_path / "run")
    summary.add_scalar("loss", np.float32(0.5), 10)
    summary.add_scalar("loss", torch.tensor([math.nan]), 20)
    summary.add_scalar("reward", 1)
    summary.add_scalar("reward", 2)
    summary.add_histogram("weights", np.arange(4), 20)
    summary.close()
    *scalars, histogram = points(tmp_path / "run")
    assert scalars[0] == ("loss", 10, 0.5)
    assert scalars[1][:2] == ("loss", 20)
    assert math.isnan(scalars[1][2])
    assert scalars[2:] == [("reward", 0, 1.0), ("reward", 1, 2.0)]
    assert histogram[:2] == ("weights", 20)


def test_figures_follow_the_logger_to_another_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        logger.set_dir(tmp_path / name)
        summary.add_scalar("loss", 1, 1)
    summary.close()
    assert len(points(tmp_path / "a")) == len(points(tmp_path / "b")) == 1


def test_a_second_process_does_not_write_between_the_points_of_the_first(tmp_path: Path) -> None:
    logger.set_dir(tmp_path)
    summary.add_scalar("loss", 1, 1)
    text = f"from parl_lite.utils import logger, summary; logger.set_dir({str(tmp_path)!r}); summary.add_scalar('loss', 2, 1)"
    assert python(text) == []
    summary.close()
    assert points(tmp_path) == [("loss", 1, 1.0)]
    (other,) = tmp_path.glob("process-*")
    assert points(other) == [("loss", 1, 2.0)]


def test_without_tensorboardx_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    logger.set_dir(tmp_path)
    with pytest.raises(ImportError, match=r"summary needs tensorboardX: pip install 'parl_lite\[tensorboard\]'"):
        summary.add_scalar("loss", 1, 1)


def test_rows_of_a_csv_file_have_the_columns_of_the_first() -> None:
    with CSVLogger("result.csv") as rows:
        rows.log_dict({"loss": 1, "reward": 2})
        rows.log_dict({"reward": 4, "loss": 3})
        rows.flush()
        assert Path("result.csv").read_text() == "loss,reward\n1,2\n3,4\n"
        with pytest.raises(ValueError, match=r"the columns are \['loss', 'reward'\], and cannot become \['loss'\]"):
            rows.log_dict({"loss": 1})
    rows.close()


def test_threads_may_share_a_csv_file() -> None:
    rows = CSVLogger("result.csv")
    threads = [threading.Thread(target=lambda: [rows.log_dict({"n": n}) for n in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows.close()
    assert sorted(Path("result.csv").read_text().split()) == sorted(["n", *map(str, list(range(50)) * 4)])


# --- schedules and statistics --------------------------------------------------------------------------------


def test_a_linear_schedule_falls_to_zero_and_stays_there() -> None:
    schedule = LinearDecayScheduler(start_value=0.1, max_steps=10)
    assert [schedule.step(), schedule.step(4), schedule.step(5), schedule.step(100)] == pytest.approx([0.09, 0.05, 0.0, 0.0])


def test_a_piecewise_schedule_takes_the_last_step_that_was_reached() -> None:
    schedule = PiecewiseScheduler([(0, 3), (10, 2), (20, 1)])
    assert [schedule.cur_value, schedule.step(9), schedule.step(), schedule.step(100)] == [3, 3, 2, 1]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LinearDecayScheduler(0.1, 0), "max_steps=0 is not above 0"),
        (lambda: PiecewiseScheduler([]), "scheduler_list=.. is not a list"),
        (lambda: PiecewiseScheduler([(5, 1), (5, 2)]), "with rising steps"),
        (lambda: LinearDecayScheduler(0.1, 10).step(0), "step_num=0 is not at least 1"),
        (lambda: ReplayMemory(0, 1, 1), "max_size=0 is not above 0"),
    ],
)
def test_nonsense_is_refused_with_the_value(make, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_the_schedules_of_an_agent_are_saved_and_restored_with_it(tmp_path: Path) -> None:
    class Scheduled(Agent):
        def __init__(self) -> None:
            super().__init__(Algorithm(Model()))
            self.lr = LinearDecayScheduler(1.0, 10)
            self.entropy = PiecewiseScheduler([(0, 1.0), (3, 0.5)])

    agent, other = Scheduled(), Scheduled()
    agent.lr.step(3)
    agent.entropy.step(3)
    agent.save(tmp_path / "agent.ckpt")
    other.restore(tmp_path / "agent.ckpt")
    assert (other.lr.step(), other.entropy.cur_value) == (0.6, 0.5)


def test_a_window_knows_its_last_values() -> None:
    stat = WindowStat(2)
    assert (stat.mean, stat.min, stat.max) == (None, None, None)
    for value in (100, np.float32(1.0), torch.tensor(2.0)):
        stat.add(value)
    assert (stat.mean, stat.min, stat.max, stat.count) == (1.5, 1.0, 2.0, 3)


def test_a_block_is_timed() -> None:
    stat = TimeStat(10)
    assert stat.mean is None
    for _ in range(3):
        with stat:
            pass
    assert stat.mean is not None and stat.min is not None and stat.max is not None
    assert 0 <= stat.min <= stat.mean <= stat.max
    assert stat.time_samples.count == 3


def test_discounted_sums_by_hand() -> None:
    assert rl_utils.calc_discount_sum_rewards([1, 2, 4], 0.5).tolist() == [3.0, 4.0, 4.0]
    assert rl_utils.calc_discount_sum_rewards([], 0.5).tolist() == []


def test_generalised_advantages_by_hand() -> None:
    # differences: 1 + 0.5 * 4 - 2 = 1, and 3 + 0.5 * 2 - 4 = 0; then 1 + 0.5 * 0.5 * 0
    assert rl_utils.calc_gae([1, 3], [2, 4], 2, 0.5, 0.5).tolist() == [1.0, 0.0]
    assert rl_utils.calc_gae([1, 3], [2, 4], 6, 0.5, 0.5).tolist() == [1.5, 2.0]


def test_advantages_with_lambda_of_one_are_returns_less_values() -> None:
    rng = np.random.default_rng(0)
    rewards, values, last = rng.normal(size=6), rng.normal(size=6), 1.5
    returns = rl_utils.calc_discount_sum_rewards(np.append(rewards, last), 0.9)[:-1]
    np.testing.assert_allclose(rl_utils.calc_gae(rewards, values, last, 0.9, 1.0), returns - values)


# --- the replay memory ---------------------------------------------------------------------------------------


def fill(memory: ReplayMemory, numbers: range) -> ReplayMemory:
    """Append transitions that are told apart by a number."""
    for n in numbers:
        memory.append(np.full(3, n), n % 5, float(n), np.full(3, n + 1), n % 7 == 0)
    return memory


def rewards(memory: ReplayMemory) -> list[float]:
    return sorted(memory.reward[: memory.size()].tolist())


def test_the_newest_transitions_stay_and_are_whole() -> None:
    memory = fill(ReplayMemory(10, 3, 0), range(13))
    assert (memory.size(), len(memory), rewards(memory)) == (10, 10, list(map(float, range(3, 13))))
    obs, action, reward, next_obs, terminal = memory.sample_batch(64)
    assert [column.dtype for column in (obs, action, reward, next_obs, terminal)] == ["f4", "i4", "f4", "f4", "?"]
    assert (obs.shape, action.shape, reward.shape, next_obs.shape, terminal.shape) == ((64, 3), (64,), (64,), (64, 3), (64,))
    n = reward.astype(int)
    assert (obs == n[:, None]).all() and (next_obs == n[:, None] + 1).all()
    assert (action == n % 5).all() and (terminal == (n % 7 == 0)).all()


def test_a_batch_stays_as_it_is_when_the_memory_goes_on() -> None:
    memory = fill(ReplayMemory(2, 3, 0), range(2))
    obs, *_ = memory.sample_batch_by_index([0, 1])
    fill(memory, range(5, 7))
    assert obs[:, 0].tolist() == [0.0, 1.0]


def test_numpys_seed_repeats_what_is_drawn() -> None:
    memory, drawn = fill(ReplayMemory(50, 3, 0), range(50)), []
    for _ in range(2):
        np.random.seed(4)
        drawn.append(memory.sample_batch(20)[2].tolist())
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 10


def test_observations_and_actions_of_any_shape() -> None:
    memory = ReplayMemory(4, (2, 2), act_dim=2)
    memory.append(np.eye(2), [0.5, -0.5], 1, np.eye(2), False)
    obs, action, *_ = memory.sample_batch(1)
    assert (obs.shape, action.tolist(), action.dtype) == ((1, 2, 2), [[0.5, -0.5]], np.float32)


@pytest.mark.parametrize("wrong", ["obs", "act", "next_obs"])
def test_a_value_of_another_size_is_refused_by_name(wrong: str) -> None:
    memory = ReplayMemory(4, 3, 2)
    values = {"obs": np.zeros(3), "act": np.zeros(2), "next_obs": np.zeros(3)} | {wrong: np.zeros(1)}
    with pytest.raises(ValueError, match=rf"^{wrong} has shape \(1,\), but \([23],\) was given"):
        memory.append(values["obs"], values["act"], 0, values["next_obs"], False)
    assert memory.size() == 0


def test_drawing_from_an_empty_memory_says_so() -> None:
    with pytest.raises(ValueError, match="the replay memory is empty"):
        ReplayMemory(4, 3, 2).sample_batch(1)


@pytest.mark.parametrize("n", [0, 7, 10, 26])
def test_a_memory_that_was_saved_goes_on_bit_by_bit(n: int) -> None:
    memory, other = fill(ReplayMemory(10, 3, 0), range(n)), ReplayMemory(10, 3, 0)
    memory.save("rpm")
    assert os.listdir() == ["rpm.npz"]
    other.load("rpm.npz" if n else "rpm")
    for each in (memory, other):
        fill(each, range(100, 104))
    for name in ("obs", "action", "reward", "terminal", "next_obs"):
        size = memory.size()
        np.testing.assert_array_equal(getattr(memory, name)[:size], getattr(other, name)[:size])
    np.random.seed(1)
    expected = memory.sample_batch(50)
    np.random.seed(1)
    for ours, theirs in zip(expected, other.sample_batch(50), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_larger_memory_has_room_left_after_loading() -> None:
    fill(ReplayMemory(10, 3, 0), range(13)).save("rpm")
    larger = ReplayMemory(12, 3, 0)
    larger.load("rpm")
    fill(larger, range(13, 16))
    assert rewards(larger) == list(map(float, range(4, 16)))


def test_a_smaller_memory_keeps_the_newest_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    fill(ReplayMemory(10, 3, 0), range(13)).save("rpm")
    smaller = ReplayMemory(4, 3, 0)
    smaller.load("rpm")
    assert "rpm holds 10 transitions: the newest 4 are kept" in capsys.readouterr().out
    assert rewards(smaller) == [9.0, 10.0, 11.0, 12.0]
    fill(smaller, range(13, 14))
    assert rewards(smaller) == [10.0, 11.0, 12.0, 13.0]


def test_a_file_as_parl_writes_it_is_read() -> None:
    full = {"obs": np.zeros((5, 3)), "action": np.arange(5), "terminal": np.zeros(5, bool), "next_obs": np.zeros((5, 3))}
    np.savez("theirs.npz", **full, reward=np.array([5, 6, 2, 3, 4]), other=np.array([5, 2], np.int32))
    memory = ReplayMemory(5, 3, 0)
    memory.load("theirs.npz")
    fill(memory, range(7, 8))
    assert rewards(memory) == [3.0, 4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize(("memory", "what"), [(ReplayMemory(10, 4, 0), "obs"), (ReplayMemory(10, 3, 2), "action")])
def test_a_file_of_other_shapes_is_refused(memory: ReplayMemory, what: str) -> None:
    fill(ReplayMemory(10, 3, 0), range(3)).save("rpm")
    with pytest.raises(ValueError, match=f"{what} in rpm has shape"):
        memory.load("rpm")
    assert memory.size() == 0


def test_a_data_set_of_d4rl_is_taken_in() -> None:
    n = 6
    data = {"observations": np.zeros((n, 3)), "next_observations": np.ones((n, 3)), "actions": np.zeros((n, 2))}
    data |= {"rewards": np.arange(n), "terminals": np.zeros(n, bool)}
    memory = ReplayMemory(8, 3, 2)
    memory.load_from_d4rl(data)
    assert rewards(memory) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    memory.append(np.zeros(3), np.zeros(2), 9.0, np.zeros(3), True)
    assert rewards(memory)[-1] == 9.0
    with pytest.raises(ValueError, match="has 6 transitions, but max_size is 5"):
        ReplayMemory(5, 3, 2).load_from_d4rl(data)
    with pytest.raises(ValueError, match="the data set lacks actions, next_observations, observations, terminals"):
        memory.load_from_d4rl({"rewards": np.zeros(1)})


# --- the machine ---------------------------------------------------------------------------------------------


def test_a_free_port_can_be_listened_on_and_is_then_taken() -> None:
    port = machine_info.get_free_tcp_port()
    assert isinstance(port, str)
    with socket.socket() as mine:
        mine.bind(("", int(port)))
        mine.listen()
        assert not machine_info.is_port_available(port)
        with pytest.raises(OSError, match=f"no port from {port} to {port} is free"):
            machine_info.get_port_from_range(int(port), int(port))
    assert machine_info.is_port_available(int(port))
    assert machine_info.get_port_from_range(int(port), int(port)) == int(port)


def test_the_address_is_one_of_a_card_of_this_machine_or_none_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {address.address for card in psutil.net_if_addrs().values() for address in card}
    assert machine_info.get_ip_address() in own | {None}
    monkeypatch.setattr(machine_info, "_address_of_default_route", list)
    monkeypatch.setattr(machine_info, "_addresses_of_cards", lambda: ["127.0.0.1", "10.1.2.3"])
    assert machine_info.get_ip_address() == "10.1.2.3"
    monkeypatch.setattr(machine_info, "_addresses_of_cards", lambda: ["127.0.0.1"])
    capsys.readouterr()
    assert machine_info.get_ip_address() is None
    assert "this machine has no address but its own" in capsys.readouterr().out


def test_gpus_are_counted_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (0, 2):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert (machine_info.get_gpu_count(), machine_info.is_gpu_available()) == (count, count > 0)


def test_a_model_is_asked_for_its_methods() -> None:
    class Net(Model):
        def policy(self, obs):
            return obs

    utils.check_model_method(Net(), "policy", "Mine")
    for method in ("value", "forward"):
        with pytest.raises(TypeError, match=rf"Mine calls model.{method}\(\), which Net does not define"):
            utils.check_model_method(Net(), method, "Mine")

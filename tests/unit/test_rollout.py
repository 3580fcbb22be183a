from __future__ import annotations

import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from payload_identity import assert_same

from parl_lite import columns as arrow
from parl_lite.rollout import Rollout

FILES = ["rollout.feather", "rollout.arrow", "rollout.parquet"]


def make_rollout(rows: int = 4) -> Rollout:
    generator = np.random.default_rng(rows)
    columns = {
        "obs": {
            "image": generator.integers(0, 255, (rows, 6, 5), np.uint8),
            "a/b~": generator.normal(size=(rows, 3)).astype(np.complex64),
        },
        "reward": generator.normal(size=rows).astype(np.float32),
        "terminated": np.arange(rows) % 2 == 0,
        "mask": np.arange(rows * 2).reshape(rows, 2) % 3 == 0,
        "half": np.ones((rows, 2), np.float16),
        "time": np.arange(rows).astype("M8[ms]"),
        "span": np.arange(rows * 2).reshape(rows, 2).astype("m8[ns]"),
        "phase": np.arange(rows) * 1j,
    }
    return Rollout(columns, {"policy_version": 3, "env": "CartPole-v1", "lr": 0.5, "final": True})


def assert_equal(received: Rollout, sent: Rollout) -> None:
    assert len(received) == len(sent)
    assert_same(received.metadata, sent.metadata)
    assert list(received.arrays) == list(sent.arrays)
    for path, array in sent.arrays.items():
        other = received.arrays[path]
        assert other.dtype == array.dtype and other.shape == array.shape and other.tobytes() == array.tobytes()


def test_it_reads_like_a_mapping_of_columns():
    image, reward = np.zeros((3, 2)), np.ones(3)
    rollout = Rollout({"obs": {"image": image}, "reward": reward}, {"version": np.int64(2)})
    assert rollout["reward"] is reward and rollout["obs"]["image"] is image
    assert list(rollout) == list(rollout.keys()) == ["obs", "reward"]
    assert "obs" in rollout and "image" not in rollout
    assert list(dict(rollout)) == ["obs", "reward"]
    assert list(rollout.arrays) == ["obs/image", "reward"]
    assert len(rollout) == 3
    assert_same(rollout.metadata, {"version": 2})
    assert repr(rollout) == "<Rollout of 3 rows, obs/image: float64[3, 2], reward: float64[3]>"
    with pytest.raises(KeyError):
        rollout["none"]


def test_its_columns_cannot_be_replaced():
    rollout = make_rollout()
    rollout.columns.clear()
    rollout["obs"].clear()
    rollout.metadata.clear()
    rollout.arrays.clear()
    assert_equal(rollout, make_rollout())
    with pytest.raises(TypeError):
        rollout["reward"] = np.zeros(4)
    with pytest.raises(AttributeError):
        rollout.more = 1


def test_lists_and_big_endian_numbers_become_native_arrays():
    rollout = Rollout({"a": [1.5, 2.5], "b": np.array([1, 2], ">i4")})
    assert rollout["a"].dtype == np.float64
    assert rollout["b"].dtype == np.dtype("<i4") and rollout["b"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("columns", "error", "reason"),
    [
        ({}, ValueError, "at least one column"),
        ({"a": np.zeros(3), "b": np.zeros(4)}, ValueError, r"'a': \(3,\), 'b': \(4,\)"),
        ({"a": np.float32(1)}, ValueError, r"'a': \(\)"),
        ({"a": np.zeros(3), "b": {}}, ValueError, "'b' is an empty dict"),
        ({"a": {"b": np.array(["x"])}}, TypeError, "'a/b' has dtype <U1"),
        ({"a": np.array([None])}, TypeError, "'a' has dtype object"),
        ({"a": np.zeros(1, [("x", "i4")])}, TypeError, "'a' has dtype"),
        ({1: np.zeros(3)}, TypeError, "named 1"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_columns_that_make_no_rollout_are_refused(columns, error, reason):
    with pytest.raises(error, match=reason):
        Rollout(columns)


@pytest.mark.parametrize("metadata", [{"a": None}, {"a": [1]}, {1: 2}, {"a": np.zeros(2)}], ids=str)
def test_metadata_that_are_no_facts_are_refused(metadata):
    with pytest.raises(TypeError, match="metadata"):
        Rollout({"x": np.zeros(2)}, metadata)


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_arrow_and_back_keeps_everything(rows):
    rollout = make_rollout(rows)
    table = rollout.to_arrow()
    table.validate(full=True)
    assert table.num_rows == rows
    assert_equal(Rollout.from_arrow(table), rollout)
    if rows:
        assert_equal(Rollout.from_arrow(table.to_batches()[0]), rollout)


def test_arrow_shares_the_memory_both_ways():
    rollout = make_rollout()
    received = Rollout.from_arrow(rollout.to_arrow())
    for path, array in rollout.arrays.items():
        assert np.shares_memory(received.arrays[path], array)
        assert not received.arrays[path].flags.writeable


def test_strided_columns_are_saved_with_their_values():
    base = np.arange(24).reshape(4, 6)
    rollout = Rollout({"x": base[:, ::2], "y": base.T[:4], "z": base[::-1, 0]})
    assert_equal(Rollout.from_arrow(rollout.to_arrow()), rollout)


def test_columns_without_numbers_keep_their_shape():
    rollout = Rollout({"x": np.zeros((3, 0)), "y": np.zeros((3, 2, 0), np.complex64), "z": np.zeros((3, 0), bool)})
    assert_equal(Rollout.from_arrow(rollout.to_arrow()), rollout)


def test_beyond_arrows_limit_a_table_has_several_batches(monkeypatch):
    monkeypatch.setattr(arrow, "MAX_CHILD_VALUES", 13)
    rollout = Rollout({"x": np.arange(28.0).reshape(7, 4), "y": np.arange(7) * 1j})
    table = rollout.to_arrow()
    assert [batch.num_rows for batch in table.to_batches()] == [3, 3, 1]
    assert_equal(Rollout.from_arrow(table), rollout)
    with pytest.raises(ValueError, match="a row of 14 numbers"):
        Rollout({"x": np.zeros((2, 14))}).to_arrow()


def test_tables_of_others_become_rollouts():
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.int32).reshape(2, 2, 3))
    lists = pa.array([[[1, 2]], [[3, 4]], [[5, 6]]], pa.list_(pa.list_(pa.int8(), 2), 1))
    table = pa.table(
        {
            "a/x": pa.array([1.5, 2.5]),
            "a/y": pa.array([True, False]),
            "time": pa.array([1, 2], pa.timestamp("us")),
            "lists": lists.slice(1),
            "tensor": tensor,
        }
    )
    rollout = Rollout.from_arrow(table)
    assert rollout["a"]["x"].tolist() == [1.5, 2.5] and rollout["a"]["y"].tolist() == [True, False]
    assert rollout["time"].dtype == "M8[us]"
    assert rollout["lists"].tolist() == [[[3, 4]], [[5, 6]]]
    assert rollout["tensor"].tolist() == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


def test_tensors_in_another_order_of_axes_keep_their_values():
    kind = pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=(1, 0))
    column = pa.ExtensionArray.from_storage(kind, pa.array([range(6)], pa.list_(pa.int32(), 6)))
    rollout = Rollout.from_arrow(pa.table({"x": column}))
    assert rollout["x"].tolist() == column.to_numpy_ndarray().tolist()


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([1, None]), "nulls"),
        (pa.array([[1, 2], [3, None]], pa.list_(pa.int8(), 2)), "nulls"),
        (pa.array(["a", "b"]), "no numbers"),
        (pa.array([[1], [2, 3]]), "no numbers"),
        (pa.array([{"a": 1}, {"a": 2}]), "no numbers"),
    ],
    ids=lambda value: str(value)[:10],
)
def test_columns_of_others_that_hold_no_numbers_are_refused(column, reason):
    with pytest.raises(ValueError, match=f"column 'x'.*{reason}"):
        Rollout.from_arrow(pa.table({"x": column}))


def test_names_that_clash_are_refused():
    for names in (["a", "a/b"], ["a/b", "a"], ["a", "a"]):
        with pytest.raises(ValueError, match="column"):
            Rollout.from_arrow(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=names))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("rows", [0, 4])
def test_files_keep_everything(tmp_path, name, rows):
    rollout = make_rollout(rows)
    rollout.save(tmp_path / name)
    assert os.listdir(tmp_path) == [name]
    assert_equal(Rollout.load(tmp_path / name), rollout)
    assert_equal(Rollout.load(str(tmp_path / name)), rollout)


@pytest.mark.parametrize("name", FILES[:2])
def test_arrow_files_are_mapped_not_read(tmp_path, name):
    size = 8 * 2**20
    Rollout({"x": np.ones((16, size // 128))}).save(tmp_path / name)
    before = pa.total_allocated_bytes()
    loaded = Rollout.load(tmp_path / name)["x"]
    assert pa.total_allocated_bytes() - before < size // 2
    assert not loaded.flags.writeable and not loaded.flags.owndata
    assert loaded.sum() == loaded.size


def test_arrow_and_parquet_files_are_read_by_pyarrow(tmp_path):
    rollout = make_rollout()
    rollout.save(tmp_path / "x.arrow")
    rollout.save(tmp_path / "x.parquet")
    for table in (pa.ipc.open_file(tmp_path / "x.arrow").read_all(), pq.read_table(tmp_path / "x.parquet")):
        assert table.column("reward").to_numpy().tolist() == rollout["reward"].tolist()
        assert table.column("obs/image").type == pa.fixed_shape_tensor(pa.uint8(), (6, 5))


def test_a_stream_of_batches_is_loaded_as_one_rollout(tmp_path):
    parts = [make_rollout(3), make_rollout(5)]
    with pa.ipc.new_stream(tmp_path / "x.arrow", parts[0].to_arrow().schema) as stream:
        for part in parts:
            stream.write_table(part.to_arrow())
    assert_equal(Rollout.load(tmp_path / "x.arrow"), Rollout.concatenate(parts))


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "x.arrow"
    make_rollout(2).save(path)

    def fail(self, table):
        raise OSError("disk full")

    monkeypatch.setattr(pa.ipc.RecordBatchFileWriter, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        make_rollout(3).save(path)
    assert os.listdir(tmp_path) == ["x.arrow"]
    assert_equal(Rollout.load(path), make_rollout(2))


def test_other_suffixes_and_missing_files_are_clear_errors(tmp_path):
    for call in (make_rollout().save, Rollout.load):
        with pytest.raises(ValueError, match=r"'x\.npz'.*'\.feather'"):
            call(tmp_path / "x.npz")
    for name in FILES:
        with pytest.raises(FileNotFoundError):
            Rollout.load(tmp_path / name)


def test_parquet_refuses_rows_without_numbers(tmp_path):
    with pytest.raises(ValueError, match=r"column 'y' of shape \(2, 0\)"):
        Rollout({"x": np.zeros(2), "y": np.zeros((2, 0))}).save(tmp_path / "x.parquet")
    assert os.listdir(tmp_path) == []


def test_concatenate_keeps_the_order_of_rows_and_the_facts_all_share():
    rollouts = [make_rollout(2), make_rollout(3), Rollout(make_rollout(1).columns, {"policy_version": 4, "lr": 0.5})]
    whole = Rollout.concatenate(iter(rollouts))
    assert len(whole) == 6
    assert whole.metadata == {"lr": 0.5}
    assert whole["reward"].tolist() == [x for rollout in rollouts for x in rollout["reward"].tolist()]
    assert whole["obs"]["image"].shape == (6, 6, 5)
    assert not np.shares_memory(Rollout.concatenate(rollouts[:1])["reward"], rollouts[0]["reward"])


def test_rollouts_that_do_not_fit_are_not_concatenated():
    first = Rollout({"x": np.zeros((2, 3))})
    with pytest.raises(ValueError, match="no rollouts"):
        Rollout.concatenate([])
    with pytest.raises(ValueError, match="other columns"):
        Rollout.concatenate([first, Rollout({"y": np.zeros((2, 3))})])
    with pytest.raises(ValueError, match="must match"):
        Rollout.concatenate([first, Rollout({"x": np.zeros((2, 4))})])


def test_it_can_be_pickled():
    class Special(Rollout):
        pass

    assert_equal(pickle.loads(pickle.dumps(make_rollout())), make_rollout())
    assert Special({"x": np.zeros(2)}).__reduce__()[0] is Special

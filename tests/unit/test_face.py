"""What `import parl_lite` shows: all that is promised and nothing else, each name loaded on first use."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

import parl_lite
from parl_lite import errors

PROMISED = {
    *("connect", "disconnect", "cluster_info", "remote_class", "batched", "ActorPool"),
    *("put", "Ref", "get", "wait", "as_completed", "Future"),
    *("Rollout", "Model", "Algorithm", "Agent", "__version__"),
    *("ParlError", "NotConnectedError", "AuthenticationError", "VersionError", "ResourceError"),
    *("SerializationError", "RemoteError", "ActorLostError", "OutOfMemoryError"),
}
NOT_YET: set[str] = set()
"""Promised names that are still to be written; who writes one takes it out of here."""
HEAVY = {"torch", "gymnasium"}


def loaded_by(statements: str, names: Sequence[str]) -> set[str]:
    """Return which modules of some names are loaded after statements in a process of its own."""
    text = f"import json, sys\n{statements}\nprint(json.dumps([name for name in {list(names)!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=200, check=True)
    return set(json.loads(done.stdout))


def test_the_face_has_all_names_that_are_promised_and_no_other() -> None:
    assert set(parl_lite.__all__) == PROMISED - NOT_YET
    assert len(parl_lite.__all__) == len(set(parl_lite.__all__))


@pytest.mark.parametrize("name", sorted(PROMISED - NOT_YET - {"__version__"}))
def test_every_name_is_what_it_says_and_explains_itself(name: str) -> None:
    value = getattr(parl_lite, name)
    assert value.__name__ == name
    assert value.__module__.startswith("parl_lite.")
    assert inspect.getdoc(value)
    assert name in dir(parl_lite)


def test_all_names_can_be_imported_at_once() -> None:
    space: dict[str, object] = {}
    exec("from parl_lite import *", space)
    assert space.keys() - {"__builtins__"} == set(parl_lite.__all__)


def test_type_checkers_see_the_names_that_are_there() -> None:
    block = next(node for node in ast.parse(inspect.getsource(parl_lite)).body if isinstance(node, ast.If))
    seen = {alias.asname: found.module for found in block.body if isinstance(found, ast.ImportFrom) for alias in found.names}
    packages = {name for name, module in seen.items() if module == "parl_lite"}
    assert packages == {"algorithms", "utils"}
    seen = {name: module for name, module in seen.items() if name not in packages}
    assert seen.keys() | {"__version__"} == set(parl_lite.__all__)
    assert all(getattr(parl_lite, name or "").__module__ == module for name, module in seen.items())


def test_the_packages_with_names_of_parl_are_there_and_load_what_is_used_of_them() -> None:
    assert {"algorithms", "utils"} <= set(dir(parl_lite))
    assert loaded_by("import parl_lite as parl\nparl.utils.logger.set_level('INFO')", ["parl_lite.utils", *HEAVY]) == {
        "parl_lite.utils"
    }
    assert loaded_by("import parl_lite as parl\nparl.algorithms.DQN", ["torch"]) == {"torch"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'parl_lite' has no attribute 'Actor'"):
        parl_lite.Actor  # noqa: B018


def test_one_error_catches_all() -> None:
    shown = {name for name in parl_lite.__all__ if name.endswith("Error")}
    kinds = {name for name, _ in inspect.getmembers(errors, inspect.isclass)}
    assert shown == kinds
    assert all(issubclass(getattr(parl_lite, name), parl_lite.ParlError) for name in shown)


def test_neither_the_face_nor_the_cluster_loads_torch_or_gymnasium() -> None:
    everything = "import parl_lite, parl_lite.cluster.master, parl_lite.cluster.worker, parl_lite.cluster.cli\n"
    use = "parl_lite.connect, parl_lite.remote_class, parl_lite.get, parl_lite.ParlError"
    assert loaded_by(everything + use, [*HEAVY, "zmq"]) == {"zmq"}


def test_an_import_alone_loads_next_to_nothing() -> None:
    assert loaded_by("import parl_lite", ["zmq", "numpy", "pyarrow", "cloudpickle", *HEAVY]) == set()


def test_the_master_does_not_load_what_reads_the_values_of_users() -> None:
    readers = ["parl_lite.payload", "parl_lite.pickling", "parl_lite.plain_pickle", "parl_lite.arrow_reader"]
    assert loaded_by("import parl_lite.cluster.master", [*readers, "parl_lite.wire"]) == {"parl_lite.wire"}

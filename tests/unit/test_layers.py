"""Arrows point one way: the imports of parl_lite, cluster and agents, read from their text. Imports none of them."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LAYERS = (
    {"errors", "settings", "version"},
    {"messages"},
    {"machine", "batching", "versions", "wire", "templates", "arrow_head", "frames", "remote_errors"}
    | {"hostos", "folders", "launch", "waker", "sockets", "shm", "security", "keys", "listener", "stores", "lanes", "line"}
    | {"tensors", "columns", "rollout", "arrow_codec", "arrow_reader", "arrow_writer"}
    | {"stacking", "pickling", "plain_pickle", "payload"}
    | {"project_patterns", "project_files", "project_archive", "project"},
    {"client_state", "pool_state", "loop"},
    {"lending", "refs", "futures", "callbacks", "calls", "wishes", "embedded", "client"},
    {"class_code", "links", "proxy", "creation", "remote", "pool_members", "pool_crew", "pool"},
)
"""Modules of parl_lite/, the lowest first. A module imports of its own and of lower layers, not in circles."""
LEARNING = {"model", "algorithm", "agent", "checkpoint", "snapshot"}
"""Modules of parl_lite/ that stand apart: they know torch, each other and the lowest layer; no other knows them."""
BESIDE = ("utils", "algorithms")
"""Sub-packages of parl_lite/ beside LEARNING with PARL's names, the lower first: they know LEARNING and the lowest layer, too."""
PURE = {"errors", "settings", "messages", "machine", "frames", "batching"}
"""What of parl_lite/ a protocol machine may know."""
PURE_CLUSTER = {"records", "report", "slots", "free_slots", "wish_queue", "timetable"}
"""What of cluster/ it may know besides other machines; these keep the same rule."""
IMPURE = {"zmq", "time", "threading", "os", "subprocess", "random"}
IMPURE |= {"asyncio", "datetime", "multiprocessing", "secrets", "select", "selectors", "signal", "socket", "uuid"}


@dataclass(frozen=True)
class Import:
    """One imported module."""

    where: str
    """File and line."""
    module: str
    """The full name of the module that imports; of a package without `.__init__`."""
    package: str
    """The package that module lies in."""
    target: str
    """The full name of the imported module."""
    dots: int
    """How many dots the statement begins with."""
    place: str
    """module: done whenever the module is imported; function: when it is called; typing: never."""

    @property
    def folder(self) -> str:
        """Which of the three it is: parl_lite, cluster, agents."""
        return owner(self.module)


def owner(name: str) -> str:
    """Return cluster, agents or parl_lite for a module of ours, and the top-level name for any other."""
    return next((part for part in ("cluster", "agents") if is_in(name, f"parl_lite.{part}")), name.split(".")[0])


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def ground(name: str) -> str:
    """Return "errors" for "parl_lite.errors" and "" for all that is not a module of parl_lite/ itself."""
    return name.removeprefix("parl_lite.") if owner(name) == "parl_lite" and name != "parl_lite" else ""


def beside(name: str) -> str:
    """Return which of BESIDE a module belongs to, or nothing."""
    first = ground(name).partition(".")[0]
    return first if first in BESIDE else ""


def layer(name: str) -> int:
    """Return the number of a ground module's layer; that of the face is above all."""
    return next((number for number, names in enumerate(LAYERS) if ground(name) in names), len(LAYERS))


# Reading


def source_files() -> dict[str, str]:
    """Return {path below the repository: text} of all modules of the three folders."""
    paths = [*(ROOT / "parl_lite").glob("*.py"), *(ROOT / "cluster").rglob("*.py"), *(ROOT / "agents").rglob("*.py")]
    paths += [path for name in BESIDE for path in (ROOT / "parl_lite" / name).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}


def module_name(path: str) -> str:
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts if parts[0] == "parl_lite" else ["parl_lite", *parts])


def imports_of(path: str, text: str, known: set[str]) -> Iterator[Import]:
    """Yield what a file imports; `known` are the names of all our modules, to tell them from names within a module."""
    module = module_name(path)
    package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
    for node, place in statements(ast.parse(text), "module"):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            targets = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names]
        else:
            continue
        for target in dict.fromkeys(targets):
            yield Import(f"{path}:{node.lineno}", module, package, target, getattr(node, "level", 0), place)


def statements(node: ast.AST, place: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield all nodes below one, with the place that an import there has."""
    for child in ast.iter_child_nodes(node):
        inner = "function" if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and place == "module" else place
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            inner = "typing"
        yield child, inner
        yield from statements(child, inner)


# The rules: each returns what is wrong with an import, or nothing


def spelling(found: Import) -> str:
    if found.dots > 1:
        return "`..` is not used; write `from parl_lite.x import`"
    if found.dots and found.folder == "parl_lite":
        return "inside parl_lite/ write `from parl_lite.x import`"
    sibling = found.target.rpartition(".")[0] == found.package
    if not found.dots and sibling and found.folder != "parl_lite" and found.module != found.package:
        return "a sibling is imported by `from .x import`"
    return ""


def between_folders(found: Import) -> str:
    target = owner(found.target)
    if found.folder == "parl_lite" and target in ("cluster", "agents"):
        return f"parl_lite/ does not know {target}"
    if found.folder == "cluster" and target == "agents":
        return "cluster does not know agents"
    if found.folder == "agents" and target in ("cluster", "zmq"):
        return f"agents do not know {target}"
    if beside(found.module) and target == "zmq":
        return f"{beside(found.module)} know nothing of the wire"
    return ""


def without_torch(found: Import) -> str:
    """The command line and the master start without torch."""
    loads_torch = owner(found.target) == "torch" or ground(found.target) in LEARNING or beside(found.target) == "algorithms"
    learns = ground(found.module) in LEARNING or beside(found.module) == "algorithms"
    if found.folder == "agents" or learns or not loads_torch:
        return ""
    return "torch is not loaded here" if found.place == "module" else ""


def between_layers(found: Import) -> str:
    target = ground(found.target)
    if found.folder != "parl_lite" or owner(found.target) != "parl_lite" or found.module == "parl_lite":
        return ""
    if beside(found.module):
        lower = BESIDE[: BESIDE.index(beside(found.module)) + 1]
        allowed = beside(found.target) in lower or target in LEARNING | LAYERS[0]
        return "" if allowed else f"{beside(found.module)} know only LEARNING, the lowest layer and what is beside them"
    if beside(found.target):
        return f"only the face and agents know {beside(found.target)}"
    if ground(found.module) in LEARNING:
        return "" if target in LEARNING | LAYERS[0] else "the learning modules know only each other and the lowest layer"
    if target in LEARNING:
        return "only the face and agents know the learning modules"
    return "" if layer(found.target) <= layer(found.module) else "arrows point to lower layers"


def is_pure(module: str) -> bool:
    name = module.rpartition(".")[2]
    return name.endswith("_state") or (owner(module) == "cluster" and name in PURE_CLUSTER)


def purity(found: Import) -> str:
    if not is_pure(found.module):
        return ""
    if found.target.split(".")[0] in IMPURE:
        return "a protocol machine knows no sockets, clocks, processes or dice"
    if owner(found.target) in ("parl_lite", "cluster") and not is_pure(found.target):
        return "" if ground(found.target) in PURE else "a protocol machine knows only pure modules"
    return ""


RULES = (spelling, between_folders, without_torch, between_layers, purity)


def complaints_about(files: dict[str, str], rules: Sequence[Callable[[Import], str]] = RULES) -> list[str]:
    known = {module_name(path) for path in files}
    found = [one for path, text in files.items() for one in imports_of(path, text, known)]
    return [f"{one.where} imports {one.target}: {said}" for one in found for rule in rules if (said := rule(one))]


# The house


@pytest.mark.parametrize("rule", RULES)
def test_all_imports_keep_the_rule(rule: Callable[[Import], str]) -> None:
    complaints = complaints_about(source_files(), [rule])
    assert not complaints, "\n".join(complaints)


def test_no_modules_import_each_other_in_circles() -> None:
    files = source_files()
    known = {module_name(path) for path in files}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for path, text in files.items():
        for found in imports_of(path, text, known):
            if found.place == "module" and found.target in known and found.target != found.module:
                sorter.add(found.module, found.target)
    sorter.prepare()  # raises CycleError, which names the circle


def test_every_module_of_parl_lite_has_a_place() -> None:
    listed = set.union(LEARNING, *LAYERS)
    modules = {path.stem for path in (ROOT / "parl_lite").glob("*.py")} - {"__init__"}
    strangers = [f"{name}: add me to LAYERS or LEARNING in tests/unit/test_layers.py" for name in modules - listed]
    assert sorted(strangers) == []


def test_every_module_says_what_it_is() -> None:
    assert [path for path, text in source_files().items() if not ast.get_docstring(ast.parse(text))] == []


@pytest.mark.parametrize("folder", ["cluster", "agents"])
def test_a_folder_can_be_imported_under_its_one_name_only(folder: str) -> None:
    statements = ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8")).body[1:]
    first = next(node for node in statements if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"))
    assert ast.unparse(first).startswith(f"if __name__ != 'parl_lite.{folder}':\n    raise ImportError(")
    assert os.readlink(ROOT / "parl_lite" / folder) == f"../{folder}"


# The rules find what they are there for


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("cluster/job.py", "from ..errors import ParlError", "`..` is not used"),
        ("parl_lite/client.py", "from .errors import ParlError", "write `from parl_lite.x"),
        ("cluster/job.py", "from parl_lite.cluster.master import run", "a sibling is imported by"),
        ("cluster/job.py", "from parl_lite.cluster import master", "a sibling is imported by"),
        ("parl_lite/client.py", "from parl_lite.cluster import master", "does not know cluster"),
        ("parl_lite/client.py", "def run():\n    import parl_lite.agents", "does not know agents"),
        ("cluster/cli.py", "from parl_lite.agents import impala", "cluster does not know agents"),
        ("agents/impala.py", "import zmq.auth", "agents do not know zmq"),
        ("agents/impala.py", "from parl_lite.cluster import master", "agents do not know cluster"),
        ("cluster/zygote.py", "try:\n    import torch\nexcept ImportError:\n    pass", "torch is not loaded here"),
        ("cluster/zygote.py", "class Job:\n    import torch.nn", "torch is not loaded here"),
        ("cluster/job.py", "from parl_lite.model import Model", "torch is not loaded here"),
        ("parl_lite/payload.py", "import torch", "torch is not loaded here"),
        ("parl_lite/__init__.py", "from parl_lite.agent import Agent", "torch is not loaded here"),
        ("parl_lite/messages.py", "from parl_lite import client", "arrows point to lower layers"),
        ("parl_lite/errors.py", "def f():\n    from parl_lite.messages import Message", "arrows point to lower layers"),
        ("parl_lite/remote.py", "from parl_lite import connect", "arrows point to lower layers"),
        ("parl_lite/agent.py", "from parl_lite.client import connect", "the learning modules know only"),
        ("parl_lite/remote.py", "def f():\n    import parl_lite.model", "only the face and agents know"),
        ("parl_lite/algorithms/dqn.py", "from parl_lite.client import connect", "algorithms know only LEARNING"),
        ("parl_lite/algorithms/dqn.py", "from parl_lite.agents import impala", "does not know agents"),
        ("parl_lite/utils/logger.py", "from parl_lite.algorithms import dqn", "utils know only LEARNING"),
        ("parl_lite/utils/logger.py", "import torch", "torch is not loaded here"),
        ("parl_lite/utils/logger.py", "def f():\n    import zmq", "utils know nothing of the wire"),
        ("parl_lite/utils/logger.py", "from .scheduler import step", "write `from parl_lite.x"),
        ("parl_lite/agent.py", "from parl_lite.utils import logger", "only the face and agents know utils"),
        ("parl_lite/client.py", "def f():\n    import parl_lite.algorithms.dqn", "only the face and agents know algorithms"),
        ("parl_lite/__init__.py", "from parl_lite import algorithms", "torch is not loaded here"),
        ("parl_lite/client_state.py", "import time", "knows no sockets, clocks"),
        ("cluster/master_state.py", "from os import path", "knows no sockets, clocks"),
        ("cluster/master_state.py", "from parl_lite.loop import Loop", "knows only pure modules"),
        ("cluster/worker_state.py", "from .master import run", "knows only pure modules"),
    ],
)
def test_a_wrong_import_is_found(path: str, text: str, said: str) -> None:
    files = dict.fromkeys(["cluster/master.py", "parl_lite/client.py", "agents/impala.py", "parl_lite/loop.py"], "")
    files |= dict.fromkeys([f"parl_lite/{name}.py" for name in ("algorithms/__init__", "algorithms/dqn", "utils/logger")], "")
    found = complaints_about({**files, path: text})
    assert any(said in complaint and complaint.startswith(path) for complaint in found), found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "parl_lite/__init__.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from parl_lite.agent import Agent",
        ),
        ("parl_lite/tensors.py", "def f():\n    import torch"),
        (
            "parl_lite/agent.py",
            "import torch\nfrom parl_lite import checkpoint\nfrom parl_lite.errors import ParlError",
        ),
        (
            "parl_lite/algorithms/ddqn.py",
            "import torch\nfrom parl_lite.algorithms.dqn import DQN\nfrom parl_lite.utils import logger",
        ),
        ("parl_lite/utils/machine_info.py", "from parl_lite.utils import logger\ndef f():\n    import torch"),
        ("cluster/master_state.py", "from parl_lite.machine import Send\nfrom .worker_state import WorkerState"),
        ("cluster/master.py", "import zmq\nfrom parl_lite.loop import Loop\nfrom .master_state import MasterState"),
        ("cluster/dashboard/server.py", "from parl_lite.cluster.master import run\nfrom .pages import page"),
        ("agents/impala.py", "import torch\nimport parl_lite as parl\nfrom parl_lite.algorithm import Algorithm"),
    ],
)
def test_a_right_import_passes(path: str, text: str) -> None:
    files = dict.fromkeys(["cluster/master.py", "parl_lite/checkpoint.py", "cluster/dashboard/__init__.py"], "")
    assert complaints_about({**files, path: text}) == []

"""The user's code reaches the actors: scripts, modules, notebooks, projects, on the own machine and as if on another."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import parl_lite

Run = Callable[..., str]

ELSEWHERE = """
from parl_lite import creation
creation.identity_of = lambda folder, here: ["another machine", 0, 0]
"""
"""What makes a job believe that the user's folder is on another machine."""


@pytest.fixture
def python(cluster, tmp_path, monkeypatch) -> Run:
    """Run Python with the module's cluster as the one to connect to; return what it printed, fail if it failed."""
    monkeypatch.setenv("PARL_LITE_ADDRESS", parl_lite.cluster_info()["address"])

    def run(*arguments: str, cwd: Path = tmp_path, text: str | None = None, fails: bool = False) -> str:
        done = subprocess.run([sys.executable, *arguments], cwd=cwd, input=text, capture_output=True, text=True, timeout=200)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


def write(folder: Path, **files: str) -> Path:
    """Write files given as path (dots for slashes) = text; return the folder."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + (".ini" if name == "cfg" else ".py"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


# --- classes of a script ----------------------------------------------------------------------------------

SCRIPT = """
import parl_lite as parl

LIMIT = 3

class Space:
    made = 0
    def __init__(self, shape):
        self.shape = shape
        Space.made += 1
    def limit(self):
        return LIMIT

class Refused(Exception):
    def __init__(self, *, level):
        super().__init__(f"level {level}")
        self.level = level

def helper(value):
    raise Refused(level=value)  # the helper's line

class Base:
    def __init__(self):
        self.space = Space((LIMIT,))

@parl.remote_class
class Actor(Base):
    def __init__(self):
        super(Actor, self).__init__()
    def fail(self):
        helper(2)  # the method's line
    def look(self, space):
        return Space.made, isinstance(space, Space), isinstance(self.space, Space)

def main():
    global LIMIT
    parl.connect(log_to_driver=False)
    actor = Actor()
    assert actor.space.shape == (3,)
    assert type(actor.space) is Space
    try:
        actor.fail()
    except Refused as error:
        assert error.level == 2
        for line in ("helper(2)  # the method's line", "raise Refused(level=value)  # the helper's line", "in fail"):
            assert line in str(error), error
    else:
        raise AssertionError
    # what comes back leaves the classes here alone
    LIMIT, Space.made = 4, 10
    space = actor.space
    assert (space.limit(), Space((1,)).limit(), Space.made) == (4, 4, 11)
    # and what is sent leaves the classes there alone
    assert actor.look(space) == (1, True, True)
    print("ok")

if __name__ == "__main__":
    main()
"""


def test_classes_of_a_script_travel_by_value(python, tmp_path):
    write(tmp_path / "scripts", script=SCRIPT)
    assert python("scripts/script.py") == "ok\n"


@pytest.mark.parametrize("place", ["", ELSEWHERE])
def test_classes_of_a_module_that_runs_as_a_script_find_their_siblings(python, tmp_path, place):
    main = f"""
        import parl_lite as parl
        from .space import Space
        from . import helpers
        {place.strip().replace(chr(10), chr(10) + " " * 8)}

        @parl.remote_class
        class Actor:
            def shape(self):
                from .helpers import double
                return double(Space(3).n), helpers.__name__
            def fail(self):
                helpers.fail()

        parl.connect(log_to_driver=False)
        actor = Actor()
        assert actor.shape() == (6, "pkg.sub.helpers"), actor.shape()
        try:
            actor.fail()
        except ValueError as error:
            assert "raise ValueError('from a helper')" in error.remote_traceback
            assert "helpers.fail()" in error.remote_traceback
        print("ok")
    """
    space = "class Space:\n    def __init__(self, n): self.n = n\n"
    helpers = "def double(x): return 2 * x\ndef fail(): raise ValueError('from a helper')\n"
    write(tmp_path, pkg__sub__main=main, pkg__sub__space=space, pkg__sub__helpers=helpers)
    for package in ("pkg", "pkg/sub"):
        (tmp_path / package / "__init__.py").touch()
    assert python("-m", "pkg.sub.main") == "ok\n"


TYPED_IN = """
import parl_lite as parl
@parl.remote_class
class Actor:
    def f(self, x): return [x] * N
N = 2
parl.connect(log_to_driver=False)
assert Actor().f(1) == [1, 1]
print('ok')
"""


def test_classes_that_were_typed_in_travel(python):
    assert python("-c", TYPED_IN) == "ok\n"
    assert python("-", text=TYPED_IN) == "ok\n"


NOTEBOOK = '''
import linecache, sys, types
import parl_lite as parl

CELLS = {
    "/tmp/ipykernel_7/100.py": """
def helper(x):
    return 1 / x
class Space:
    n = 3
""",
    "/tmp/ipykernel_7/200.py": """
@parl.remote_class
class Actor:
    def __init__(self):
        super(Actor, self).__init__()
        self.space = Space()
    def f(self, x):
        return helper(x)
""",
}
PLACE

def run_cells(namespace):
    for name, text in CELLS.items():
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)  # as IPython does
        exec(compile(text, name, "exec"), namespace)
    actor = namespace["Actor"]()
    assert actor.f(2) == 0.5
    assert type(actor.space) is namespace["Space"]
    try:
        actor.f(0)
    except ZeroDivisionError as error:
        trace = error.remote_traceback
        assert "return 1 / x" in trace and "return helper(x)" in trace and "200.py" in trace, trace
    else:
        raise AssertionError

parl.connect(log_to_driver=False)
run_cells(globals())
in_a_module = types.ModuleType("made_at_run_time")
in_a_module.parl = parl
sys.modules["made_at_run_time"] = in_a_module
run_cells(vars(in_a_module))
print("ok")
'''


@pytest.mark.parametrize("place", ["", ELSEWHERE])
def test_classes_of_a_notebook_and_of_modules_without_a_file_travel_with_their_source(python, place):
    assert python("-c", NOTEBOOK.replace("PLACE", place)) == "ok\n"


# --- projects ---------------------------------------------------------------------------------------------

ENTRY = """
import sys
import parl_lite as parl
from pkg.a.b import Actor
PLACE
parl.connect(distributed_files=sys.argv[1:], log_to_driver=False)
first, second = Actor(), Actor()
print(first.report(), second.report() == first.report())
"""
B = """
import os
import parl_lite as parl
from ..c import VALUE
@parl.remote_class
class Actor:
    def __init__(self):
        from utils.space import Space
        self.n = Space().n
    def report(self):
        import extra
        with open("cfg.ini") as file:
            text = file.read().strip()
        return [VALUE, self.n, text, extra.__name__, os.path.exists("data.bin")]
"""


@pytest.fixture
def project(tmp_path) -> Path:
    folder = tmp_path / "proj"
    write(folder, pkg__a__b=B, pkg__c="VALUE = 'old'", utils__space="class Space:\n    n = 3\n", extra="", cfg="[x]")
    for package in ("pkg", "pkg/a", "utils"):
        (folder / package / "__init__.py").touch()
    with open(folder / "data.bin", "wb") as file:
        os.ftruncate(file.fileno(), 300 * 1024 * 1024)
    return folder


def test_a_project_on_this_machine_is_used_in_place(python, project):
    write(project, main=ENTRY.replace("PLACE", ""))
    assert python("proj/main.py") == "['old', 3, '[x]', 'extra', True] True\n"
    write(project, pkg__c="VALUE = 'edited'")
    assert python("proj/main.py") == "['edited', 3, '[x]', 'extra', True] True\n"


def test_a_project_reaches_another_machine(python, project):
    write(project, main=ENTRY.replace("PLACE", ELSEWHERE))
    files = ["cfg.ini", "pkg/**", "utils/*.py"]
    assert python("proj/main.py", *files) == "['old', 3, '[x]', 'extra', False] True\n"
    write(project, pkg__c="VALUE = 'edited'")
    assert python("proj/main.py", *files) == "['edited', 3, '[x]', 'extra', False] True\n"


def test_a_file_that_was_not_shipped_is_missed_by_its_name(python, project):
    write(project, main=ENTRY.replace("PLACE", ELSEWHERE))
    assert "No such file or directory: 'cfg.ini'" in python("proj/main.py", fails=True)
    assert "nothing.ini" in python("proj/main.py", "nothing.ini", fails=True)


OUTSIDE = """
import sys
sys.path.insert(0, "LIBRARY")
import parl_lite as parl
from outside import Actor, Value
PLACE
parl.connect(log_to_driver=False)
actor = Actor()
value = actor.twice(Value(2))
assert type(value) is Value and value.n == 4
try:
    actor.fail()
except ValueError as error:
    assert "raise ValueError('outside')" in error.remote_traceback
print("ok")
"""
LIBRARY = """
import parl_lite as parl
class Value:
    def __init__(self, n): self.n = n
class Base:
    def twice(self, value): return Value(value.n * 2)
@parl.remote_class
class Actor(Base):
    def twice(self, value): return super(Actor, self).twice(value)
    def fail(self): raise ValueError('outside')
"""


@pytest.mark.parametrize("place", ["", ELSEWHERE])
def test_a_module_outside_the_project_is_imported_here_and_sent_by_value_elsewhere(python, tmp_path, place):
    write(tmp_path / "library", outside=LIBRARY)
    write(tmp_path / "proj", main=OUTSIDE.replace("LIBRARY", str(tmp_path / "library")).replace("PLACE", place))
    assert python("proj/main.py") == "ok\n"


def test_a_module_that_fails_to_import_in_the_actor_says_so(python, tmp_path):
    text = """
        import parl_lite as parl, os
        if "PARL_LITE_JOB" in os.environ:
            raise RuntimeError("cannot be imported there")
        @parl.remote_class
        class Actor: ...
    """
    main = "import parl_lite as parl, broken\nparl.connect(log_to_driver=False)\nbroken.Actor()\n"
    write(tmp_path / "proj", main=main, broken=text)
    said = python("proj/main.py", fails=True)
    assert "SerializationError" in said and "cannot be imported there" in said and "line 4" in said

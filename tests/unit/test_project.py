"""The project as a whole: where its root is, how it reaches a job, which classes cannot. With real interpreters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from parl_lite import project as project_module
from parl_lite.errors import SerializationError
from parl_lite.project import Project, activate, find_folder, find_project, installed, pack, travels_by_value, unpack

LIMIT = 1 << 20

REPORT = """
import json, os
from parl_lite.project import find_project
project = find_project(limit=1 << 20)
print("REPORT" + json.dumps([project.root, [name for name, path in project.files], project.paths]))
"""


def write(folder: Path, **contents: str) -> None:
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(content))


def python(*arguments: str, cwd: Path, text: str = "", search: Sequence[Path] = ()) -> str:
    """Run the interpreter and return its output; PYTHONPATH is `search` alone."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, search))}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, input=text, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def report(*arguments: str, cwd: Path, text: str = "", search: Sequence[Path] = ()) -> tuple[str, list[str], list[str]]:
    """Return root, names of files and paths of the project that a script ending in REPORT finds."""
    output = python(*arguments, cwd=cwd, text=text, search=search)
    found = json.loads(output.partition("REPORT")[2].splitlines()[0])
    return (found[0], found[1], found[2])


def main_module(**attributes: object) -> ModuleType:
    module = ModuleType("__main__")
    vars(module).update(attributes)
    return module


# The root


def test_the_root_of_a_script_is_its_folder_whatever_the_current_directory(tmp_path: Path) -> None:
    write(tmp_path, **{"proj/main.py": REPORT, "proj/utils/space.py": "", "else/other.py": ""})
    root, files, paths = report("../proj/main.py", cwd=tmp_path / "else")
    assert (root, files) == (str(tmp_path / "proj"), ["main.py", "utils/space.py"])
    assert str(tmp_path / "else") not in paths


def test_the_root_of_a_linked_script_is_the_folder_of_the_script_itself(tmp_path: Path) -> None:
    write(tmp_path, **{"proj/main.py": REPORT})
    (tmp_path / "link.py").symlink_to("proj/main.py")
    assert report("link.py", cwd=tmp_path)[0] == str(tmp_path / "proj")


@pytest.mark.parametrize("name", ["pkg.main", "pkg.deep.main", "pkg"])
def test_the_root_of_a_module_is_the_folder_that_holds_its_package(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{"proj/pkg/main.py": REPORT, "proj/pkg/deep/main.py": REPORT, "proj/pkg/__main__.py": REPORT})
    here = report("-m", name, cwd=tmp_path / "proj")
    assert here[:2] == (str(tmp_path / "proj"), ["pkg/__main__.py", "pkg/deep/main.py", "pkg/main.py"])
    (tmp_path / "else").mkdir()
    assert report("-m", name, cwd=tmp_path / "else", search=[tmp_path / "proj"])[:2] == here[:2]


def test_the_root_of_a_folder_that_is_run_is_the_folder(tmp_path: Path) -> None:
    write(tmp_path, **{"proj/__main__.py": REPORT})
    assert report("proj", cwd=tmp_path)[0] == str(tmp_path / "proj")


def test_without_a_script_the_root_is_the_current_directory(tmp_path: Path) -> None:
    write(tmp_path, **{"a.py": ""})
    assert report("-c", REPORT, cwd=tmp_path)[:2] == (str(tmp_path), ["a.py"])
    assert report("-", cwd=tmp_path, text=REPORT)[:2] == (str(tmp_path), ["a.py"])
    assert report(cwd=tmp_path, text=REPORT)[:2] == (str(tmp_path), ["a.py"])


def test_below_pytest_the_root_is_the_current_directory(tmp_path: Path) -> None:
    test = f"def test_report():\n{textwrap.indent(REPORT, '    ')}"
    write(tmp_path, **{"tests/test_a.py": test, "pkg/a.py": ""})
    root, files, paths = report("-m", "pytest", "-sq", "-p", "no:cacheprovider", "tests/test_a.py", cwd=tmp_path)
    assert (root, files) == (str(tmp_path), ["pkg/a.py", "tests/test_a.py"])
    assert paths[0] == "tests"


def test_below_a_program_of_an_environment_the_root_is_the_current_directory(tmp_path: Path) -> None:
    write(tmp_path, **{"env/pyvenv.cfg": "", "env/bin/tool": REPORT, "bin/main.py": REPORT, "work/a.py": ""})
    assert report(str(tmp_path / "env" / "bin" / "tool"), cwd=tmp_path / "work")[:2] == (
        str(tmp_path / "work"),
        ["a.py"],
    )
    assert report(str(tmp_path / "bin" / "main.py"), cwd=tmp_path / "work")[0] == str(tmp_path / "bin")


def test_a_script_among_the_installed_packages_or_of_parl_lite_is_not_the_project(tmp_path: Path) -> None:
    write(tmp_path, **{"lib/site-packages/tool/main.py": "", "home/a.py": ""})
    scripts = [str(tmp_path / "lib/site-packages/tool/main.py"), os.__file__]
    ours = ModuleType("spec")
    vars(ours).update(name="parl_lite.agents.__main__")
    mains = [*(main_module(__file__=script) for script in scripts), main_module(__file__=__file__, __spec__=ours)]
    for main in mains:
        assert find_project(limit=LIMIT, main=main, cwd=str(tmp_path / "home"), path=()).root == str(tmp_path / "home")


def test_a_script_that_is_a_pipe_has_no_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "work").mkdir()
    main = main_module(__file__=str(tmp_path / "pipe"))
    assert find_project(limit=LIMIT, main=main, cwd=str(tmp_path / "work"), path=()).root == str(tmp_path / "work")


def test_below_home_and_temporary_folders_only_the_scripts_neighbours_are_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, **{"main.py": "", "helper.py": "", "other/work.py": "", "cfg.ini": ""})
    for where in ("home", "temporary"):
        project_module._shared_folders.cache_clear()
        with monkeypatch.context() as patch:
            patch.setenv("HOME", str(tmp_path if where == "home" else tmp_path / "other"))
            patch.setattr(tempfile, "tempdir", str(tmp_path if where == "temporary" else tmp_path / "other"))
            main = main_module(__file__=str(tmp_path / "main.py"))
            found = find_project(["cfg.ini"], limit=LIMIT, main=main, path=())
        assert [name for name, _ in found.files] == ["cfg.ini", "helper.py", "main.py"]
    project_module._shared_folders.cache_clear()


# What is found


def test_paths_are_the_users_own_in_order_and_relative_below_the_root(tmp_path: Path) -> None:
    write(tmp_path, **{"proj/src/a.py": "", "shared/b.py": "", "env/bin/tool": "", "env/pyvenv.cfg": ""})
    path = [
        str(tmp_path / "env" / "bin"),
        str(tmp_path / "shared"),
        "",
        os.path.dirname(os.__file__),
        str(tmp_path / "proj" / "src"),
        str(tmp_path / "missing"),
        str(tmp_path / "env/lib/python3/site-packages"),
        str(tmp_path / "shared" / "."),
    ]
    found = find_project(limit=LIMIT, main=main_module(), cwd=str(tmp_path / "proj"), path=path)
    assert found.paths == (str(tmp_path / "shared"), "src")


def test_a_file_that_vanishes_before_it_is_read_is_passed_over_unless_it_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, **{"main.py": "", "gone.py": ""})
    read_file = project_module.read_file

    def vanish(path: str) -> tuple[bytes, bool]:
        if path.endswith("gone.py"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return read_file(path)

    monkeypatch.setattr(project_module, "read_file", vanish)
    found = find_project(limit=LIMIT, main=main_module(), cwd=str(tmp_path), path=())
    assert [name for name, _ in found.files] == ["main.py"]
    with pytest.raises(SerializationError, match=r"gone\.py \(of distributed_files\) cannot be read: No such file"):
        find_project(["gone.py"], limit=LIMIT, main=main_module(), cwd=str(tmp_path), path=())


def test_the_folder_is_found_without_a_look_at_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, **{"main.py": "", "src/a.py": "", "elsewhere/b.py": ""})
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "src"), str(tmp_path / "elsewhere")])
    monkeypatch.setitem(sys.modules, "__main__", main_module(__file__=str(tmp_path / "main.py")))
    found = find_project(limit=LIMIT)
    monkeypatch.setattr(os, "scandir", None)
    assert find_folder() == (found.root, found.paths) == (str(tmp_path), ("src", "elsewhere"))


def test_one_pattern_may_be_given_as_a_word(tmp_path: Path) -> None:
    write(tmp_path, **{"cfg.ini": ""})
    found = find_project("cfg.ini", limit=LIMIT, main=main_module(), cwd=str(tmp_path), path=())
    assert found.files == (("cfg.ini", str(tmp_path / "cfg.ini")),)


def test_the_root_serves_in_place_unless_files_come_from_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, **{"proj/main.py": "", "cfg.ini": ""})
    main = main_module(__file__=str(tmp_path / "proj" / "main.py"))
    assert find_project(limit=LIMIT, main=main, cwd=str(tmp_path), path=()).in_place
    assert not find_project(["cfg.ini"], limit=LIMIT, main=main, cwd=str(tmp_path), path=()).in_place


# From here to a job

JOB = """
import json, sys
from parl_lite.project import activate
activate(sys.argv[1], json.loads(sys.argv[2]))
from pkg.a.b import Actor
print(json.dumps(Actor().look()))
"""


def write_project(root: Path, value: int) -> None:
    write(
        root,
        **{
            "main.py": "print('the script runs')\nraise SystemExit('again')",
            "pkg/__init__.py": "",
            "pkg/c.py": f"class D:\n    value = {value}\n",
            "pkg/a/__init__.py": "",
            "pkg/a/b.py": """
                from ..c import D

                class Actor:
                    def look(self):
                        from utils.space import Space
                        import mylib
                        return [D.value, Space.size, mylib.name, open("cfg.ini").read()]
                """,
            "utils/__init__.py": "",
            "utils/space.py": "class Space:\n    size = 3\n",
            "src/mylib.py": "name = 'mine'",
            "cfg.ini": "[cfg]",
        },
    )


def ship(root: Path, cache: Path) -> tuple[Project, Path]:
    main = main_module(__file__=str(root / "main.py"))
    found = find_project(["cfg.ini"], limit=LIMIT, main=main, cwd=str(cache), path=[str(root), str(root / "src")])
    folder = cache / found.digest
    if not installed(str(folder)):
        unpack(pack(found), str(folder), limit=LIMIT)
    return found, folder


def test_a_job_imports_the_users_packages_and_opens_the_users_files(tmp_path: Path) -> None:
    write(tmp_path, **{"decoy/utils/__init__.py": "raise ImportError('the wrong utils')", "cache/here": ""})
    write_project(tmp_path / "proj", 1)
    found, folder = ship(tmp_path / "proj", tmp_path / "cache")
    write_project(tmp_path / "proj", 7)
    job = ["-P", "-c", JOB] if sys.version_info >= (3, 11) else ["-c", JOB]

    def look(where: Path) -> object:
        output = python(*job, str(where), json.dumps(found.paths), cwd=tmp_path, search=[tmp_path / "decoy"])
        return json.loads(output)  # and nothing else was printed: the script did not run

    assert look(folder) == [1, 3, "mine", "[cfg]"]
    edited, new_folder = ship(tmp_path / "proj", tmp_path / "cache")
    assert edited.digest != found.digest
    assert look(new_folder) == look(tmp_path / "proj") == [7, 3, "mine", "[cfg]"]


def test_the_same_content_elsewhere_is_the_same_project(tmp_path: Path) -> None:
    write(tmp_path, **{"cache/here": ""})
    for name in ("one", "two"):
        write_project(tmp_path / name, 1)
    assert ship(tmp_path / "one", tmp_path / "cache")[1] == ship(tmp_path / "two", tmp_path / "cache")[1]


def test_activate_puts_the_root_first_and_paths_that_exist_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, **{"root/src/a.py": "", "shared/b.py": "", "known/c.py": ""})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["lib", str(tmp_path / "known"), str(tmp_path / "root")])
    paths = ["src", str(tmp_path / "missing"), str(tmp_path / "shared"), str(tmp_path / "known")]
    for _ in range(2):
        activate(str(tmp_path / "root"), paths)
    root = str(tmp_path / "root")
    assert sys.path == [root, root + "/src", str(tmp_path / "shared"), "lib", str(tmp_path / "known")]
    assert os.getcwd() == root


def test_activate_names_a_root_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(SerializationError, match=r"the project's folder .*/gone cannot be entered: No such file"):
        activate(str(tmp_path / "gone"), ())


# Classes


def test_modules_of_the_project_travel_by_name_and_others_by_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, **{"root/pkg/a.py": "", "root/pkg/__init__.py": "", "root/src/lib.py": "", "elsewhere/mod.py": ""})
    write(tmp_path, **{"root/data/gen.py": "", "root/.parlignore": "data/", "root/twin.py": "", "root/src/twin.py": ""})
    files = {
        "pkg": "root/pkg/__init__.py",
        "pkg.a": "root/pkg/a.py",
        "lib": "root/src/lib.py",
        "mod": "elsewhere/mod.py",
        "data.gen": "root/data/gen.py",
        "a": "root/pkg/a.py",
        "twin": "root/src/twin.py",
    }
    for name, file in files.items():
        module = ModuleType(name)
        module.__file__ = str(tmp_path / file)
        monkeypatch.setitem(sys.modules, name, module)
    path = [str(tmp_path / "root" / "src"), str(tmp_path / "elsewhere")]
    found = find_project(limit=LIMIT, main=main_module(), cwd=str(tmp_path / "root"), path=path)
    by_value = {name: travels_by_value(name, found) for name in files}
    assert [name for name, answer in by_value.items() if not answer] == ["pkg", "pkg.a", "lib"]


def test_libraries_travel_by_name_and_the_script_by_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_project(limit=LIMIT, main=main_module(), cwd=str(tmp_path), path=())
    monkeypatch.setitem(sys.modules, "numpy.made_at_run_time", ModuleType("numpy.made_at_run_time"))
    monkeypatch.setitem(sys.modules, "made_at_run_time", ModuleType("made_at_run_time"))
    import numpy.linalg

    libraries = ["json.decoder", "builtins", "sys", numpy.linalg.__name__, "numpy.made_at_run_time", "parl_lite.errors"]
    assert [name for name in libraries if travels_by_value(name, found)] == []
    others = ["__main__", "__mp_main__", "never_heard_of", "made_at_run_time"]
    assert [name for name in others if not travels_by_value(name, found)] == []

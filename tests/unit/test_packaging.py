"""setup.py, constraints.txt and the Makefile agree: what the environment is made of is pinned, once."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def direct_requirements() -> list[Requirement]:
    """Return what setup.py asks for when `.[dev]` is installed."""
    lists = [node for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())) if isinstance(node, ast.keyword | ast.Assign)]
    extras = ("ATARI", "BOX2D", "MUJOCO", "TENSORBOARD", "DEV")
    wanted = [node for node in lists if getattr(node, "arg", "") == "install_requires" or is_named(node, *extras)]
    texts = [text.value for node in wanted for text in node.value.elts if isinstance(text, ast.Constant)]  # type: ignore[attr-defined]
    return [Requirement(text) for text in texts]


def is_named(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Assign) and any(getattr(target, "id", "") in names for target in node.targets)


def pins() -> dict[str, str]:
    """Return {package: version} of constraints.txt."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pinned = [Requirement(line) for line in lines if line]
    return {one.name: re.fullmatch(r"==([\w.]+)", str(one.specifier)).group(1) for one in pinned}  # type: ignore[union-attr]


def test_every_direct_requirement_is_pinned_within_its_bounds() -> None:
    requirements = direct_requirements()
    assert {"pyzmq", "torch", "pytest"} <= {one.name for one in requirements}
    pinned = pins()
    wrong = [f"{one} but {pinned.get(one.name)}" for one in requirements if pinned.get(one.name, "") not in one.specifier]
    assert wrong == []


def test_the_makefile_installs_the_pinned_torch() -> None:
    assert f'install -c constraints.txt "torch=={pins()["torch"]}"' in (ROOT / "Makefile").read_text()


def test_every_package_of_parl_lite_is_installed() -> None:
    inner = [path.parent for path in (ROOT / "parl_lite").glob("*/__init__.py") if not path.parent.is_symlink()]
    assert {path.name for path in inner} == {"algorithms", "utils"}
    text = (ROOT / "setup.py").read_text()
    assert [path.name for path in inner if f'"parl_lite.{path.name}"' not in text] == []

"""Every limit has a default, an explanation, and an environment variable that is checked."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools

import pytest

from parl_lite import settings
from parl_lite.settings import Settings

FIELDS = dataclasses.fields(Settings)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in FIELDS:
        monkeypatch.delenv(f"PARL_LITE_{field.name.upper()}", raising=False)


def test_without_variables_the_defaults_hold() -> None:
    assert Settings.from_environment() == Settings()


@pytest.mark.parametrize("name", [field.name for field in FIELDS])
def test_every_limit_can_be_set_by_its_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PARL_LITE_{name.upper()}", "7")
    changed = Settings.from_environment()
    assert changed == dataclasses.replace(Settings(), **{name: 7})
    assert type(getattr(changed, name)) is type(getattr(Settings(), name))


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("JOB_GRACE", "soon", "PARL_LITE_JOB_GRACE='soon' is not a number"),
        ("JOB_GRACE", "", "PARL_LITE_JOB_GRACE='' is not a number"),
        ("LOG_TAIL", "1.5", "PARL_LITE_LOG_TAIL='1.5' is not a whole number"),
        ("LOG_TAIL", "0", "PARL_LITE_LOG_TAIL='0' must be above 0, and finite"),
        ("JOB_GRACE", "-1", "PARL_LITE_JOB_GRACE='-1' must be above 0, and finite"),
        ("JOB_GRACE", "nan", "PARL_LITE_JOB_GRACE='nan' must be above 0, and finite"),
        ("JOB_GRACE", "inf", "PARL_LITE_JOB_GRACE='inf' must be above 0, and finite"),
    ],
)
def test_a_bad_value_is_named_with_its_variable(name: str, text: str, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PARL_LITE_{name}", text)
    with pytest.raises(ValueError) as caught:
        Settings.from_environment()
    assert str(caught.value) == complaint


def test_settings_are_never_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().job_grace = 1.0  # type: ignore[misc]


def test_every_limit_is_explained_below_it() -> None:
    (body,) = (node.body for node in ast.parse(inspect.getsource(settings)).body if isinstance(node, ast.ClassDef))
    below = {ast.unparse(one.target): two for one, two in itertools.pairwise(body) if isinstance(one, ast.AnnAssign)}
    assert [*below] == [field.name for field in FIELDS]
    assert all(isinstance(node, ast.Expr) and ast.unparse(node).strip("'\"").endswith(".") for node in below.values())


def test_a_silent_peer_is_asked_several_times_before_it_is_taken_for_dead() -> None:
    limits = Settings()
    assert limits.liveness_timeout >= 3 * limits.heartbeat_interval
    assert limits.probe_interval < limits.rejoin_grace < limits.master_patience

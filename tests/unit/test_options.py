"""Settings as command line options, their bounds, and the command line of the algorithms."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import pytest
from click.testing import CliRunner

from parl_lite.agents import training
from parl_lite.agents.__main__ import command_of, main
from parl_lite.agents.bounds import Bounds, Count, Fraction, Positive, check
from parl_lite.agents.options import GroupedCommand, field_docs, given_values, options_from
from parl_lite.agents.records import RunRecord
from parl_lite.agents.registry import ANY_ACTIONS, Entry, load, summaries
from parl_lite.agents.settings import RunSettings, TrajectorySettings
from parl_lite.errors import ParlError


@dataclass(frozen=True, kw_only=True)
class Base:
    """Where it runs. More about that."""

    n_actors: Count = 2
    """How many."""
    limit: float | None = None
    """May be missing."""


@dataclass(frozen=True, kw_only=True)
class Settings(Base):
    """For the tests."""

    lambda_: Fraction = 0.9
    """A keyword of Python's."""
    fast: bool = False
    """A switch."""
    shape: Literal["round", "flat"] = "flat"
    """A choice."""
    n_actors: Count = 3


@click.command(cls=GroupedCommand)
@click.option("--where", help="No setting.")
@options_from(Settings)
@click.pass_context
def command(context, where, **values) -> None:
    click.echo(repr(Settings(**values)))
    click.echo(given_values(context, Settings))


def invoke(*arguments: str) -> str:
    return CliRunner().invoke(command, arguments).output.strip()


def test_every_field_is_an_option_with_its_default():
    assert invoke() == f"{Settings()!r}\n{{}}"
    given = invoke("--n-actors", "7", "--lambda", "0.5", "--fast", "--shape", "round", "--limit", "2")
    assert given.splitlines()[0] == repr(Settings(n_actors=7, lambda_=0.5, fast=True, shape="round", limit=2.0))


def test_what_the_user_wrote_is_told_from_defaults():
    assert eval(invoke("--lambda", "0.9", "--no-fast").splitlines()[1]) == {"lambda_": 0.9, "fast": False}


def test_what_is_of_another_type_is_refused():
    assert "'many' is not a valid int" in invoke("--n-actors", "many")
    assert "'square' is not one of 'round', 'flat'" in invoke("--shape", "square")


def test_the_line_under_a_field_is_its_help_also_where_a_default_was_changed():
    assert field_docs(Settings) == {
        "n_actors": "How many.",
        "limit": "May be missing.",
        "lambda_": "A keyword of Python's.",
        "fast": "A switch.",
        "shape": "A choice.",
    }


def test_options_stand_under_the_class_that_brought_them_in():
    text = [" ".join(part.split()) for part in invoke("--help").split("\n\n")]
    assert text[-3].startswith("Options: --where TEXT No setting.")
    assert text[-2].startswith("For the tests: --lambda FLOAT A keyword of Python's. [default: 0.9]")
    assert text[-1].startswith("Where it runs: --n-actors INTEGER How many. [default: 3] --limit FLOAT May be missing.")


def test_a_field_without_a_line_is_an_error():
    @dataclass
    class Bare:
        n_actors: int = 2

    with pytest.raises(ValueError, match="Bare has no docstring line under n_actors"):
        field_docs(Bare)


# Bounds


@dataclass(frozen=True, kw_only=True)
class Bounded:
    count: Count = 1
    rate: Positive = 0.5
    share: Fraction | None = None
    part: Annotated[float, Bounds(0, 1, above=True)] = 1.0
    kind: Literal["a", "b"] = "a"
    name: str = ""
    fast: bool = False


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"count": 0}, "count is 0: it must be at least 1."),
        ({"count": 1.5}, "count is 1.5: it must be a whole number."),
        ({"count": True}, "count is True: it must be a whole number."),
        ({"rate": 0.0}, "rate is 0.0: it must be above 0."),
        ({"rate": float("nan")}, "rate is nan: it must be a number."),
        ({"share": 1.5}, "share is 1.5: it must be from 0 to 1."),
        ({"part": 0}, "part is 0: it must be above 0 and at most 1."),
        ({"kind": "c"}, "kind is 'c': it must be one of a, b."),
        ({"name": 3}, "name is 3: it must be text."),
        ({"fast": 1}, "fast is 1: it must be True or False."),
    ],
)
def test_an_impossible_value_is_named_with_what_is_possible(values, words):
    with pytest.raises((ValueError, TypeError)) as info:
        check(Bounded(**values))
    assert str(info.value) == words


def test_possible_values_pass():
    check(Bounded(count=3, rate=1, share=0.0, part=0.5, kind="b", fast=True))


def test_settings_of_a_run_are_checked_when_they_are_made():
    with pytest.raises(ValueError, match="n_actors is 0: it must be at least 1"):
        RunSettings(n_actors=0)


# Entries


@dataclass(frozen=True, kw_only=True)
class TunedSettings(TrajectorySettings):
    """Tuned."""

    rate: Positive = 1.0
    """A rate."""


def entry(**changes) -> Entry:
    made = {"name": "tuned", "settings": TunedSettings, "algorithm": object, "wiring": object, "make_model": object}
    tuned = {"ALE/Pong-v5": {"rate": 3.0}, "ALE/*": {"rate": 2.0, "n_actors": 8}}
    return Entry(**{**made, "tuned": tuned, **changes})


def test_what_is_given_counts_more_than_what_is_tuned_and_a_name_more_than_a_pattern():
    pong = entry().settings_from({"env": "ALE/Pong-v5"})
    assert (pong.rate, pong.n_actors) == (3.0, 8)
    assert entry().settings_from({"env": "ALE/Pong-v5", "n_actors": 1}).n_actors == 1
    assert entry().settings_from({"env": "ALE/Qbert-v5"}).rate == 2.0
    assert entry().settings_from({}).rate == 1.0


def test_actions_that_it_cannot_choose_are_refused_with_the_algorithms_that_can():
    words = "^tuned chooses discrete actions, and those of Pendulum-v1 are box: choose one of .*impala"
    with pytest.raises(ParlError, match=words):
        entry(actions=frozenset({"discrete"})).check_actions("box", "Pendulum-v1")
    entry(actions=ANY_ACTIONS).check_actions("box", "Pendulum-v1")


def test_an_unknown_algorithm_is_answered_with_those_there_are():
    with pytest.raises(ParlError, match=r"^there is no algorithm 'impalla': choose one of .*impala.*, or name your own"):
        load("impalla")


@pytest.mark.parametrize(
    ("name", "words"),
    [("no_such_module:ENTRY", "cannot be loaded: No module named"), ("json:loads", "json:loads is a function: it must be")],
)
def test_a_foreign_entry_that_is_none_says_so(name, words):
    with pytest.raises(ParlError, match=words):
        load(name)


def test_a_foreign_entry_is_found_by_its_module():
    assert load("parl_lite.agents.impala:ENTRY") is load("impala")


# The command line


@pytest.mark.parametrize("name", summaries())
def test_every_algorithm_has_an_entry_with_possible_settings_and_a_command(name):
    found = load(name)
    assert found.name == name
    for env in found.tuned:
        assert found.settings_from({"env": env}).env == env
    text = CliRunner().invoke(command_of(found), ["--help"]).output
    for field in fields(found.settings):
        assert f"--{field.name.strip('_').replace('_', '-')}" in text


def test_the_list_of_algorithms_needs_no_torch():
    script = (
        "import sys; from click.testing import CliRunner; from parl_lite.agents.__main__ import main\n"
        "print(CliRunner().invoke(main, ['--help']).output); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "impala" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["impala", "--env", "CartPol-v1"], "there is no environment CartPol-v1: did you mean CartPole-v1"),
        (["impala", "--env", "xyzzy"], "there is no environment xyzzy: Environment `xyzzy` doesn't exist."),
        (["impala", "--n-actors", "0"], "n_actors is 0: it must be at least 1."),
        (["impala", "--resume"], "has no run to go on with: start one without --resume."),
        (["impalla"], "there is no algorithm 'impalla'"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_a_failure(tmp_path, arguments, words):
    where = ["--logdir", str(tmp_path / "run")] if arguments[0] == "impala" else []
    result = CliRunner().invoke(main, [*arguments, *where])
    assert result.exit_code != 0
    assert words in " ".join(result.output.split())
    assert not (tmp_path / "run").exists()


def test_an_interrupted_run_ends_as_shells_expect_and_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(entry: Entry, settings: Any, *, logdir: Path, target: float, **how: Any) -> dict[str, Any]:
        return RunRecord(logdir, entry.name, settings, target).finish("interrupted")

    monkeypatch.setattr(training, "run", interrupted)
    folder = tmp_path / "my runs"
    arguments = ["parl_lite.agents.ppo:ENTRY", "--gamma=0.9", "--logdir", str(folder), "--address=10.0.0.1:8010", "--target=9"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 130
    assert result.output.splitlines()[-1] == (
        f"  go on with: python -m parl_lite.agents parl_lite.agents.ppo:ENTRY '--logdir={folder}' --resume "
        f"--address=10.0.0.1:8010 --target=9.0"
    )


def test_ctrl_c_at_once_ends_as_shells_expect_too(tmp_path, monkeypatch):
    def interrupted(*args: Any, **how: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "run", interrupted)
    assert CliRunner().invoke(main, ["ppo", "--logdir", str(tmp_path)]).exit_code == 130

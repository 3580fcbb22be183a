"""Settings as command line options, and the command line of the algorithms."""

from __future__ import annotations

from dataclasses import dataclass, fields

import click
import pytest
from click.testing import CliRunner

from parl_lite.agents.__main__ import ALGORITHMS, main
from parl_lite.agents.options import field_docs, options_from


@dataclass(frozen=True)
class Settings:
    """For the tests."""

    n_actors: int = 2
    """How many."""
    lambda_: float = 0.9
    """A keyword of Python's."""
    fast: bool = False
    """A switch."""


@click.command()
@options_from(Settings)
def command(**values) -> None:
    click.echo(repr(Settings(**values)))


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments)
    return result.output.strip()


def test_every_field_is_an_option_with_its_default():
    assert invoke() == repr(Settings())
    assert invoke("--n-actors", "7", "--lambda", "0.5", "--fast") == repr(Settings(7, 0.5, True))
    assert "'many' is not a valid int" in invoke("--n-actors", "many")


def test_the_line_under_a_field_is_its_help():
    assert field_docs(Settings) == {"n_actors": "How many.", "lambda_": "A keyword of Python's.", "fast": "A switch."}
    text = " ".join(invoke("--help").split())
    assert "--n-actors INTEGER How many. [default: 2]" in text


def test_a_field_without_a_line_is_an_error():
    @dataclass
    class Bare:
        n_actors: int = 2

    with pytest.raises(ValueError, match="Bare has no docstring line under n_actors"):
        field_docs(Bare)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_command_with_its_settings(name):
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    for field in fields(ALGORITHMS[name][0]):
        assert f"--{field.name.strip('_').replace('_', '-')}" in result.output


def test_an_unknown_environment_is_one_sentence_and_a_failure(tmp_path):
    result = CliRunner().invoke(main, ["impala", "--env", "NoSuchEnv-v0", "--logdir", str(tmp_path / "run")])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert "NoSuchEnv" in result.output
    assert not (tmp_path / "run").exists()

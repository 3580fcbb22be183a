"""`python -m parl_lite.agents ALGO --env ID ...`: train from the command line. Knows which algorithms there are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import gymnasium
import torch

from parl_lite.errors import ParlError
from parl_lite.model import Model

from .envs import Spaces
from .impala import IMPALA, ImpalaSettings
from .networks import actor_critic
from .options import options_from
from .records import summary_text
from .training import run


def _two_mlps(settings: Any) -> Callable[[Spaces], Model]:
    return partial(actor_critic, settings.hidden_size)


ALGORITHMS = {"impala": (ImpalaSettings, _two_mlps, IMPALA)}
"""By name: settings, what makes a maker of models, the algorithm."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Train an agent with actors on this machine, or on a cluster."""


def _command(name: str) -> click.Command:
    settings_class, model_maker, algorithm = ALGORITHMS[name]

    @click.option("--logdir", type=click.Path(path_type=Path), help="Folder of the run  [default: runs/ALGO-ENV-SEED]")
    @click.option("--address", help="HOST:PORT of a cluster; without, a private one on this machine.")
    @click.option("--target", type=float, help="Mean return to stop at  [default: the environment's own, if it has one]")
    @click.option("--require-target", is_flag=True, help="Exit with 1 if the target was not reached.")
    @options_from(settings_class)
    def command(logdir: Path | None, address: str | None, target: float | None, require_target: bool, **values: Any) -> None:
        torch.set_num_threads(1)  # small networks: a second thread costs more than it brings, and actors need the cores
        settings = settings_class(**values)
        logdir = logdir or Path("runs") / f"{name}-{settings.env.replace('/', '-')}-{settings.seed}"
        try:
            target = _threshold(settings.env) if target is None else target
            model = model_maker(settings)
            summary = run(name, settings, model, algorithm, logdir=logdir, address=address, target=target)
        except (ParlError, gymnasium.error.Error) as error:
            raise click.ClickException(str(error)) from error
        click.echo(summary_text(summary, logdir))
        sys.exit(require_target and summary["solved_at"] is None)

    return click.command(name, help=f"Train with {(algorithm.__doc__ or name).splitlines()[0]}")(command)


def _threshold(env: str) -> float | None:
    """Return the mean return at which the environment's makers call it solved."""
    return gymnasium.spec(env).reward_threshold


for _name in ALGORITHMS:
    main.add_command(_command(_name))

if __name__ == "__main__":
    main()

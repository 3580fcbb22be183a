"""`python -m parl_lite.agents ALGO --env ID ...`: train from the command line. Loads only the algorithm asked for."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from parl_lite.errors import ParlError

from .options import GroupedCommand, given_values, options_from
from .registry import load, summaries

if TYPE_CHECKING:
    from .registry import Entry


INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C, as shells have it."""


class Algorithms(click.Group):
    """One command for each algorithm; its options are known when it is loaded."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return list(summaries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Return the command of an algorithm; raises UsageError with the names there are."""
        try:
            return command_of(load(cmd_name))
        except ParlError as error:
            raise click.UsageError(str(error)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each algorithm, without loading it."""
        with formatter.section("Algorithms"):
            formatter.write_dl(list(summaries().items()))


@click.command(cls=Algorithms, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def main() -> None:
    """Train an agent with actors on this machine, or on a cluster. ALGO --help lists the settings of an algorithm."""


def command_of(entry: Entry) -> click.Command:
    """Return the command that trains with an algorithm."""

    @click.command(entry.name, cls=GroupedCommand, help=f"Train with {(entry.algorithm.__doc__ or entry.name).splitlines()[0]}")
    @click.option("--logdir", type=click.Path(path_type=Path), help="Folder of the run  [default: runs/ALGO-ENV-SEED]")
    @click.option("--address", help="HOST:PORT of a cluster; without, a private one on this machine.")
    @click.option("--target", type=float, help="Mean return to stop at  [default: the environment's own, if it has one]")
    @click.option("--require-target", is_flag=True, help="Exit with 1 if the target was not reached.")
    @click.option("--resume", is_flag=True, help="Go on with the run in the folder, from its newest checkpoint.")
    @click.option("--overwrite", is_flag=True, help="Replace a run in the folder that was cut short.")
    @click.option("--tensorboard/--no-tensorboard", default=True, help="Write for TensorBoard, where tensorboardX is installed.")
    @click.option("--video", is_flag=True, help="Film an episode at the end.")
    @options_from(entry.settings)
    @click.pass_context
    def command(context: click.Context, /, logdir: Path | None, require_target: bool, **options: Any) -> None:
        try:
            summary = _train(entry, given_values(context, entry.settings), logdir, options)
        except ParlError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        if summary["stopped"] == "interrupted":
            sys.exit(INTERRUPTED)
        sys.exit(require_target and summary["solved_at"] is None)

    made: click.Command = command
    return made


def _train(entry: Entry, given: dict[str, Any], logdir: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    from .environments import target_of  # imports gymnasium and torch, which --help does without
    from .records import summary_text
    from .run_folder import RunFolder
    from .training import run

    logging.basicConfig(format="%(message)s")
    settings = _settings(entry, given)
    logdir = logdir or Path("runs") / f"{entry.name}-{settings.env.replace('/', '-').replace(':', '-')}-{settings.seed}"
    if options["resume"]:
        saved = RunFolder(logdir).saved_settings(entry.name)
        settings = _checked(lambda values: entry.settings(**values), {**saved, **given})
    target = target_of(settings.env) if options["target"] is None else options["target"]
    how = {name: options[name] for name in ("address", "resume", "overwrite", "tensorboard", "video")}
    summary = run(entry, settings, logdir=logdir, target=target, **how)
    click.echo(summary_text(summary, logdir))
    if summary["stopped"] == "interrupted":
        click.echo(f"  go on with: {_resuming(logdir, options)}")
    return summary


def _resuming(logdir: Path, options: dict[str, Any]) -> str:
    """Return the command that goes on with a run; its settings are in the folder, all others are repeated."""
    words = ["python", "-m", "parl_lite.agents", str(click.get_current_context().info_name), f"--logdir={logdir}", "--resume"]
    words += [f"--{name}={options[name]}" for name in ("address", "target") if options[name] is not None]
    return shlex.join(words)


def _settings(entry: Entry, given: dict[str, Any]) -> Any:
    """Return the settings of a new run, and say which of them are tuned."""
    settings = _checked(entry.settings_from, given)
    tuned = {name: value for name, value in entry.tuned_for(settings.env).items() if name not in given}
    if tuned:
        click.echo(f"tuned for {settings.env}: {', '.join(f'{name} {value}' for name, value in tuned.items())}")
    return settings


def _checked(make: Callable[[dict[str, Any]], Any], values: dict[str, Any]) -> Any:
    try:
        return make(values)
    except (ValueError, TypeError) as error:
        raise ParlError(str(error)) from error


if __name__ == "__main__":
    main()

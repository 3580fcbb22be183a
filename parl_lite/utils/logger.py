"""PARL's logger: lines on standard output and, after `set_dir`, in a file. Touches no logger but its own.

The lines go through the logger `parl_lite.script` of the standard library's logging, which passes none on: a program
that sets up logging itself prints them once.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import TextIO

DEBUG, INFO, WARNING, ERROR, CRITICAL = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL

_MARKS = {"DEBUG": " DEBUG", "WARNING": " WRN", "ERROR": " ERR", "CRITICAL": " ERR"}
_FILE = "log.log"


class _Formatter(logging.Formatter):
    """[12-24 18:00:00 MainThread @train.py:12] message, with a mark for all levels but INFO."""

    def __init__(self) -> None:
        super().__init__("[%(asctime)s %(threadName)s @%(filename)s:%(lineno)d]%(mark)s %(message)s", "%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.mark = _MARKS.get(record.levelname, "")
        return super().formatMessage(record)


class _Console(logging.StreamHandler[TextIO]):
    """Writes to what sys.stdout is at that moment, which notebooks and tests exchange."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(_Formatter())

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stdout


def _own_logger() -> logging.Logger:
    logger = logging.getLogger("parl_lite.script")
    logger.propagate = False
    logger.setLevel(DEBUG)
    if not logger.handlers:
        logger.addHandler(_Console())
    return logger


_logger = _own_logger()

debug, info, warning, error, critical = _logger.debug, _logger.info, _logger.warning, _logger.error, _logger.critical
exception, setLevel = _logger.exception, _logger.setLevel
warn = _logger.warning


def set_level(level: int | str) -> None:
    """Print and write only what is at least as grave: "INFO", `logger.ERROR`, ..."""
    _logger.setLevel(level)


def set_dir(dirname: str | Path) -> None:
    """Write all lines from now on to `log.log` in this folder, too, after what is there; nothing is ever deleted."""
    folder = Path(dirname)
    folder.mkdir(parents=True, exist_ok=True)
    for handler in _file_handlers():
        _logger.removeHandler(handler)
        handler.close()
    handler = logging.FileHandler(folder / _FILE, encoding="utf-8")
    handler.setFormatter(_Formatter())
    _logger.addHandler(handler)


def get_dir() -> str | None:
    """Return the folder that was set, or None."""
    return next((str(Path(handler.baseFilename).parent) for handler in _file_handlers()), None)


def auto_set_dir(action: str | None = None) -> str:
    """Set the folder train_log/NAME_OF_THE_SCRIPT, and return it.

    Args:
        action: what to do when there is something in it: "k" or None go on in it; "n" takes a new one, with the time in
            its name; "q" raises FileExistsError; "d" goes on in it, too, for nothing is ever deleted here.
    """
    script = getattr(sys.modules["__main__"], "__file__", None)
    folder = Path("train_log") / (Path(script).stem if script else "session")
    if folder.is_dir() and any(folder.iterdir()):
        if action == "n":
            folder = folder.with_name(folder.name + time.strftime("-%m%d-%H%M%S"))
        elif action == "q":
            raise FileExistsError(f"{folder} has files in it already: move them away, or call auto_set_dir('n')")
        elif action == "d":
            warning("%s has files in it already, which stay", folder)
    set_dir(folder)
    return str(folder)


def _file_handlers() -> list[logging.FileHandler]:
    return [handler for handler in _logger.handlers if isinstance(handler, logging.FileHandler)]

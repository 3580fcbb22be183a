"""Which algorithms there are, and what each is made of. Knows their names without loading them.

An algorithm NAME is a module agents/NAME.py that ends with `ENTRY = Entry(...)`. Nothing else has to be told of it:
this module looks for such lines in the text of the files, so that a list of names needs no torch. An algorithm of
somebody else is named as "MODULE:ENTRY".
"""

from __future__ import annotations

import ast
import fnmatch
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parl_lite.errors import ParlError

if TYPE_CHECKING:
    from parl_lite.algorithm import Algorithm
    from parl_lite.model import Model

    from .collector import Policy
    from .spaces import Spaces
    from .wirings.wiring import Wiring

_MARK = re.compile(r"^ENTRY = Entry\(", re.MULTILINE)


ANY_ACTIONS = frozenset({"discrete", "multi_discrete", "multi_binary", "box"})
"""Kinds of actions that `spaces.py` knows."""
DISCRETE_ACTIONS = frozenset({"discrete"})
CONTINUOUS_ACTIONS = frozenset({"box"})


@dataclass(frozen=True)
class Entry:
    """What an algorithm is made of."""

    name: str
    """As on the command line and in the summary of a run."""
    settings: type
    """Its dataclass, derived from one in settings.py."""
    algorithm: Callable[[Model, Any], Algorithm]
    """Makes the algorithm from its model and settings; usually the class."""
    wiring: type[Wiring]
    """How its actors and its learner work together."""
    make_model: Callable[[Any, Spaces], Model]
    """Makes the model from settings and spaces; called in the actors, too, so it must be picklable."""
    make_policy: Callable[..., Policy] | None = None
    """Makes what acts with the algorithm, of (algorithm, number of environments, greedy=...), see `acting.py`; without, actors
    and evaluations draw from the distribution that the model has."""
    actions: frozenset[str] = ANY_ACTIONS
    """Kinds of actions it can choose: see `spaces.py`."""
    tuned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values of settings by environment, or by a pattern as "ALE/*", for what is not given explicitly."""

    def tuned_for(self, env: str) -> dict[str, Any]:
        """Return the tuned values for an environment; its own name counts more than a pattern."""
        patterns = [pattern for pattern in self.tuned if fnmatch.fnmatchcase(env, pattern)]
        patterns.sort(key=lambda pattern: pattern == env)
        return {name: value for pattern in patterns for name, value in self.tuned[pattern].items()}

    def settings_from(self, given: Mapping[str, Any]) -> Any:
        """Return settings with what is given explicitly, then what is tuned, then the defaults.

        Raises ValueError or TypeError that names a field with an impossible value.
        """
        env = given.get("env", self.settings.env)  # type: ignore[attr-defined]
        return self.settings(**{**self.tuned_for(env), **given})

    def check_actions(self, kind: str, env: str) -> None:
        """Raise ParlError, with the algorithms that would do, unless it can choose actions of this kind."""
        if kind not in self.actions:
            able = [name for name in summaries() if kind in load(name).actions]
            advice = f"choose one of {', '.join(able)}" if able else "no algorithm here can"
            can = " or ".join(sorted(self.actions))
            raise ParlError(f"{self.name} chooses {can} actions, and those of {env} are {kind}: {advice}.")


def summaries() -> dict[str, str]:
    """Return the first sentence of each algorithm's module, by name."""
    texts = {path.stem: path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))}
    return {name: _first_sentence(text) for name, text in texts.items() if _MARK.search(text)}


def load(name: str) -> Entry:
    """Return the entry of an algorithm; raises ParlError with the names there are."""
    module, _, attribute = name.partition(":")
    if attribute:
        return _load_foreign(module, attribute)
    names = summaries()
    if name not in names:
        raise ParlError(f"there is no algorithm {name!r}: choose one of {', '.join(names)}, or name your own as MODULE:ENTRY.")
    entry: Entry = importlib.import_module(f"parl_lite.agents.{name}").ENTRY
    return entry


def _load_foreign(module: str, attribute: str) -> Entry:
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ParlError(f"{module}:{attribute} cannot be loaded: {error}.") from error
    if not isinstance(found, Entry):
        raise ParlError(f"{module}:{attribute} is a {type(found).__name__}: it must be a parl_lite.agents.registry.Entry.")
    return found


def _first_sentence(text: str) -> str:
    doc = ast.get_docstring(ast.parse(text)) or ""
    return re.split(r"(?<=\.)\s", " ".join(doc.split()), maxsplit=1)[0]

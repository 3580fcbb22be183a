"""File patterns as regular expressions, and ignore rules in the manner of git. Pure: knows no files, no other module.

An ignore rule is a line, understood as git does, in this much:

    # words         a comment; empty lines say nothing, blanks at the end of a line do not count
    name            a file or folder of that name, however deep
    name/           only a folder of that name, and so all below it
    /name  a/b      a slash in front or within: counted from the root, not however deep
    *  ?  [ab]      any run of characters, any one, one of these; never a slash
    **              any number of folders
    !name           not ignored after all; a file below an ignored folder stays ignored
    \\               the next character stands for itself

The last rule that fits a name decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<folders> (?:(?<=/)|^) \*\*/ )
      | (?P<rest>    (?:(?<=/)|^) \*\*$ )
      | (?P<run>     \*+ )
      | (?P<one>     \? )
      | \[ (?P<set>  [!^]? [^/] [^\]/]* ) \]
      | \\ (?P<plain> . )""",
    re.VERBOSE | re.DOTALL,
)


class IgnoreRule(NamedTuple):
    """One line of an ignore file."""

    names: re.Pattern[str]
    folders_only: bool
    ignored: bool


def parse_rules(lines: Iterable[str]) -> list[IgnoreRule]:
    """Return the rules of the lines of an ignore file, in order."""
    return [rule for line in lines if (rule := _parse_rule(line.rstrip())) is not None]


def _parse_rule(line: str) -> IgnoreRule | None:
    negated = line.startswith("!")
    name = line[negated:].rstrip("/")
    if not name or line.startswith("#"):
        return None
    deep = "" if "/" in name else "(?:.*/)?"
    names = re.compile(deep + translate(name.lstrip("/")), re.DOTALL)
    return IgnoreRule(names, folders_only=line.endswith("/"), ignored=not negated)


def is_ignored(rules: Sequence[IgnoreRule], name: str, *, folder: bool) -> bool:
    """Say whether the last rule that fits the name (below the root, with slashes) keeps it out."""
    for rule in reversed(rules):
        if (folder or not rule.folders_only) and rule.names.fullmatch(name):
            return rule.ignored
    return False


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a pattern as an expression whose wildcards pass over hidden names, as in a shell, and `__pycache__`."""
    return re.compile(translate(pattern, shown=r"(?!\.|__pycache__/)"), re.DOTALL)


def translate(pattern: str, *, shown: str = "") -> str:
    """Return the text of a regular expression that fits what the pattern fits.

    Args:
        pattern: text with `*`, `?`, `[...]`, `**` and `\\`, as at the head of this module.
        shown: a look-ahead that a name must pass where a wildcard stands at its start.
    """
    pieces = []
    end = 0
    for token in _TOKEN.finditer(pattern):
        starts_name = token.start() == 0 or pattern[token.start() - 1] == "/"
        pieces += [re.escape(pattern[end : token.start()]), _expression(token, shown, shown if starts_name else "")]
        end = token.end()
    return "".join([*pieces, re.escape(pattern[end:])])


def _expression(token: re.Match[str], shown: str, first: str) -> str:
    match token.lastgroup:
        case "folders":
            return f"(?:{shown}[^/]+/)*"
        case "rest":
            return f"(?:{shown}[^/]+/)*{shown}[^/]+"
        case "run":
            return first + "[^/]*"
        case "one":
            return first + "[^/]"
        case "set":
            return first + _character_set(token["set"])
        case _:
            return re.escape(token["plain"])


def _character_set(text: str) -> str:
    negated = len(text) > 1 and text[0] in "!^"
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", text[negated:])
    expression = f"[^/{members}]" if negated else f"[{members}]"
    try:
        re.compile(expression)
    except re.error:  # such as [z-a], which fits nothing but itself
        return re.escape(f"[{text}]")
    return expression

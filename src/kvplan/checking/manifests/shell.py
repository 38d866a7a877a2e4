"""Words of a command line, as a POSIX shell would split it, with nothing executed or looked up.

What only the running system knows (variables, command substitution) and what would make the words
depend on it (pipes, redirections, conditions) is refused by name: a guess would check something
else than what is deployed.
"""

from __future__ import annotations

import re

from kvplan.errors import InputError

_SUBSTITUTION = re.compile(r"\$(?:\$|\{[^}\n]*\}?|\([^)\n]*\)?|[A-Za-z_]\w*|.|\Z)", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{.*?(?:\}\}|\Z)", re.DOTALL)
_OPERATORS = "|&<>()"
_KEYWORDS = {"if", "for", "while", "until", "case", "function", "eval", "source", "."}
_WRITE_OUT = "Write the value out, or state it in the plan instead of from."


def refuse_substitutions(text: str) -> str:
    """``text`` with ``$$`` as ``$``; refused when anything in it stands for something else.

    Compose replaces ``$VAR`` and ``${VAR}``, Kubernetes ``$(VAR)``, Helm ``{{ … }}``.
    """
    template = _TEMPLATE.search(text)
    if template is not None:
        raise InputError(
            f"{_short(template[0])} is a template whose value is not known here",
            hint="Render it first (helm template …) and give the rendered file.",
        )
    for match in _SUBSTITUTION.finditer(text):
        if match[0] != "$$":
            raise InputError(
                f"{_short(match[0])} is substituted when it is deployed, so its value is not known "
                "here",
                hint=_WRITE_OUT,
            )
    return text.replace("$$", "$")


def statements(text: str) -> list[list[str]]:
    """The simple commands of a shell script, each as its words."""
    found: list[list[str]] = [[]]
    word: str | None = None
    position, end = 0, len(text)

    def finish() -> None:
        nonlocal word
        if word is not None:
            found[-1].append(word)
            word = None

    while position < end:
        char = text[position]
        position += 1
        if char == "'":
            close = text.find("'", position)
            if close < 0:
                raise InputError("a single quote in the command is not closed")
            word = (word or "") + text[position:close]
            position = close + 1
        elif char == '"':
            quoted, position = _double_quoted(text, position)
            word = (word or "") + quoted
        elif char == "\\":
            if position < end and text[position] != "\n":
                word = (word or "") + text[position]
            position += 1
        elif char in "$`":
            raise _substitution(text, position - 1)
        elif char == "#" and word is None:
            close = text.find("\n", position)
            position = end if close < 0 else close
        elif char in "\n;" or text.startswith("&&", position - 1):
            finish()
            position += char == "&"
            found.append([])
        elif char in _OPERATORS:
            raise InputError(
                f"the command uses the shell's {char!r}, which kvplan does not follow",
                hint="Start the engine by a plain command.",
            )
        elif char.isspace():
            finish()
        else:
            word = (word or "") + char
    finish()
    plain = [words for words in found if words]
    for words in plain:
        if words[0] in _KEYWORDS:
            raise InputError(
                f"the command uses the shell's {words[0]!r}, which kvplan does not follow",
                hint="Start the engine by a plain command.",
            )
    return plain


def one_command(text: str) -> list[str]:
    """The words of a command line that is one simple command."""
    found = statements(text)
    if len(found) != 1:
        what = "is empty" if not found else f"holds {len(found)} commands"
        raise InputError(f"the command line {what}; expected one")
    return found[0]


def _double_quoted(text: str, position: int) -> tuple[str, int]:
    """The content up to the closing quote, and where to read on."""
    content = ""
    while position < len(text):
        char = text[position]
        position += 1
        if char == '"':
            return content, position
        if char in "$`":
            raise _substitution(text, position - 1)
        if char == "\\" and position < len(text) and text[position] in '"\\$`\n':
            content += "" if text[position] == "\n" else text[position]
            position += 1
        else:
            content += char
    raise InputError("a double quote in the command is not closed")


def _substitution(text: str, position: int) -> InputError:
    match = _SUBSTITUTION.match(text, position)
    what = match[0] if match else "`…`"
    return InputError(
        f"{_short(what)} is filled in by the shell, so its value is not known here",
        hint=_WRITE_OUT,
    )


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."

"""Words of a command line, as a POSIX shell splits it."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.checking.manifests.shell import one_command, refuse_substitutions, statements
from kvplan.errors import InputError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm serve x --a 1", ["vllm", "serve", "x", "--a", "1"]),
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a --x='{\"k\": 1}'", ["a", '--x={"k": 1}']),
        ('a "x\\"y" \'\'', ["a", 'x"y', ""]),
        ("a \\\n  --b \\\n  c # and so on", ["a", "--b", "c"]),
        ("a b#c", ["a", "b#c"]),
        ("a 'costs $5 `x`'", ["a", "costs $5 `x`"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert one_command(text) == words


def test_statements() -> None:
    text = "set -e\nexport A=1; cd /x && exec vllm serve m\n# the end\n"
    assert statements(text) == [
        ["set", "-e"], ["export", "A=1"], ["cd", "/x"], ["exec", "vllm", "serve", "m"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vllm serve $MODEL", r"\$MODEL is filled in by the shell"),
        ('vllm serve "${MODEL:-x}"', r"\$\{MODEL:-x\} is filled in"),
        ("vllm serve $(cat name)", r"\$\(cat name\) is filled in"),
        ("vllm serve `cat name`", "is filled in"),
        ("vllm serve x | tee log", r"the shell's '\|'"),
        ("vllm serve x > log", "the shell's '>'"),
        ("vllm serve x &", "the shell's '&'"),
        ("if true; then vllm serve x; fi", "the shell's 'if'"),
        ("a 'b", "single quote"),
        ('a "b', "double quote"),
    ],
)
def test_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        statements(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--model=$(MODEL)", r"\$\(MODEL\) is substituted"),
        ("${MODEL}", r"\$\{MODEL\} is substituted"),
        ("${MODEL:-llama}", r"\$\{MODEL:-llama\} is substituted"),
        ("$MODEL", r"\$MODEL is substituted"),
        ("{{ .Values.model }}", r"\{\{ .Values.model \}\} is a template"),
        ("x$", "substituted"),
    ],
)
def test_substitutions_are_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        refuse_substitutions(text)


def test_a_doubled_dollar_is_one() -> None:
    assert refuse_substitutions("a$$b") == "a$b"


PLAIN = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=8)


@given(st.lists(PLAIN, min_size=1, max_size=5))
def test_whatever_is_quoted_comes_back(words: list[str]) -> None:
    text = "run " + " ".join(shlex.quote(word) for word in words)
    assert one_command(text) == ["run", *words]

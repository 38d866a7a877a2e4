"""Every engine answers every question of the protocol, and no module outside names one."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from builders import GIB, deployment

import kvplan
from kvplan.engines import engine_names, load_engine
from kvplan.engines.base import Claim, Engine, KvLayout, PoolFigures, Term
from kvplan.errors import InputError, UnsupportedCombination

NAMES = engine_names()
QUESTIONS = [name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if name[0] != "_"]


def test_the_bare_formula_and_vllm_are_there() -> None:
    assert {"none", "vllm"} <= set(NAMES)
    assert len(QUESTIONS) >= 9


@pytest.mark.parametrize("name", NAMES)
def test_engine_is_found_by_its_own_name(name: str) -> None:
    engine = load_engine(name)
    assert engine.name == name
    assert load_engine(name) is engine
    assert type(engine).__doc__


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_question_has_the_protocols_parameters(name: str, question: str) -> None:
    asked = getattr(type(load_engine(name)), question)
    wanted = getattr(Engine, question)
    assert list(inspect.signature(asked).parameters) == list(inspect.signature(wanted).parameters)
    assert asked.__doc__


@pytest.mark.parametrize("name", NAMES)
def test_answers_have_the_protocols_types(name: str) -> None:
    engine = load_engine(name)
    d = engine.resolve(deployment(engine=name, pp=2))
    assert d.model is not None
    claim = engine.claim(d)
    assert isinstance(claim, Claim)
    assert 0 < claim.size_bytes <= 80 * GIB
    for stage in range(2):
        terms = engine.overheads(d, stage)
        assert all(isinstance(term, Term) for term in terms)
        assert all(0 <= term.low <= term.likely <= term.high and term.source for term in terms)
        layout = engine.kv_layout(d, stage)
        assert isinstance(layout, KvLayout)
        assert isinstance(engine.pool_figures(d, layout, GIB), PoolFigures)
        # what is reserved is never less than the mathematics: 2 of 4 layers * 64 B * 2 heads
        assert layout.reserved_bytes(1024) >= 1024 * 256
        assert layout.reserved_bytes(2048) >= layout.reserved_bytes(1024)
    assert any(form.k.bits == 16 for form in engine.kv_formats(d))
    assert all(isinstance(size, int) and size > 0 for size in engine.block_sizes(d))
    assert all(isinstance(word, str) for word in engine.flags(d))
    for words, changed in engine.changes(d):
        assert words.startswith("--")
        engine.resolve(changed)


@pytest.mark.parametrize("name", NAMES)
def test_resolving_twice_changes_nothing(name: str) -> None:
    engine = load_engine(name)
    once = engine.resolve(deployment(engine=name))
    assert engine.resolve(once)._replace(assumptions=()) == once._replace(assumptions=())


@pytest.mark.parametrize("name", NAMES)
def test_unknown_version_is_refused(name: str) -> None:
    with pytest.raises((UnsupportedCombination, InputError)):
        load_engine(name).resolve(deployment(engine=name, engine_version="0.0"))


@pytest.mark.parametrize("name", ["vlm", "", "VLLM", "base", "__init__", "../none", "none.py"])
def test_unknown_engine_names_the_known_ones(name: str) -> None:
    with pytest.raises(InputError, match="is not an engine") as caught:
        load_engine(name)
    assert "It models: " in (caught.value.hint or "")


def test_nothing_outside_an_engines_room_imports_it() -> None:
    root = Path(kvplan.__file__).parent
    rooms = {name.replace("-", "_") for name in NAMES}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        for room in rooms - set(parts):  # a module named for an engine is that engine's own
            assert f"kvplan.engines.{room}" not in path.read_text(encoding="utf-8"), path

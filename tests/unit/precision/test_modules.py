"""Lists of modules: plain names, globs and expressions, in linear time."""

from __future__ import annotations

import re
import time

import pytest

from kvplan.precision.modules import ModuleMap, UnknownPattern, expression, module_key

LAYER = "model.layers.3."


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("lm_head", "lm_head", True),
        ("language_model.lm_head", "lm_head", True),
        ("head", "lm_head", True),
        # A router is not a gate projection (MiniMax lists "gate").
        ("gate", LAYER + "mlp.gate", True),
        ("gate", LAYER + "mlp.experts.*.gate_proj", False),
        ("gate", LAYER + "mlp.gate_proj", False),
        ("self_attn", LAYER + "self_attn.q_proj", True),
        ("visual", LAYER + "self_attn.q_proj", False),
        ("model.layers.3.self_attn.q_proj", LAYER + "self_attn.q_proj", True),
        ("language_model.model.layers.3.self_attn.q_proj", LAYER + "self_attn.q_proj", True),
        ("backbone.layers.3.mixer.in_proj", LAYER + "mixer.in_proj", True),
        ("model.layers.1", "model.layers.10.self_attn.q_proj", False),
        ("model.layers.1", "model.layers.1.self_attn.q_proj", True),
        # Experts by number stand for one stack of them, and w1, w2, w3 for their projections.
        ("layers.3.block_sparse_moe.experts.7.w1", LAYER + "mlp.experts.*.gate_proj", True),
        ("layers.3.mlp.experts.7.w2", LAYER + "block_sparse_moe.experts.*.down_proj", True),
        ("layers.3.ffn.experts", LAYER + "mlp.experts.*.up_proj", True),
        # Globs: gpt-oss, ModelOpt.
        ("model.layers.*.self_attn", LAYER + "self_attn.q_proj", True),
        ("model.layers.*.mlp.router", LAYER + "mlp.experts.gate_proj", False),
        ("model.layers.3.self_attn*", LAYER + "self_attn.q_proj", True),
        ("model.layers.0*", LAYER + "self_attn.q_proj", False),
        ("model.layers.3*", LAYER + "self_attn.q_proj", True),
        ("model.language_model.layers.3.linear_attn*", LAYER + "linear_attn.in_proj", True),
        ("*.attn.*", LAYER + "self_attn.q_proj", True),
        ("*.mlp.shared_expert.*", LAYER + "mlp.shared_experts.up_proj", True),
        ("*.mlp.shared_expert.*", LAYER + "mlp.up_proj", False),
        ("mtp*", LAYER + "mlp.up_proj", False),
        ("*", LAYER + "mlp.up_proj", True),
        # Expressions: compressed-tensors.
        ("re:.*self_attn.*", LAYER + "self_attn.q_proj", True),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", LAYER + "mlp.gate_proj", True),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", LAYER + "mlp.experts.*.gate_proj", False),
        ("re:.*mlp.gate$", LAYER + "mlp.gate", True),
        ("re:.*mlp.gate$", LAYER + "mlp.gate_proj", False),
        (r"re:.*experts\.\d+\.up_proj", LAYER + "mlp.experts.*.up_proj", True),
        (r"re:model\.layers\.[0-3]\..*", LAYER + "mlp.up_proj", True),
        (r"re:model\.layers\.[0-2]\..*", LAYER + "mlp.up_proj", False),
        ("re:language_model.*", LAYER + "mlp.up_proj", True),
    ],
)  # fmt: skip
def test_matching(pattern: str, name: str, matches: bool) -> None:
    assert bool(ModuleMap([(pattern, True)]).find(name)) is matches


def test_the_most_particular_name_wins() -> None:
    chosen = ModuleMap([("self_attn", "wide"), ("model.layers.3.self_attn.q_proj", "narrow")])
    assert chosen.find(LAYER + "self_attn.q_proj") == "narrow"
    assert chosen.find(LAYER + "self_attn.k_proj") == "wide"


def test_layers_are_told_apart_only_when_a_pattern_does() -> None:
    assert not ModuleMap([("lm_head", True), ("re:.*self_attn.*", True)]).names_layers
    assert ModuleMap([("model.layers.0.mlp", True)]).names_layers
    assert ModuleMap([(r"re:.*layers\.[0-3].*", True)]).names_layers


def test_keys_leave_wrappers_off_but_never_everything() -> None:
    assert module_key("model.language_model.layers.0.mlp") == "layers.0.mlp"
    assert module_key("model") == "model"


SAME_AS_RE = [
    "a", "ab|cd", "a*b", "a+b?", "(ab)*c", "(a|b)+$", "a{2}", "a{1,3}b", "a{2,}", "[abc]+d",
    "[^a]b", "[a-c]*$", r"\d+x", r"\w.\.", "a.*b.*c", "(?:ab|a)(c|bcd)", "a??b", "^ab", "x*",
    "((a|b)c)*d",
]  # fmt: skip
NAMES = [
    "", "a", "ab", "abc", "cd", "aab", "aaab", "ababc", "b", "abb", "bd", "xb", "12x", "a.b.c",
    "q..", "abcd", "acd", "acbcd", "aaaa", "xxxx", "ccd", "acbcd",
]  # fmt: skip


@pytest.mark.parametrize("pattern", SAME_AS_RE)
def test_an_expression_means_what_re_match_means(pattern: str) -> None:
    matches = expression(pattern)
    for name in NAMES:
        assert matches(name) is bool(re.match(pattern, name)), (pattern, name)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)b", "(?P<x>a)", r"(a)\1", r"\bword", "(", ")", "a)", "[", "[a", "a**", "*a", "a{",
        "a{x}", "a{3,1}", "a{0}", "a{9999}", "((((((((((((((((((((((a))))))))))))))))))))))", "a$b",
        "\\", "(((a{100}){100}){100}){100}", "x" * 1001, "[b-a]",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(UnknownPattern):
        expression(pattern)


def test_an_evil_expression_takes_no_longer_than_another() -> None:
    matches = expression("(a|a)*(a*)*b(x+x+)+y")
    start = time.perf_counter()
    assert not matches("a" * 20_000)
    assert not matches("b" + "x" * 20_000)
    assert time.perf_counter() - start < 2

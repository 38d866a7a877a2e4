"""The names of each engine against its stored page, its documentation, and its versions."""

from __future__ import annotations

import pytest
from prometheus_tools import PAGES

from kvplan.errors import InputError, UnsupportedCombination
from kvplan.monitoring.engines import engine_names, load_metrics
from kvplan.monitoring.engines.dynamo import log_edges
from kvplan.monitoring.exporters import EXPORTERS, load_exporter
from kvplan.monitoring.page import detect, parse_page
from kvplan.monitoring.series import Histogram, edge_pattern

PAGE_OF = {
    "vllm": "vllm-0.33.0.prom",
    "sglang": "sglang-0.5.23.prom",
    "tensorrt-llm": "trtllm-serve-2026.prom",
    "triton": "triton-trtllm-backend.prom",
    "tgi": "tgi.prom",
    "llamacpp": "llamacpp-server.prom",
    "dynamo": "dynamo.prom",
}
DOCUMENTED = {
    # docs/source/reference/metrics.md lists them; the stored page is an extract.
    "tgi": {"tgi_request_generated_tokens_sum", "tgi_request_input_length_sum"},
    # docs/observability/metrics.md and lib/llm/src/http/service/metrics.rs.
    "dynamo": {
        "dynamo_frontend_inflight_requests",
        "dynamo_frontend_output_sequence_tokens_sum",
        "dynamo_frontend_time_to_first_token_seconds_bucket",
        "dynamo_frontend_inter_token_latency_seconds_bucket",
    },
}


def test_every_engine_has_its_page() -> None:
    assert set(PAGE_OF) == set(engine_names())


@pytest.mark.parametrize("engine", PAGE_OF)
def test_every_name_is_exported(engine: str) -> None:
    samples = parse_page((PAGES / PAGE_OF[engine]).read_text(), PAGE_OF[engine])
    known = samples.names() | DOCUMENTED.get(engine, set())
    assert load_metrics(engine).names() - known == set()


@pytest.mark.parametrize("engine", PAGE_OF)
def test_the_engine_is_known_by_its_page(engine: str) -> None:
    samples = parse_page((PAGES / PAGE_OF[engine]).read_text(), PAGE_OF[engine])
    assert detect(samples, "page").engine == engine


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_the_edges_are_those_of_the_page(engine: str) -> None:
    samples = parse_page((PAGES / PAGE_OF[engine]).read_text(), PAGE_OF[engine])
    metrics = load_metrics(engine)
    for histogram in (metrics.ttft, metrics.tpot):
        assert isinstance(histogram, Histogram)
        found = {float(labels["le"]) for labels in samples.labels(f"{histogram.name}_bucket")}
        assert found - {float("inf")} == set(histogram.edges)


@pytest.mark.parametrize(
    ("version", "kv", "gaps", "reasons", "tokens", "option"),
    [
        ("0.33", "kv_cache_usage_perc", "inter_token_latency", True, True, True),
        ("0.30", "kv_cache_usage_perc", "inter_token_latency", True, True, False),
        ("0.22", "kv_cache_usage_perc", "inter_token_latency", True, False, False),
        ("0.19", "kv_cache_usage_perc", "inter_token_latency", False, False, False),
        ("0.11", "kv_cache_usage_perc", "inter_token_latency", False, False, False),
        ("0.10", "gpu_cache_usage_perc", "time_per_output_token", False, False, False),
        ("0.8", "gpu_cache_usage_perc", "time_per_output_token", False, False, False),
    ],
)
def test_vllm_by_version(
    version: str, kv: str, gaps: str, reasons: bool, tokens: bool, option: bool
) -> None:
    """As read in the released packages."""
    metrics = load_metrics(f"vllm@{version}")
    assert metrics.kv_use is not None
    assert metrics.kv_use.name == f"vllm:{kv}"
    assert metrics.tpot is not None
    assert metrics.tpot.name == f"vllm:{gaps}_seconds"
    assert (metrics.waiting_for_kv is not None) == reasons
    assert metrics.pool_info is not None
    assert (metrics.pool_info.tokens is not None) == tokens
    assert metrics.ttft is not None
    assert (metrics.ttft.option is not None) == option


def test_the_prefix_counters_of_vllm() -> None:
    assert "vllm:prefix_cache_hits_total" in load_metrics("vllm").names()
    assert "vllm:gpu_prefix_cache_hits_total" in load_metrics("vllm@0.8").names()
    assert "vllm:gpu_prefix_cache_hit_rate" in load_metrics("vllm@0.6").names()
    legacy = parse_page((PAGES / "vllm-legacy-0.6-0.8.prom").read_text(), "legacy")
    found = detect(legacy, "legacy")
    assert found.kv_use is not None
    assert found.kv_use.name == "vllm:gpu_cache_usage_perc"


@pytest.mark.parametrize(
    ("engine", "target", "edge", "exact"),
    [
        ("vllm", 0.2, 0.25, False),
        ("tensorrt-llm", 0.2, 0.25, False),
        ("sglang", 0.2, 0.2, True),
        ("dynamo", 0.2, 0.22, False),
    ],
)
def test_where_a_first_token_is_judged(
    engine: str, target: float, edge: float, exact: bool
) -> None:
    histogram = load_metrics(engine).ttft
    assert histogram is not None
    assert histogram.edge(target) == edge
    assert histogram.is_exact(target) is exact


@pytest.mark.parametrize(
    ("engine", "edge"), [("vllm", 0.05), ("sglang", 0.06), ("dynamo", 0.084), ("tgi", 0.0656840836)]
)
def test_where_a_gap_between_tokens_is_judged(engine: str, edge: float) -> None:
    histogram = load_metrics(engine).tpot
    assert histogram is not None
    assert histogram.edge(0.05) == pytest.approx(edge, rel=1e-8)


def test_a_target_beyond_the_last_edge_is_not_judged() -> None:
    histogram = load_metrics("sglang").tpot
    assert histogram is not None
    assert histogram.edge(8.1) is None


def test_dynamos_edges_are_those_of_a_real_frontend() -> None:
    """Inter-token edges as a page of a running frontend showed them."""
    edges = log_edges(0.001, 2.0, 13)
    assert edges[:10] == (0.0, 0.0019, 0.0035, 0.0067, 0.013, 0.024, 0.045, 0.084, 0.16, 0.3)


@pytest.mark.parametrize(
    ("edge", "spellings", "others"),
    [
        (0.25, ["0.25", "0.250"], ["0.2", "0.255", "0x25"]),
        (1.0, ["1", "1.0"], ["10", "1.5", "11.0"]),
        (0.0001 * 1.5**19, ["0.22168378200531008"], ["0.2217", "0.221"]),
    ],
)
def test_an_edge_as_exporters_write_it(
    edge: float, spellings: list[str], others: list[str]
) -> None:
    import re

    pattern = re.compile(f"(?:{edge_pattern(edge)})\\Z")
    assert all(pattern.match(text) for text in spellings)
    assert not any(pattern.match(text) for text in others)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(InputError, match="does not know the metrics"):
        load_metrics("vlm")
    with pytest.raises(UnsupportedCombination):
        load_metrics("vllm@0.5")
    with pytest.raises(UnsupportedCombination, match=r"sglang 0\.5\.23"):
        load_metrics("sglang@0.4")
    assert "taken to be the same" in " ".join(load_metrics("sglang@0.5.9").notes)
    with pytest.raises(UnsupportedCombination, match="tgi"):
        load_metrics("tgi@3.0")
    with pytest.raises(InputError, match="--exporter 'dcmg' is not one of"):
        load_exporter("dcmg")


@pytest.mark.parametrize("name", EXPORTERS)
def test_every_exporter_name_is_exported(name: str) -> None:
    page = {"dcgm": "dcgm-exporter.prom"}.get(name, f"{name}.prom")
    samples = parse_page((PAGES / page).read_text(), page)
    assert load_exporter(name).names() <= samples.names()

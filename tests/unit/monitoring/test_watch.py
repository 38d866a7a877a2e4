"""One look and several: the figures of a page, the findings, the verdict, the view."""

from __future__ import annotations

import io
import json

import pytest
from prometheus_tools import PAGES, PLAN
from web_server import changing, serving, text

from kvplan.errors import SourceError
from kvplan.monitoring.check import Health
from kvplan.monitoring.engines import load_metrics
from kvplan.monitoring.live import one_line, report, sparkline, view, worse_than
from kvplan.monitoring.page import parse_page
from kvplan.monitoring.prometheus_api import Prometheus
from kvplan.monitoring.reading import SINCE_START, Before, Reading, read, targets
from kvplan.monitoring.watch import Observation, Watched, Watcher
from kvplan.policy import load_policy

LIMITS = load_policy().monitoring
VLLM = (PAGES / "vllm-0.33.0.prom").read_text()
SGLANG = (PAGES / "sglang-0.5.23.prom").read_text()


def reading(page: str, engine: str) -> Reading:
    samples, metrics = parse_page(page, "page"), load_metrics(engine)
    return read(samples, metrics, targets(samples, metrics, LIMITS))


def look(page: str, **what: object) -> Observation:
    with serving({"/metrics": text(page)}) as home:
        watched = Watched(url=f"{home}/metrics", limits=LIMITS, **what)  # type: ignore[arg-type]
        return Watcher(watched).look()


def test_the_figures_of_vllms_page() -> None:
    r = reading(VLLM, "vllm")
    assert (r.kv_use, r.running, r.waiting, r.waiting_for_kv) == (0.6125, 12, 3, 3)
    assert r.basis == SINCE_START
    assert r.preempted == 2
    assert r.prefix_hits == pytest.approx(54_000 / 120_000)
    # 95 of 100 at or below 0.25 s; 95 of 100 gaps at or below 0.05 s.
    assert (r.ttft_edge_ms, r.tpot_edge_ms) == (250, 50)
    assert r.ttft_share_above == pytest.approx(0.05)
    assert r.tpot_share_above == pytest.approx(0.05)
    assert (r.pool_blocks, r.pool_tokens) == (27_820, 445_120)
    assert r.generation_tokens_per_s is None


def test_the_figures_of_the_other_pages() -> None:
    s = reading(SGLANG, "sglang")
    assert (s.kv_use, s.pool_tokens, s.prefix_hits) == (0.58, 445_112, 0.41)
    # 95 of 100 at or below 0.2 s; all 100 gaps at or below 0.06 s, the edge above 0.05 s.
    assert s.ttft_share_above == pytest.approx(0.05)
    assert s.tpot_share_above == 0
    t = reading((PAGES / "triton-trtllm-backend.prom").read_text(), "triton")
    assert (t.kv_use, t.waiting, t.running, t.pool_blocks) == (0.4875, 1, 0, 6239)
    g = reading((PAGES / "tgi.prom").read_text(), "tgi")
    assert (g.kv_use, g.running, g.ttft_share_above) == (None, 7, None)
    d = reading((PAGES / "dynamo.prom").read_text(), "dynamo")
    assert (d.kv_use, d.waiting, d.ttft_share_above) == (0.61, 0, None)
    c = reading((PAGES / "llamacpp-server.prom").read_text(), "llamacpp")
    assert (c.kv_use, c.running, c.waiting) == (None, 0, 0)


def test_rates_between_two_pages() -> None:
    later = VLLM.replace("30500.0", "31500.0").replace("num_preemptions_total{engine=\"0\","
        'model_name="meta-llama/Llama-3.1-8B-Instruct"} 2.0', 'num_preemptions_total{engine="0",'
        'model_name="meta-llama/Llama-3.1-8B-Instruct"} 7.0')  # fmt: skip
    metrics, samples = load_metrics("vllm"), parse_page(later, "later")
    judged = targets(samples, metrics, LIMITS)
    r = read(samples, metrics, judged, Before(parse_page(VLLM, "first"), 10.0))
    assert r.generation_tokens_per_s == 100  # 1,000 tokens in 10 s
    assert r.preempted == 0.5  # 5 in 10 s
    assert r.ttft_share_above is None  # no request was finished between the two
    restarted = read(parse_page(VLLM, "x"), metrics, judged, Before(samples, 10.0))
    assert restarted.generation_tokens_per_s == 3050  # a counter that fell began anew


def test_the_edges_of_this_server_count() -> None:
    own = VLLM.replace('le="0.25"', 'le="0.2"')
    r = reading(own, "vllm")
    assert r.ttft_edge_ms == 200


def test_a_page_in_order_and_one_that_is_not() -> None:
    fine = look(SGLANG)
    assert (fine.verdict, fine.engine) == (Health.OK, "SGLang 0.5.23")
    assert fine.reason == "58.0% of the KV pool in use, 9 running, 0 waiting"
    warned = look(VLLM)
    assert warned.verdict is Health.WARNING
    assert [f.alert for f in warned.findings][:2] == ["KvPoolUseHigh", "RequestsWaiting"]
    full = look(VLLM.replace("} 0.6125", "} 0.96"))
    assert full.verdict is Health.CRITICAL
    assert full.reason == "96.0% of the KV pool in use while 3 requests wait (limit 90%)"


def test_the_plan_is_compared() -> None:
    drifted = look(
        SGLANG, plan=PLAN._replace(engine="sglang", pool_blocks=None, pool_tokens=900_000)
    )
    (finding,) = drifted.findings
    assert finding.alert == "PlanDrift"
    assert "445,112 tokens, planned 900,000 (855,000 to 945,000 tolerated)" in finding.message
    # Another engine's pool says nothing about this plan.
    assert look(SGLANG, plan=PLAN._replace(pool_tokens=900_000)).findings == []


def test_a_peak_and_a_queue() -> None:
    pages = iter([VLLM, VLLM.replace("30500.0", "30501.0")])
    with serving({"/metrics": changing(lambda: next(pages))}) as home:
        watcher = Watcher(Watched(f"{home}/metrics", LIMITS, peak_tokens_per_s=1e6))
        seen = list(watcher.every(0.1, 2))
    assert "ThroughputBelowPeak" not in {f.alert for f in seen[0].findings}
    assert "ThroughputBelowPeak" in {f.alert for f in seen[1].findings}
    assert len(watcher.history["kv_use"]) == 2


@pytest.mark.parametrize("status", [500, 404])
def test_a_server_that_is_down_is_an_answer(status: int) -> None:
    with serving({"/metrics": text("", status)}) as home:
        seen = Watcher(Watched(f"{home}/metrics", LIMITS)).look()
    assert seen.verdict is Health.DOWN
    assert f"status {status}" in seen.reason
    assert seen.reading is None
    assert worse_than(seen.verdict, "critical")


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("", "holds no metrics"),
        ("<html><body>502</body></html>", "not a metrics page"),
        ("up 1\n", "no metrics of an engine that kvplan knows"),
        ('vllm:kv_cache_usage_perc{model_name="x 1\n', "not a metrics page"),
        ("vllm:kv_cache_usage_perc abc\n", "not a metrics page"),
        ('vllm:kv_cache_usage_perc{a="' + '\\"' * 8_000_000, "which no metrics page has"),
        ("a 1\n" * 500_001, "more than 500,000 samples"),
    ],
)
def test_a_page_that_is_none_is_an_error(page: str, why: str) -> None:
    with pytest.raises(SourceError, match=why):
        look(page)


def test_nonsense_values_are_no_figures() -> None:
    page = SGLANG.replace("} 0.58", "} NaN").replace("} 9.0", "} +Inf")
    r = reading(page, "sglang")
    assert r.kv_use is None
    assert r.running is None
    infos = VLLM.replace('num_gpu_blocks="27820"', 'num_gpu_blocks="9' + "9" * 50 + '"')
    assert reading(infos, "vllm").pool_blocks is None


def prometheus_pages(value: str) -> str:
    result = {"metric": {}, "value": [1.0, value]}
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": [result]}})


def test_rates_from_prometheus() -> None:
    pages = {"/metrics": text(SGLANG), "/api/v1/query": text(prometheus_pages("0.25"))}
    with serving(pages) as home:
        source = Prometheus(home, "gpu7:30000")
        seen = Watcher(Watched(f"{home}/metrics", LIMITS, prometheus=source)).look()
    assert seen.reading is not None
    assert seen.reading.basis == "the last 5m by Prometheus"
    assert seen.reading.generation_tokens_per_s == 0.25
    assert {f.alert for f in seen.findings} == {
        "KvPreemptions",
        "TtftAboveTarget",
        "TpotAboveTarget",
    }
    assert seen.verdict is Health.WARNING


def test_prometheus_without_this_server_changes_nothing() -> None:
    empty = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}})
    with serving({"/metrics": text(SGLANG), "/api/v1/query": text(empty)}) as home:
        source = Prometheus(home, "gpu7:30000")
        seen = Watcher(Watched(f"{home}/metrics", LIMITS, prometheus=source)).look()
    assert seen.reading is not None
    assert seen.reading.basis == SINCE_START


@pytest.mark.parametrize("answer", ["[]", "{}", '{"status":"success","data":{"result":[3]}}', "x"])
def test_a_prometheus_that_is_none(answer: str) -> None:
    with serving({"/metrics": text(SGLANG), "/api/v1/query": text(answer)}) as home:
        source = Prometheus(home, "gpu7:30000")
        with pytest.raises(SourceError):
            Watcher(Watched(f"{home}/metrics", LIMITS, prometheus=source)).look()


def test_lines_of_bars() -> None:
    assert sparkline([0, 0.5, 1], 1.0) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([1, 2, 4]) == "▃▅█"
    assert sparkline([5], 1.0, ascii_only=True) == "#"
    assert sparkline([]) == ""


def test_words_of_the_server_are_no_markup() -> None:
    from rich.console import Console

    seen = look(VLLM)
    seen = Observation(
        schema=seen.schema, kvplan_version=seen.kvplan_version, url="http://[bold red]x[/]",
        engine=seen.engine, verdict=seen.verdict, reason="[blink]\x1b[31mhello[/blink]",
        reading=seen.reading, findings=seen.findings, plan="[link=file:///]p[/link]",
    )  # fmt: skip
    screen = Console(file=io.StringIO(), width=100, force_terminal=False)
    screen.print(view(Watcher(Watched("x", LIMITS)), seen))
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "[blink]" in shown
    assert "[bold red]" in shown
    assert "[link=" in shown
    assert "\x1b" not in shown + one_line(seen) + report(seen)
    assert "KV pool in use" in shown
    assert "61.2%" in shown.replace("61.3%", "61.2%")


def test_without_prometheus_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from kvplan.errors import MissingExtra

    monkeypatch.setitem(sys.modules, "prometheus_client.parser", None)
    with pytest.raises(MissingExtra, match="'monitor'"):
        parse_page(VLLM, "page")

"""``kvplan monitor`` as a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from prometheus_tools import PAGES
from web_server import serving, text

MODEL = ("llama-3.1-8b", "--gpu", "h100-sxm", "--seq", "32k")
VLLM = (PAGES / "vllm-0.33.0.prom").read_text()


def test_rules_of_a_model(kvplan) -> None:  # type: ignore[no-untyped-def]
    run = kvplan("monitor", "rules", *MODEL, "--exporter", "dcgm", "--peak-tokens-per-s", "2500")
    assert run.code == 0
    groups = yaml.safe_load(run.out)["groups"]
    assert [group["name"] for group in groups] == ["kvplan-vllm-records", "kvplan-vllm-alerts"]
    assert "llama-3.1-8b on 1 x h100-sxm" in run.out
    assert "vector(2500)" in run.out
    assert "no edge at the target of 200 ms" in run.err
    assert kvplan("monitor", "rules", *MODEL, "--exact-edges").err == ""


def test_rules_of_a_stored_plan_and_its_engine(kvplan, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    words = ("fit", *MODEL, "--engine", "vllm@0.20", "--format", "json", "-o", "plan.json")
    assert kvplan(*words).code == 0
    by_name = kvplan("monitor", "rules", "--plan", "plan.json")
    assert by_name.code == 0
    assert "rules for vLLM 0.20" in by_name.out
    assert kvplan("monitor", "rules", "plan.json").out == by_name.out
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert f"vector({plan['kv_cache']['pool_tokens']})" in by_name.out


def test_a_peak_from_a_benchmark(kvplan, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    result = {
        "output_throughput": 1234.5,
        "request_throughput": 9.5,
        "max_output_tokens_per_s": 2000,
    }
    (tmp_path / "bench.json").write_text(json.dumps(result))
    run = kvplan("monitor", "rules", "--engine", "vllm", "--peak-from", "bench.json")
    assert "vector(1234.5)" in run.out
    said = run.out.replace("\n#   ", " ")
    assert "tokens/s of one server, from output_throughput of bench.json" in said
    (tmp_path / "other.json").write_text("{}")
    bad = kvplan("monitor", "rules", "--engine", "vllm", "--peak-from", "other.json")
    assert (bad.code, "not a result of vllm bench serve" in bad.err) == (2, True)


def test_a_dashboard(kvplan) -> None:  # type: ignore[no-untyped-def]
    run = kvplan("monitor", "dashboard", *MODEL, "--exporter", "dcgm")
    assert run.code == 0
    assert json.loads(run.out)["title"] == "kvplan: llama-3.1-8b on vLLM 0.33"


def test_rules_of_an_engine_without_a_plan(kvplan) -> None:  # type: ignore[no-untyped-def]
    run = kvplan("monitor", "rules", "--engine", "tgi")
    assert run.code == 0
    assert "PlanDrift: no plan was given" in run.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("rules", "--engine", "vlm"), "does not know the metrics of this engine"),
        (("rules", *MODEL, "--exporter", "dcmg"), "is not one of dcgm, nvidia_gpu_exporter"),
        (("rules", *MODEL, "--exporter-job", "x"), "--exporter-job without --exporter"),
        (("rules", *MODEL, "--plan", "p.json"), "are two plans"),
        (("rules", "--seq", "32k"), "--seq asks about a model, but none was named"),
        (("rules", *MODEL, "--rate-window", "5 minutes"), "is not a time"),
        (("rules", *MODEL, "--peak-tokens-per-s", "0"), "must be above 0"),
        (("rules", "--plan", "missing.json"), "cannot be read"),
        (("watch", "--url", "file:///etc/passwd"), "is not an http or https URL"),
        (("watch", "--url", "http://x", "--format", "json"), "need --once"),
        (("watch", "--url", "http://x", "--once", "--fail-on", "info"), "not critical or warning"),
        (("watch", "--url", "http://x", "--once", "--format", "yaml"), "is not one of table, json"),
    ],
)
def test_what_cannot_be(kvplan, words: tuple[str, ...], why: str) -> None:  # type: ignore[no-untyped-def]
    run = kvplan("monitor", *words)
    assert (run.code, run.out) == (2, "")
    assert why in run.err


def test_a_plan_that_is_none(kvplan, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for body, why in (
        ("{}", "is not a plan"),
        ('{"schema": "kvplan.fit/1"}', "is missing"),
        ('{"schema": "kvplan.fit/1", "memory": {"kv_pool_bytes": -5}}', "not a whole number"),
        ('{"schema": "kvplan.fit/1", "memory": {"kv_pool_bytes": "5"}}', "not a whole number"),
    ):
        (tmp_path / "p.json").write_text(body)
        run = kvplan("monitor", "rules", "--plan", "p.json")
        assert run.code == 2, body
        assert why in run.err


@pytest.mark.parametrize(
    ("page", "words", "code", "verdict"),
    [
        (VLLM, (), 0, "warning"),
        (VLLM, ("--fail-on", "warning"), 1, "warning"),
        (VLLM.replace("} 0.6125", "} 0.95"), (), 1, "critical"),
        (
            VLLM.replace("} 0.6125", "} 0.5").replace("} 3.0", "} 0.0"),
            ("--fail-on", "warning"),
            0,
            "ok",
        ),
    ],
)
def test_one_look_for_a_probe(
    kvplan, page: str, words: tuple[str, ...], code: int, verdict: str
) -> None:  # type: ignore[no-untyped-def]
    with serving({"/metrics": text(page)}) as home:
        run = kvplan(
            "monitor", "watch", "--url", f"{home}/metrics", "--once", "--format", "json", *words
        )
    document = json.loads(run.out)
    Draft202012Validator(json.loads(kvplan("schema", "watch").out)).validate(document)
    assert (run.code, document["verdict"]) == (code, verdict), run.err
    assert document["schema"] == "kvplan.watch/1"
    assert document["engine"] == "vLLM 0.33"


def test_a_server_that_is_down(kvplan) -> None:  # type: ignore[no-untyped-def]
    run = kvplan("monitor", "watch", "--url", "http://127.0.0.1:9/metrics", "--once")
    assert run.code == 1
    assert run.out.startswith("DOWN  ")
    assert "Connection refused" in run.out


def test_a_log_of_looks_where_there_is_no_terminal(kvplan) -> None:  # type: ignore[no-untyped-def]
    with serving({"/metrics": text(VLLM)}) as home:
        words = ("--url", f"{home}/metrics", "--count", "3", "--interval", "0.1")
        run = kvplan("monitor", "watch", *words)
    assert run.code == 0
    assert run.out.split("\n")[0].startswith("WARNING  61.3% of the KV pool in use")
    assert run.out.count("\n") == 3


PLAN_FILE = """\
version: 1
deployments:
  - name: chat
    model: llama-3.1-8b
    gpu: h100-sxm
    seq: 32k
  - name: long
    model: llama-3.1-8b
    gpu: h100-sxm
    seq: 64k
"""


def test_a_deployment_of_a_plan_file(kvplan, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "kvplan.yaml").write_text(PLAN_FILE)
    run = kvplan("monitor", "rules", "kvplan.yaml", "--deployment", "chat")
    assert run.code == 0, run.err
    assert run.out == kvplan("monitor", "rules", *MODEL).out
    for words, why in (
        (("kvplan.yaml",), "has 2 deployments"),
        (("kvplan.yaml", "--deployment", "chta"), "has no such deployment"),
        (("kvplan.yaml", "--deployment", "chat", "--seq", "8k"), "--seq beside the deployments"),
        ((MODEL[0], "--deployment", "chat"), "none was given"),
    ):
        bad = kvplan("monitor", "rules", *words)
        assert bad.code == 2, words
        assert why in bad.err

"""The rules in Prometheus's own hands: valid, firing where they should, silent elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from prometheus_tools import PLAN, assert_firing, check, page_series, question, run_promtool

from kvplan.monitoring.alerts import ALERTS
from kvplan.monitoring.exporters import load_exporter
from kvplan.monitoring.rules import rules
from kvplan.monitoring.rules_yaml import render

ROOT = Path(__file__).parents[3]
ENGINES = [
    "vllm", "vllm@0.30", "vllm@0.20", "vllm@0.11", "vllm@0.10", "vllm@0.8", "vllm@0.6", "sglang",
    "tensorrt-llm", "triton", "tgi", "llamacpp", "dynamo",
]  # fmt: skip

M = 'job="engine",instance="e:8000",model_name="m"'
HERE = 'job="engine",instance="e:8000"'
GPU = 'job="dcgm",instance="g:9400",gpu="0"'
FLAT = "+0x240"
MIB_OF_60_GIB = 60 * 1024


def written(engine: str, **options: object) -> str:
    asked = question(engine, **options)  # type: ignore[arg-type]
    return render(rules(asked), asked.plan)


def healthy(**changes: str) -> dict[str, str]:
    """A vLLM server that does well: 100 requests and 1,000 tokens every 30 s."""
    values = {
        f'up{{{HERE}}}': f"1{FLAT}",
        'up{job="dcgm",instance="g:9400"}': f"1{FLAT}",
        f"vllm:kv_cache_usage_perc{{{M}}}": f"0.4{FLAT}",
        f"vllm:num_requests_running{{{M}}}": f"10{FLAT}",
        f"vllm:num_requests_waiting{{{M}}}": f"0{FLAT}",
        f'vllm:num_requests_waiting_by_reason{{{M},reason="capacity"}}': f"0{FLAT}",
        f'vllm:num_requests_waiting_by_reason{{{M},reason="deferred"}}': f"0{FLAT}",
        f"vllm:num_preemptions_total{{{M}}}": f"2{FLAT}",
        f"vllm:generation_tokens_total{{{M}}}": "0+30000x240",
        f"vllm:prompt_tokens_total{{{M}}}": "0+30000x240",
        f"vllm:prefix_cache_hits_total{{{M}}}": "0+500x240",
        f"vllm:prefix_cache_queries_total{{{M}}}": "0+1000x240",
        f'vllm:time_to_first_token_seconds_bucket{{{M},le="0.1"}}': "0+50x240",
        f'vllm:time_to_first_token_seconds_bucket{{{M},le="0.25"}}': "0+96x240",
        f'vllm:time_to_first_token_seconds_bucket{{{M},le="+Inf"}}': "0+100x240",
        f"vllm:time_to_first_token_seconds_count{{{M}}}": "0+100x240",
        f'vllm:inter_token_latency_seconds_bucket{{{M},le="0.05"}}': "0+96x240",
        f'vllm:inter_token_latency_seconds_bucket{{{M},le="+Inf"}}': "0+100x240",
        f"vllm:inter_token_latency_seconds_count{{{M}}}": "0+100x240",
        f'vllm:cache_config_info{{{HERE},num_gpu_blocks="28000",kv_cache_size_tokens="448000"}}':
            f"1{FLAT}",
        f"DCGM_FI_DEV_FB_USED{{{GPU}}}": f"{MIB_OF_60_GIB}{FLAT}",
        f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": f"95{FLAT}",
    }  # fmt: skip
    for name, value in changes.items():
        matching = [key for key in values if name in key]
        assert matching, name
        for key in matching:
            values[key] = value
    return values


@pytest.mark.parametrize("engine", ENGINES)
def test_promtool_accepts_the_rules(engine: str, tmp_path: Path) -> None:
    check(written(engine), tmp_path)
    check(written(engine, plan=None, exporter=None, peak_tokens_per_s=None), tmp_path)


def test_a_healthy_server_is_left_alone(tmp_path: Path) -> None:
    assert_firing(written("vllm"), healthy(), set(), tmp_path)


WAITING = "num_requests_waiting{"
OVER_EDGE = {
    'time_to_first_token_seconds_bucket{job="engine",instance="e:8000",model_name="m",le="0.25"}':
        "0+94x240",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kv_cache_usage_perc": f"0.61{FLAT}"}, {"KvPoolUseHigh"}),
        ({"kv_cache_usage_perc": f"0.6{FLAT}"}, set()),
        ({"kv_cache_usage_perc": f"0.95{FLAT}"}, {"KvPoolUseHigh"}),
        (
            {"kv_cache_usage_perc": f"0.95{FLAT}", WAITING: f"4{FLAT}"},
            {"KvPoolUseHigh", "KvPoolNearlyFull", "RequestsWaiting"},
        ),
        ({"num_preemptions": "0+1x240"}, {"KvPreemptions"}),
        ({WAITING: f"1{FLAT}"}, {"RequestsWaiting"}),
        (OVER_EDGE, {"TtftAboveTarget"}),
        ({'latency_seconds_bucket{job="engine",instance="e:8000",model_name="m",le="0.05"}':
          "0+94x240"}, {"TpotAboveTarget"}),
        # 30 s x 800 tokens/s is 24,000: 80 % of the peak of 1,000 tokens/s.
        ({"generation_tokens": "0+23900x240", WAITING: f"1{FLAT}"},
         {"RequestsWaiting", "ThroughputBelowPeak"}),
        ({"generation_tokens": "0+24100x240", WAITING: f"1{FLAT}"}, {"RequestsWaiting"}),
        ({"generation_tokens": "0+100x240"}, set()),
        ({"prefix_cache_hits": "0+99x240"}, {"PrefixCacheHitsLow"}),
        # The claim is 72 GiB and 5 % of 80 GiB is tolerated: 76 GiB is 77,824 MiB.
        ({"FB_USED": f"77825{FLAT}"}, {"GpuMemoryAbovePlan"}),
        ({"FB_USED": f"77824{FLAT}"}, set()),
        ({"kv_cache_usage_perc": f"0.95{FLAT}", "waiting": f"4{FLAT}", "GPU_UTIL": f"79{FLAT}"},
         {"KvPoolUseHigh", "KvPoolNearlyFull", "RequestsWaiting", "OffloadWorthTrying"}),
        ({'up{job="engine"': f"0{FLAT}"}, {"EngineDown"}),
        ({'up{job="dcgm"': f"0{FLAT}"}, {"GpuExporterDown"}),
    ],
)  # fmt: skip
def test_each_alert_fires_on_its_data_and_no_other(
    changes: dict[str, str], expected: set[str], tmp_path: Path
) -> None:
    assert_firing(written("vllm"), healthy(**changes), expected, tmp_path)


@pytest.mark.parametrize(
    ("blocks", "tokens", "fires"),
    [
        ("28000", "448000", False),
        # 5 % of 28,000 is 1,400 blocks; of 448,000 tokens 22,400.
        ("26600", "425600", False),
        ("29400", "470400", False),
        ("26599", "425600", True),
        ("29401", "470400", True),
        ("28000", "470401", True),
        ("2800", "44800", True),
        ("280000", "4480000", True),
        ("None", "None", False),  # not yet known while the engine starts
    ],
)
def test_drift_from_the_plan(blocks: str, tokens: str, fires: bool, tmp_path: Path) -> None:
    series = {key: value for key, value in healthy().items() if "cache_config_info" not in key}
    info = f'{HERE},num_gpu_blocks="{blocks}",kv_cache_size_tokens="{tokens}"'
    series[f"vllm:cache_config_info{{{info}}}"] = f"1{FLAT}"
    assert_firing(written("vllm"), series, {"PlanDrift"} if fires else set(), tmp_path)


def test_the_plans_own_range_widens_what_is_tolerated(tmp_path: Path) -> None:
    # 27 of 54 GiB at the careful end: half of 28,000 blocks still is this plan.
    wide = PLAN._replace(pool_low_bytes=PLAN.pool_bytes // 2)  # type: ignore[operator]
    series = {key: value for key, value in healthy().items() if "cache_config_info" not in key}
    info = f'{HERE},num_gpu_blocks="14000",kv_cache_size_tokens="224000"'
    series[f"vllm:cache_config_info{{{info}}}"] = f"1{FLAT}"
    assert_firing(written("vllm", plan=wide), series, set(), tmp_path)


def test_the_fullest_pool_of_a_server_counts_and_its_queues_add_up(tmp_path: Path) -> None:
    """Two data-parallel engines of one server: one full with the queue of the other."""
    series = healthy(kv_cache_usage_perc=f"0.2{FLAT}")
    other = f'{M},engine="1"'
    series[f"vllm:kv_cache_usage_perc{{{other}}}"] = f"0.95{FLAT}"
    series[f"vllm:num_requests_waiting{{{other}}}"] = f"1{FLAT}"
    expected = {"KvPoolUseHigh", "KvPoolNearlyFull", "RequestsWaiting"}
    assert_firing(written("vllm"), series, expected, tmp_path)


def test_nothing_scraped_at_all_is_a_server_that_is_down(tmp_path: Path) -> None:
    series = {key: value for key, value in healthy().items() if "engine" not in key}
    assert_firing(written("vllm"), series, {"EngineDown"}, tmp_path)


def test_a_latency_between_target_and_edge_is_not_seen_until_the_edge_is_added(
    tmp_path: Path,
) -> None:
    """All requests take 0.21 s: above the target of 0.2 s, below vLLM's edge of 0.25 s."""
    changes = {'le="0.1"': "0+0x240", 'le="0.25"': "0+100x240"}
    assert_firing(written("vllm"), healthy(**changes), set(), tmp_path)
    exact = healthy(**changes)
    exact[f'vllm:time_to_first_token_seconds_bucket{{{M},le="0.2"}}'] = "0+0x240"
    assert_firing(written("vllm", exact_edges=True), exact, {"TtftAboveTarget"}, tmp_path)


def test_the_option_that_adds_the_edge_is_told() -> None:
    text = " ".join(line.removeprefix("# ") for line in written("vllm").split("\n"))
    assert "no edge at the target of 200 ms" in text
    assert '--custom-histogram-buckets \'{"time_to_first_token": [0.001' in text
    assert "0.1, 0.2, 0.25" in text.replace("#   ", "").replace("  ", " ")
    assert "inter_token_latency_seconds has an edge at the target of 50 ms" in text
    assert "--custom-histogram-buckets" not in written("vllm@0.30")


OTHERS = {
    "sglang": {
        f"sglang:token_usage{{{M}}}": f"0.97{FLAT}",
        f"sglang:num_running_reqs{{{M}}}": f"9{FLAT}",
        f"sglang:num_queue_reqs{{{M}}}": f"7{FLAT}",
        f"sglang:num_retracted_requests_total{{{M}}}": "0+1x240",
        f"sglang:cache_hit_rate{{{M}}}": f"0.01{FLAT}",
        f"sglang:generation_tokens_total{{{M}}}": "0+100x240",
        f'sglang:time_to_first_token_seconds_bucket{{{M},le="0.2"}}': "0+90x240",
        f"sglang:time_to_first_token_seconds_count{{{M}}}": "0+100x240",
        f'sglang:inter_token_latency_seconds_bucket{{{M},le="0.06"}}': "0+90x240",
        f"sglang:inter_token_latency_seconds_count{{{M}}}": "0+100x240",
        f"sglang:max_total_num_tokens{{{M}}}": f"400000{FLAT}",
        f"sglang:num_pages{{{M}}}": f"28000{FLAT}",
    },
    "tensorrt-llm": {
        f"trtllm_kv_cache_utilization{{{M}}}": f"0.97{FLAT}",
        f"trtllm_num_requests_running{{{M}}}": f"9{FLAT}",
        f"trtllm_num_requests_waiting{{{M}}}": f"7{FLAT}",
        f"trtllm_num_paused_requests{{{M}}}": f"2{FLAT}",
        f"trtllm_kv_cache_hit_rate{{{M}}}": f"0.01{FLAT}",
        f"trtllm_generation_tokens_total{{{M}}}": "0+100x240",
        f'trtllm_time_to_first_token_seconds_bucket{{{M},le="0.25"}}': "0+90x240",
        f"trtllm_time_to_first_token_seconds_count{{{M}}}": "0+100x240",
        f'trtllm_time_per_output_token_seconds_bucket{{{M},le="0.05"}}': "0+90x240",
        f"trtllm_time_per_output_token_seconds_count{{{M}}}": "0+100x240",
        f"trtllm_kv_cache_max_blocks{{{M}}}": f"13000{FLAT}",
    },
    "triton": {
        f'nv_trt_llm_kv_cache_block_metrics{{{HERE},model="m",kv_cache_block_type="fraction"}}':
            f"0.97{FLAT}",
        f'nv_trt_llm_kv_cache_block_metrics{{{HERE},model="m",kv_cache_block_type="max"}}':
            f"6239{FLAT}",
        f'nv_trt_llm_request_metrics{{{HERE},model="m",request_type="waiting"}}': f"7{FLAT}",
        f'nv_trt_llm_request_metrics{{{HERE},model="m",request_type="active"}}': f"9{FLAT}",
    },
    "tgi": {
        f"tgi_batch_current_size{{{HERE}}}": f"9{FLAT}",
        f"tgi_queue_size{{{HERE}}}": f"7{FLAT}",
        f"tgi_request_generated_tokens_sum{{{HERE}}}": "0+100x240",
        f'tgi_request_mean_time_per_token_duration_bucket{{{HERE},le="0.0656840835571289"}}':
            "0+90x240",
        f"tgi_request_mean_time_per_token_duration_count{{{HERE}}}": "0+100x240",
    },
    "llamacpp": {
        f"llamacpp:requests_processing{{{HERE}}}": f"4{FLAT}",
        f"llamacpp:requests_deferred{{{HERE}}}": f"7{FLAT}",
        f"llamacpp:tokens_predicted_total{{{HERE}}}": "0+100x240",
    },
    "dynamo": {
        'dynamo_component_gpu_cache_usage_percent{job="engine",instance="w:9090"}': f"0.97{FLAT}",
        'dynamo_component_total_blocks{job="engine",instance="w:9090"}': f"10000{FLAT}",
        'dynamo_frontend_queued_requests{job="engine",instance="f:8000",model="m"}': f"7{FLAT}",
        'dynamo_frontend_inflight_requests{job="engine",instance="f:8000",model="m"}': f"9{FLAT}",
        'dynamo_frontend_output_sequence_tokens_sum{job="engine",instance="f:8000",model="m"}':
            "0+100x240",
        'dynamo_frontend_time_to_first_token_seconds_bucket{job="engine",instance="f:8000",'
        'model="m",le="0.22"}': "0+90x240",
        'dynamo_frontend_time_to_first_token_seconds_count{job="engine",instance="f:8000",'
        'model="m"}': "0+100x240",
        'dynamo_frontend_inter_token_latency_seconds_bucket{job="engine",instance="f:8000",'
        'model="m",le="0.084"}': "0+90x240",
        'dynamo_frontend_inter_token_latency_seconds_count{job="engine",instance="f:8000",'
        'model="m"}': "0+100x240",
    },
}  # fmt: skip
POOL = {"KvPoolUseHigh", "KvPoolNearlyFull", "RequestsWaiting", "OffloadWorthTrying", "PlanDrift"}
LATENCIES = {"TtftAboveTarget", "TpotAboveTarget"}
EXPECTED = {
    "sglang": POOL | LATENCIES | {"KvPreemptions", "PrefixCacheHitsLow", "ThroughputBelowPeak"},
    "tensorrt-llm": POOL | LATENCIES
    | {"KvPreemptions", "PrefixCacheHitsLow", "ThroughputBelowPeak"},
    "triton": POOL,
    "tgi": {"RequestsWaiting", "TpotAboveTarget", "ThroughputBelowPeak"},
    "llamacpp": {"RequestsWaiting", "ThroughputBelowPeak"},
    "dynamo": POOL | LATENCIES | {"ThroughputBelowPeak"},
}  # fmt: skip


@pytest.mark.parametrize("engine", OTHERS)
def test_an_overloaded_server_of_each_engine(engine: str, tmp_path: Path) -> None:
    series = {
        **OTHERS[engine],
        f"up{{{HERE}}}": f"1{FLAT}",
        'up{job="dcgm",instance="g:9400"}': f"1{FLAT}",
        f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": f"30{FLAT}",
        f"DCGM_FI_DEV_FB_USED{{{GPU}}}": f"{MIB_OF_60_GIB}{FLAT}",
    }
    assert_firing(written(engine), series, EXPECTED[engine], tmp_path)


@pytest.mark.parametrize(
    ("engine", "page", "expected"),
    [
        # 0.6125 of the pool and 3 waiting; 27,820 blocks are within 5 % of 28,000.
        ("vllm", "vllm-0.33.0.prom", {"KvPoolUseHigh", "RequestsWaiting"}),
        ("vllm@0.8", "vllm-legacy-0.6-0.8.prom", {"KvPoolUseHigh"}),  # 0.61
        ("sglang", "sglang-0.5.23.prom", set()),  # 0.58, none waiting, 445,112 tokens
        ("tensorrt-llm", "trtllm-serve-2026.prom", {"RequestsWaiting"}),  # 0.49, 1 waiting
        ("triton", "triton-trtllm-backend.prom", {"RequestsWaiting"}),  # 0.4875, 1 waiting
        ("tgi", "tgi.prom", set()),
        ("llamacpp", "llamacpp-server.prom", set()),
        ("dynamo", "dynamo.prom", {"KvPoolUseHigh"}),  # 0.61
    ],
)
def test_on_each_engines_page(engine: str, page: str, expected: set[str], tmp_path: Path) -> None:
    """The pages stand still, so no rate is above 0; only their gauges can alert."""
    sizes = {"sglang": {"pool_blocks": None, "pool_tokens": 445_112}}
    plan = PLAN._replace(**sizes.get(engine, {})) if engine in {"vllm", "sglang"} else None
    series = {
        **page_series(page),
        **page_series("dcgm-exporter.prom", "dcgm"),
        f"up{{{HERE}}}": f"1{FLAT}",
        'up{job="dcgm",instance="g:9400"}': f"1{FLAT}",
    }
    assert_firing(written(engine, plan=plan, peak_tokens_per_s=None), series, expected, tmp_path)


def test_the_other_exporter(tmp_path: Path) -> None:
    options = {"exporter": load_exporter("nvidia_gpu_exporter"), "exporter_job": "nv"}
    base = {k: v for k, v in healthy().items() if "DCGM" not in k and "dcgm" not in k}
    up = {'up{job="nv",instance="nv:9835"}': f"1{FLAT}"}
    page = page_series("nvidia_gpu_exporter.prom", "nv")
    assert_firing(written("vllm", **options), {**base, **up, **page}, set(), tmp_path)
    full = 'nvidia_smi_memory_used_bytes{uuid="a",job="nv",instance="nv:9835"}'
    stuck = {k: f"0{FLAT}" for k in page if k.startswith("nvidia_smi_last_collect_success{")}
    bad = {**base, **up, **page, **stuck, full: f"{77 * 2**30}{FLAT}"}
    assert_firing(
        written("vllm", **options), bad, {"GpuExporterDown", "GpuMemoryAbovePlan"}, tmp_path
    )


def test_gpu_use_is_joined_by_the_host_where_a_label_says_so(tmp_path: Path) -> None:
    """The engine waits on host a, whose GPUs are busy; those of host b are idle."""
    series = {}
    for key, value in healthy(kv_cache_usage_perc=f"0.95{FLAT}", waiting=f"4{FLAT}").items():
        here = key.replace('instance="e:8000"', 'instance="e:8000",node="a"')
        series[here.replace('instance="g:9400"', 'instance="g:9400",node="a"')] = value
    idle = 'DCGM_FI_DEV_GPU_UTIL{job="dcgm",instance="h:9400",gpu="0",node="b"}'
    series[idle] = f"0{FLAT}"
    three = {"KvPoolUseHigh", "KvPoolNearlyFull", "RequestsWaiting"}
    assert_firing(written("vllm", host_label="node"), series, three, tmp_path)
    # Without the label it is the mean over both hosts, 47.5 %, and the advice is wrong.
    assert_firing(written("vllm"), series, {*three, "OffloadWorthTrying"}, tmp_path)


def test_every_alert_says_what_is_wrong_how_bad_and_what_to_do() -> None:
    document = yaml.safe_load(written("vllm"))
    found = [rule for group in document["groups"] for rule in group["rules"] if "alert" in rule]
    assert {rule["alert"] for rule in found} == set(ALERTS)
    headings = (ROOT / "docs" / "runbook.md").read_text()
    for rule in found:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"]
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert f"\n## {rule['alert']}\n" in headings


def test_a_summary_as_a_person_reads_it(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(written("vllm"))
    series = healthy(kv_cache_usage_perc=f"0.95{FLAT}", **{WAITING: f"4{FLAT}"})
    document = yaml.safe_load(written("vllm"))
    rule = next(
        r for g in document["groups"] for r in g["rules"] if r.get("alert") == "KvPoolNearlyFull"
    )
    summary = (
        "e:8000: 95% of the KV pool in use (planned: 54.00 GiB or 448,000 tokens a GPU) while "
        "requests wait, critical above 90%"
    )
    action = (
        "--kv fp8_e4m3 would hold 27 sequences of 32,768 tokens where bf16 holds 13. At 32,768 "
        "tokens each the plan's pool holds 13 sequences: admit no more, or add a replica."
    )
    alert = {
        "eval_time": "1h",
        "alertname": "KvPoolNearlyFull",
        "exp_alerts": [
            {
                "exp_labels": {
                    "severity": "critical", "engine": "vllm", "job": "engine",
                    "instance": "e:8000", "model_name": "m",
                },
                "exp_annotations": {**rule["annotations"], "summary": summary, "action": action},
            }
        ],
    }  # fmt: skip
    run_promtool(
        {
            "rule_files": ["rules.yml"],
            "evaluation_interval": "30s",
            "tests": [
                {
                    "interval": "30s",
                    "input_series": [{"series": k, "values": v} for k, v in series.items()],
                    "alert_rule_test": [alert],
                }
            ],
        },
        tmp_path,
    )


def test_names_of_strangers_stay_names(tmp_path: Path) -> None:
    nasty = 'x{{ query "up" }}\n# ", job=~".*"} or vector(1) #: \x1b[31m'
    plan = PLAN._replace(model=nasty, options=(("--kv {{ .Labels }}", 3),))
    asked = question("vllm", plan=plan)
    asked = asked._replace(options=asked.options._replace(job='a"} or vector(1) or up{job="b'))
    text = render(rules(asked), plan)
    check(text, tmp_path)
    assert "\x1b" not in text
    document = yaml.safe_load(text)
    for group in document["groups"]:
        for rule in group["rules"]:
            assert 'or up{job="b' not in rule["expr"]
            shown = rule.get("annotations", {}).get("plan", "")
            assert "{{ query" not in shown.replace('{{ "{{" }} query', "")
    assert_firing(
        text, {'up{job="engine"}': f"1{FLAT}"}, {"EngineDown", "GpuExporterDown"}, tmp_path
    )


def test_what_is_left_out_is_said() -> None:
    text = written("tgi", plan=None, exporter=None, peak_tokens_per_s=None)
    comments = " ".join(
        line.removeprefix("#").strip() for line in text.split("\n") if line.startswith("#")
    )
    for said in (
        "KV use: not exported",
        "time to first token: not exported",
        "GpuMemoryAbovePlan, GpuExporterDown: no --exporter was named",
        "PlanDrift: no plan was given",
        "ThroughputBelowPeak: no engine exports its peak: give --peak-tokens-per-s",
    ):
        assert said in comments
    assert "kvplan:peak_tokens_per_s is the constant 1000 tokens/s" in written("vllm")

"""Every format of results, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import MalformedFile, SourceError
from kvplan.gating.readers import read_evaluation
from kvplan.gating.results import Evaluation, Kind, kind_of

NEW = {
    "results": {
        "gsm8k": {
            "alias": "gsm8k",
            "exact_match,strict-match": 0.5,
            "exact_match_stderr,strict-match": 0.01,
            "exact_match,flexible-extract": 0.6,
            "exact_match_stderr,flexible-extract": "N/A",
        },
        "mmlu": {"acc,none": 0.7, "acc_stderr,none": 0.004},
        "mmlu_law": {"acc,none": 0.7, "acc_stderr,none": 0.004},
        "wikitext": {"word_perplexity,none": 8.5, "bits_per_byte,none": 0.5},
    },
    "group_subtasks": {"mmlu": ["mmlu_law"], "gsm8k": []},
    "n-samples": {"gsm8k": {"original": 1319, "effective": 1319}, "mmlu_law": {"effective": 100}},
    "n-shot": {"gsm8k": 5},
    "higher_is_better": {"wikitext": {"word_perplexity": False, "bits_per_byte": False}},
}
OLD = {
    "results": {"hellaswag": {"acc": 0.55, "acc_stderr": 0.005, "acc_norm": 0.73}},
    "versions": {"hellaswag": 0},
    "config": {"model": "hf"},
}


def read(tmp_path: Path, name: str, body: Any) -> Evaluation:
    path = tmp_path / name
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return read_evaluation(str(path))


def test_the_newer_layout(tmp_path: Path) -> None:
    scores = read(tmp_path, "results.json", NEW).scores
    assert set(scores) == {
        ("gsm8k", "exact_match,strict-match"), ("gsm8k", "exact_match,flexible-extract"),
        ("mmlu_law", "acc"), ("wikitext", "word_perplexity"), ("wikitext", "bits_per_byte"),
    }  # fmt: skip
    strict = scores["gsm8k", "exact_match,strict-match"]
    assert (strict.value, strict.stderr, strict.size, strict.shots) == (0.5, 0.01, 1319, 5)
    assert scores["gsm8k", "exact_match,flexible-extract"].stderr is None
    assert scores["wikitext", "word_perplexity"].kind is Kind.PERPLEXITY
    assert scores["wikitext", "bits_per_byte"].kind is Kind.OTHER


def test_the_older_layout(tmp_path: Path) -> None:
    scores = read(tmp_path, "old.json", OLD).scores
    assert scores["hellaswag", "acc"].stderr == 0.005
    assert scores["hellaswag", "acc_norm"].stderr is None


def test_a_folder_as_the_harness_writes_it(tmp_path: Path) -> None:
    run = tmp_path / "out" / "meta-llama__Llama"
    run.mkdir(parents=True)
    older = json.loads(json.dumps(NEW))
    older["results"]["gsm8k"]["exact_match,strict-match"] = 0.1
    (run / "results_2026-01-01T00-00-00.000001.json").write_text(json.dumps(older))
    (run / "results_2026-02-01T00-00-00.000001.json").write_text(json.dumps(NEW))
    lines = [
        {"doc_id": n, "doc_hash": f"h{n}", "filter": f, "exact_match": float(n % 2)}
        for n in range(4)
        for f in ("strict-match", "flexible-extract")
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "samples_gsm8k_2026-02-01T00-00-00.000001.jsonl").write_text(text)
    words = [{"doc_id": 0, "doc_hash": "w", "word_perplexity": [-100.0, 50]}]
    (run / "samples_wikitext_2026-02-01T00-00-00.000001.jsonl").write_text(json.dumps(words[0]))
    (run / "notes.json").write_text("[1, 2]")
    scores = read_evaluation(str(tmp_path / "out")).scores
    strict = scores["gsm8k", "exact_match,strict-match"]
    assert strict.value == 0.5
    assert strict.size == 4
    assert strict.samples == {"0/h0": 0.0, "1/h1": 1.0, "2/h2": 0.0, "3/h3": 1.0}
    assert scores["wikitext", "word_perplexity"].samples == {"0/w": (-100.0, 50.0)}


def test_samples_inside_the_results(tmp_path: Path) -> None:
    body = {**OLD, "samples": {"hellaswag": [{"doc_id": 0, "acc": True}, {"doc_id": 1, "acc": 0}]}}
    scores = read(tmp_path, "with.json", body).scores
    assert scores["hellaswag", "acc"].samples == {"0/": 1.0, "1/": 0.0}


def test_longbench_and_its_lengths(tmp_path: Path) -> None:
    scores = read(tmp_path, "result.json", {"qasper": 44.1, "2wikimqa": 40.0}).scores
    assert scores["qasper", "score"].kind is Kind.LONGBENCH
    by_length = read(tmp_path, "e.json", {"qasper": {"0-4k": 44.1, "4-8k": 40.0}}).scores
    assert by_length["qasper/4-8k", "score"].kind is Kind.LONGBENCH


def test_perplexity_in_json_and_csv(tmp_path: Path) -> None:
    flat = read(tmp_path, "a.json", {"perplexity": 5.68, "model": "x"}).scores
    assert flat["all", "perplexity"].kind is Kind.PERPLEXITY
    nested = read(tmp_path, "b.json", {"wikitext2": {"ppl": 5.47, "seconds": 3}}).scores
    assert nested["wikitext2", "ppl"].kind is Kind.PERPLEXITY
    table = read(tmp_path, "c.csv", "Task,Metric,Value,N\nwikitext,perplexity,5.47,\n").scores
    assert table["wikitext", "perplexity"].value == 5.47


def test_tables(tmp_path: Path) -> None:
    scores = read(tmp_path, "t.csv", "task,metric,value,n,stderr\ngsm8k,acc,0.5,870,0.017\n").scores
    score = scores["gsm8k", "acc"]
    assert (score.value, score.size, score.stderr) == (0.5, 870, 0.017)
    wide = read(tmp_path, "w.csv", "model,qasper,hotpotqa\nx,44.1,50\n").scores
    assert wide["qasper", "score"].value == 44.1
    samples = read(tmp_path, "s.csv", "task,id,correct\ngsm8k,a,true\ngsm8k,b,0\n").scores
    assert samples["gsm8k", "score"].samples == {"a": 1.0, "b": 0.0}


def test_calibration_and_a_benchmark(tmp_path: Path) -> None:
    found = read(tmp_path, "c.json", {"num_calibration_samples": 512, "kv_mse": 0.02})
    assert found.calibration == {"calibration_samples": 512, "kv_mse": 0.02}
    assert not found.scores
    bench = {"output_throughput": 900.0, "request_throughput": 3.0, "mean_ttft_ms": 80.0,
             "ttfts": [0.1]}  # fmt: skip
    assert read(tmp_path, "b.json", bench).bench["mean_ttft_ms"] == 80.0


@pytest.mark.parametrize(
    ("name", "body", "why"),
    [
        ("x.json", "", "is empty"),
        ("x.json", "{", "is not valid JSON"),
        ("x.json", "[1]", "no object of results"),
        ("x.json", "{}", "holds no evaluation results"),
        ("x.json", '{"results": {"a": {"acc": NaN}}}', "holds no evaluation results"),
        ("x.json", '{"a": ' + "9" * 5000 + "}", "number too long"),
        ("x.json", "[" * 200_000, "nested too deeply"),
        ("x.csv", "", "has no header line"),
        ("x.csv", "task,value\n", "no lines"),
        ("x.csv", "task,value\na,b\n", "line 2: 'b' is not a number"),
        ("x.csv", "task,value\na,1,2\n", "more cells than the header"),
        ("x.csv", "task,id,value\na,1,1\na,1,0\n", "repeats the sample"),
        ("x.csv", "a,b\n1,2\n3,4\n", "no column value or score"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, body: str, why: str) -> None:
    with pytest.raises(MalformedFile, match=why):
        read(tmp_path, name, body)


def test_samples_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(OLD))
    (tmp_path / "samples_hellaswag.jsonl").write_text('{"doc_id": 0}\nnot json\n')
    with pytest.raises(MalformedFile, match="line 2 is not a JSON object"):
        read_evaluation(str(tmp_path))


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    import os

    (tmp_path / "results.json").write_text(json.dumps(OLD))
    os.mkfifo(tmp_path / "samples_hellaswag.jsonl")
    with pytest.raises(MalformedFile, match="not a regular file"):
        read_evaluation(str(tmp_path))


def test_a_missing_file() -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        read_evaluation("missing.json")


@pytest.mark.parametrize(
    ("task", "metric", "kind"),
    [
        ("gsm8k", "exact_match,strict-match", Kind.SCORE),
        ("wikitext", "byte_perplexity", Kind.PERPLEXITY),
        ("wmt14", "bleu", Kind.BLEU),
        ("longbench_qasper", "qa_f1_score", Kind.LONGBENCH),
        ("faith", "hallucination_rate", Kind.HALLUCINATION),
        ("asr", "wer", Kind.OTHER),
    ],
)
def test_how_a_figure_is_judged(task: str, metric: str, kind: Kind) -> None:
    assert kind_of(task, metric) is kind

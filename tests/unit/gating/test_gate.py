"""Keep, roll back, or undecided: each answer from figures worked out by hand."""

from __future__ import annotations

import math

import pytest
from prometheus_tools import PLAN

from kvplan.errors import InputError
from kvplan.gating.decision import Answer, compare
from kvplan.gating.gate import Options, gate
from kvplan.gating.report import render
from kvplan.gating.results import Evaluation, Score, kind_of
from kvplan.gating.rollback import rollback_flags, rollback_room
from kvplan.policy import load_policy

POLICY = load_policy()
Q = POLICY.quality


def score(value: float, metric: str = "acc", task: str = "gsm8k", **more: object) -> Score:
    return Score(task, metric, value, kind_of(task, metric), **more)  # type: ignore[arg-type]


def paired(lost: int, won: int, right: int, wrong: int) -> tuple[Score, Score]:
    """The same questions in both runs."""
    before = [1.0] * (lost + right) + [0.0] * (won + wrong)
    after = [0.0] * lost + [1.0] * right + [1.0] * won + [0.0] * wrong
    names = [str(n) for n in range(len(before))]
    return tuple(
        score(sum(v) / len(v), samples=dict(zip(names, v, strict=True)), size=len(v))
        for v in (before, after)
    )  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("lost", "won", "right", "wrong", "answer"),
    [
        # Nothing changed of 1,000: the interval is within 2 points.
        (0, 0, 700, 300, Answer.KEEP),
        # 10 lost and 8 won of 1,000: 0.2 points, at most about 1.
        (10, 8, 700, 282, Answer.KEEP),
        # 60 lost and 10 won of 1,000: 5 points, and p is tiny.
        (60, 10, 640, 290, Answer.ROLL_BACK),
        # 5 lost and 1 won of 100: 4 points, but p = 2 x 7/64 = 0.22.
        (5, 1, 65, 29, Answer.UNDECIDED),
        # 30 lost and 10 won of 1,000: 2 points, at the limit; the interval goes beyond.
        (30, 10, 670, 290, Answer.UNDECIDED),
    ],
)
def test_paired_answers(lost: int, won: int, right: int, wrong: int, answer: Answer) -> None:
    report = compare(*paired(lost, won, right, wrong), Q)
    assert report.answer is answer
    assert "McNemar" in report.method
    assert f"{lost} answers lost and {won} won" in report.note
    assert (report.samples_needed is not None) == (answer is Answer.UNDECIDED)


def test_two_points_of_870_questions_are_noise() -> None:
    """0.7215 and 0.7015 of 870 each: the standard error of the difference is 2.2 points."""
    report = compare(score(0.7215, size=870), score(0.7015, size=870), Q)
    assert report.answer is Answer.UNDECIDED
    assert report.samples_needed is not None
    assert 7_900 < report.samples_needed < 8_200
    # 3 points of 20,000 each are not.
    assert compare(score(0.72, size=20_000), score(0.69, size=20_000), Q).answer is Answer.ROLL_BACK
    assert compare(score(0.72, size=20_000), score(0.721, size=20_000), Q).answer is Answer.KEEP


def test_without_any_count_a_score_stays_undecided() -> None:
    report = compare(score(0.72), score(0.72), Q)
    assert report.answer is Answer.UNDECIDED
    assert "no number of samples" in report.note


def test_standard_errors_serve_where_there_are_no_samples() -> None:
    kept = compare(score(0.5, "f1", stderr=0.001), score(0.499, "f1", stderr=0.001), Q)
    assert kept.answer is Answer.KEEP
    assert kept.method == "unpaired: standard errors"
    worse = compare(score(0.5, "f1", stderr=0.001), score(0.45, "f1", stderr=0.001), Q)
    assert worse.answer is Answer.ROLL_BACK


def test_scores_in_percent_are_the_same() -> None:
    share = compare(score(0.5, "f1", stderr=0.001), score(0.45, "f1", stderr=0.001), Q)
    percent = compare(score(50, "f1", stderr=0.1), score(45, "f1", stderr=0.1), Q)
    assert percent.loss == pytest.approx(share.loss)
    assert percent.answer is share.answer


def test_marks_out_of_ten() -> None:
    """8.3 to 7.3 of 10 is 10 points, whatever 2 points of 100 would be."""
    report = compare(score(8.3, "mark", stderr=0.05), score(7.3, "mark", stderr=0.05), Q)
    assert report.loss == pytest.approx(0.1)
    assert report.answer is Answer.ROLL_BACK


def test_samples_say_their_own_scale() -> None:
    """The results state percentages, the samples 0 and 1: 60 lost and 10 won of 1,000."""
    before, after = (s._replace(value=s.value * 100) for s in paired(60, 10, 640, 290))
    report = compare(before, after, Q)
    assert report.loss == pytest.approx(0.05)
    assert report.answer is Answer.ROLL_BACK


def test_paired_scores_that_are_not_right_or_wrong() -> None:
    before = {str(n): 0.5 + 0.3 * math.sin(n) for n in range(400)}
    near = {k: v - 0.001 for k, v in before.items()}
    far = {k: v - 0.05 + 0.01 * math.cos(float(k)) for k, v in before.items()}

    def of(samples: dict[str, float]) -> Score:
        return score(sum(samples.values()) / 400, "f1", samples=dict(samples), size=400)

    assert compare(of(before), of(near), Q).answer is Answer.KEEP
    assert compare(of(before), of(far), Q).answer is Answer.ROLL_BACK
    other = {f"x{k}": v for k, v in near.items()}
    assert compare(of(before), of(other), Q).answer is Answer.UNDECIDED  # other questions


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [(5.47, 5.70, Answer.KEEP), (5.47, 5.74, Answer.KEEP), (5.47, 5.75, Answer.ROLL_BACK)],
)
def test_perplexity(before: float, after: float, answer: Answer) -> None:
    """5.47 x 1.05 is 5.7435."""
    report = compare(
        score(before, "perplexity", "wikitext"), score(after, "perplexity", "wikitext"), Q
    )
    assert report.answer is answer
    assert report.loss == pytest.approx(after / before - 1)
    assert report.limit == pytest.approx(0.05)


def test_perplexity_with_its_documents() -> None:
    """Log-likelihoods over words: the mean of the parts is the log of the ratio."""
    before = {str(n): (-200.0 - n % 7, 100.0) for n in range(60)}
    after = {k: (v[0] - 1.0 - 0.1 * (int(k) % 3), v[1]) for k, v in before.items()}

    def of(samples: dict[str, tuple[float, float]]) -> Score:
        value = math.exp(-sum(v[0] for v in samples.values()) / sum(v[1] for v in samples.values()))
        return score(value, "word_perplexity", "wikitext", samples=dict(samples), size=60)

    report = compare(of(before), of(after), Q)
    # 1.1 more nats per 100 words on average: a ratio of exp(0.011).
    assert report.loss == pytest.approx(math.expm1(0.011), rel=1e-6)
    assert report.answer is Answer.KEEP
    assert report.low is not None
    assert report.low > 0


@pytest.mark.parametrize(
    ("metric", "task", "before", "after", "answer"),
    [
        ("bleu", "wmt", 30.0, 29.4, Answer.KEEP),  # 0.98 exactly
        ("bleu", "wmt", 30.0, 29.3, Answer.ROLL_BACK),
        ("score", "qasper", 40.0, 34.0, Answer.KEEP),  # 0.85 exactly
        ("score", "qasper", 40.0, 33.9, Answer.ROLL_BACK),
        ("hallucination_rate", "faith", 0.03, 0.05, Answer.KEEP),
        ("hallucination_rate", "faith", 0.03, 0.051, Answer.ROLL_BACK),
    ],
)
def test_ratios_and_ceilings(
    metric: str, task: str, before: float, after: float, answer: Answer
) -> None:
    assert compare(score(before, metric, task), score(after, metric, task), Q).answer is answer


def test_hallucinations_with_their_number() -> None:
    def answer(share: float, size: int) -> Answer:
        one = score(share, "hallucination_rate", "faith", size=size)
        return compare(one, one, Q).answer

    assert answer(0.04, 100) is Answer.UNDECIDED  # Wilson: 1.6 to 9.8 %
    assert answer(0.04, 10_000) is Answer.KEEP
    assert answer(0.06, 10_000) is Answer.ROLL_BACK


def test_other_prompts_are_not_compared() -> None:
    report = compare(score(0.7, size=9_000, shots=5), score(0.7, size=9_000, shots=0), Q)
    assert report.answer is Answer.UNDECIDED
    assert "not comparable" in report.note


def run(*scores: Score, **more: object) -> Evaluation:
    evaluation = Evaluation("run", **more)  # type: ignore[arg-type]
    for one in scores:
        evaluation.add(one)
    return evaluation


def test_the_worst_task_decides() -> None:
    good = score(0.72, size=20_000)
    bad = score(5.0, "perplexity", "wikitext"), score(6.0, "perplexity", "wikitext")
    report = gate(run(good, bad[0]), run(good, bad[1]), POLICY, Options())
    assert report.answer is Answer.ROLL_BACK
    assert report.reason == "wikitext perplexity: worse than the policy allows"
    assert report.rollback_flags == ["--kv-cache-dtype", "auto"]
    only = gate(run(good, bad[0]), run(good, bad[1]), POLICY, Options(tasks=("gsm*",)))
    assert only.answer is Answer.KEEP


def test_the_average_of_longbench_counts() -> None:
    names = ("qasper", "hotpotqa", "trec")
    before = run(*(score(40.0, "score", name) for name in names))
    after = run(
        *(
            score(value, "score", name)
            for name, value in zip(names, (34.0, 34.0, 34.0), strict=True)
        )
    )
    report = gate(before, after, POLICY, Options())
    average = next(task for task in report.tasks if task.metric == "average")
    assert (average.baseline, average.candidate, average.answer) == (40, 34, Answer.KEEP)


def test_calibration_and_ceiling() -> None:
    base = run(score(4.9, "perplexity", "wikitext"))
    cand = run(
        score(5.1, "perplexity", "wikitext"),
        calibration={"calibration_samples": 9_999, "kv_mse": 0.009, "quantisation_error": 0.01},
    )
    report = gate(base, cand, POLICY, Options(perplexity_ceiling=True))
    answers = {(t.metric, t.rule): t.answer for t in report.tasks}
    assert answers["samples", "at least 10,000 samples"] is Answer.ROLL_BACK
    assert answers["KV-matching MSE", "below 0.01"] is Answer.KEEP
    assert answers["quantisation error", "below 0.01 as a share"] is Answer.ROLL_BACK
    assert answers["perplexity", "absolute ceiling 5"] is Answer.ROLL_BACK
    assert answers["perplexity", "perplexity at most 1.05 x the baseline's"] is Answer.KEEP


def test_benchmarks() -> None:
    before = {"output_throughput": 1000.0, "mean_ttft_ms": 150.0, "mean_tpot_ms": 60.0}
    after = {"output_throughput": 799.0, "mean_ttft_ms": 201.0, "mean_tpot_ms": 61.0}
    report = gate(run(bench=before), run(bench=after), POLICY, Options())
    answers = {t.metric: t.answer for t in report.tasks}
    assert answers == {
        "output_throughput": Answer.ROLL_BACK,  # below 800
        "mean_ttft_ms": Answer.ROLL_BACK,
        "mean_tpot_ms": Answer.KEEP,  # the baseline missed 50 ms as well
    }


def test_nothing_in_common() -> None:
    with pytest.raises(InputError, match="no task in common"):
        gate(run(score(0.5)), run(score(0.5, task="arc")), POLICY, Options())
    with pytest.raises(InputError, match="no such task"):
        gate(run(score(0.5)), run(score(0.5)), POLICY, Options(tasks=("arc",)))


def test_what_was_not_evaluated_is_said_and_undecided() -> None:
    both = score(0.72, size=20_000)
    report = gate(run(both, score(0.5, task="arc", size=9)), run(both), POLICY, Options())
    assert report.answer is Answer.UNDECIDED
    assert "arc acc" in report.reason


def test_rolling_back() -> None:
    assert rollback_flags("llamacpp") == ["--cache-type-k", "f16", "--cache-type-v", "f16"]
    with pytest.raises(InputError, match="does not know"):
        rollback_flags("vlm")
    assert rollback_room(PLAN) == "there is room: a 16-bit cache holds 13 x 32,768 tokens"
    assert rollback_room(PLAN._replace(batch=20)).startswith("no room for the batch of 20")
    assert "does not say" in rollback_room(PLAN._replace(formats=()))


def test_reports_name_strangers_words_safely() -> None:
    nasty = "x|y\x1b[31m<script>`*\n#"
    one = score(0.5, task=nasty, size=9)
    report = gate(run(one), run(one), POLICY, Options())
    assert "\x1b" not in render(report, "table") + render(report, "markdown")
    assert "<script>" not in render(report, "markdown").replace("\\<script", "")

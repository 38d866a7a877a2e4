"""A log of known terms gives them back, and corrections carry over as they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kvplan.calibration import Calibration, Measured, Observed
from kvplan.calibration.schema import read_calibration, to_document
from kvplan.deployment import Deployment
from kvplan.engines import load_engine
from kvplan.engines.base import Term
from kvplan.errors import InputError, MalformedFile
from kvplan.planning.budget import Budget, evaluate
from kvplan.planning.calibrate import CalibrationReport, ComparedTerm, compare
from kvplan.planning.correction import corrected_terms, corrected_weights
from kvplan.question import build_deployment
from kvplan.units import GIB, cdiv

VLLM: Any = load_engine("vllm")


def asked(engine: str = "vllm@0.33", **flags: Any) -> Deployment:
    return build_deployment(
        "llama-3.1-8b", **{"gpu": "h100-sxm", "seq": "16k", "engine": engine} | flags
    )


def budget(d: Deployment) -> Budget:
    return evaluate(VLLM, VLLM.resolve(d), 0.0)


def log_of(b: Budget, factor: float = 1.0) -> Observed:
    """A start that printed the likely figures, its activation ``factor`` times as large."""
    sizes = {t.key: t.likely for t in b.terms}
    activation = round(sizes["activation"] * factor)
    in_claim = next(t.in_claim for t in b.terms if t.key == "cuda_graph")
    pool = b.pool_bytes + sizes["activation"] - activation
    figures = VLLM.pool_figures(b.deployment, b.layout, pool)
    return Observed(
        device_bytes=b.deployment.total_bytes,
        claim_bytes=b.claim_bytes,
        weight_bytes=b.weight_bytes,
        runtime_bytes=sizes["runtime"],
        activation_bytes=activation,
        graph_estimate_bytes=sizes["cuda_graph"] if in_claim else None,
        graph_bytes=sizes["cuda_graph"],
        pool_bytes=pool,
        pool_blocks=b.layout.pool_blocks(pool),
        pool_tokens=figures.tokens,
        max_concurrency=figures.max_concurrency,
    )


def compared(d: Deployment, o: Observed) -> tuple[CalibrationReport, Calibration]:
    return compare(VLLM, VLLM, d, o, {"seq"})


def one(report: CalibrationReport, key: str) -> ComparedTerm:
    return next(term for term in report.terms if term.key == key)


@pytest.mark.parametrize("engine", ["vllm@0.33", "vllm@0.19", "vllm@0.11", "vllm@0.7"])
def test_a_log_as_planned_gives_ratio_one(engine: str) -> None:
    d = asked(engine)
    report, found = compared(d, log_of(budget(d)))
    assert [term.ratio for term in report.terms if term.ratio is not None] == pytest.approx(
        [1.0] * sum(term.ratio is not None for term in report.terms)
    )
    assert all(term.inside for term in report.terms)
    assert report.explanations == []
    assert found.weights is not None
    assert found.activation is not None
    assert found.cuda_graph is not None
    assert {found.weights.ratio, found.activation.ratio, found.cuda_graph.ratio} == {1.0}
    again = budget(d._replace(calibration=found))
    assert again.pool_bytes == budget(d).pool_bytes
    assert again.careful_pool_bytes > budget(d).careful_pool_bytes, "the range is narrower"


def test_a_larger_activation_is_measured_and_corrects_the_next_plan() -> None:
    d = asked()
    plain = budget(d)
    observed = log_of(plain, factor=1.5)
    report, found = compared(d, observed)
    assert found.activation is not None
    assert found.activation.ratio == 1.5
    assert one(report, "activation_bytes").inside is False
    corrected = budget(d._replace(calibration=found))
    assert corrected.pool_bytes == pytest.approx(observed.pool_bytes, abs=1024)
    longer = d._replace(calibration=found).with_args(max_num_seqs=128)
    assert budget(longer).term("activation") == round(
        budget(d.with_args(max_num_seqs=128)).term("activation") * 1.5
    )


def test_a_setting_that_the_log_does_not_state_explains_the_difference() -> None:
    d = asked("vllm@0.11")
    real = budget(d.with_args(max_num_seqs=256, max_num_batched_tokens=8192))
    report, _ = compared(d, log_of(real))
    assert any(
        "max_num_seqs 256" in said and "would explain" in said for said in report.explanations
    )
    stated, _ = compare(
        VLLM, VLLM, d, log_of(real), {"seq", "max_num_seqs", "max_num_batched_tokens"}
    )
    assert not any("would explain" in said for said in stated.explanations)


def test_what_no_line_states_is_measured_from_what_is_left() -> None:
    """claim - weights - pool holds activation, runtime and graphs: the others stay as planned."""
    d = asked("vllm@0.11")
    o = log_of(budget(d), factor=0.5)._replace(
        activation_bytes=None, runtime_bytes=None, claim_bytes=None
    )
    report, found = compared(d, o)
    assert found.activation is not None
    assert found.activation.ratio == pytest.approx(0.5, abs=1e-3)
    assert one(report, "rest_bytes").observed is not None


def test_one_figure_for_activation_and_graphs_corrects_both() -> None:
    d = asked("vllm@0.27")
    b = budget(d)
    both = b.term("activation") + b.term("cuda_graph")
    o = Observed(activation_bytes=2 * both, activation_holds_graphs=True)
    report, found = compared(d, o)
    assert found.activation == found.cuda_graph == Measured(2.0, 2 * both, both)
    assert one(report, "activation_and_graph_estimate_bytes").ratio == 2.0


def test_figures_that_are_no_correction_are_left_out() -> None:
    d = asked()
    o = Observed(weight_bytes=0, activation_bytes=1, graph_estimate_bytes=-5, runtime_bytes=-3)
    _, found = compared(d, o)
    assert (found.weights, found.activation, found.cuda_graph, found.runtime_bytes) == (None,) * 4


def test_explanations_name_device_weights_runtime_and_workers() -> None:
    d = asked()
    b = budget(d)
    o = log_of(b)._replace(
        device_bytes=(d.total_bytes or 0) - GIB,
        weight_bytes=d.model.weight_bytes(build_deployment(
            "llama-3.1-8b", gpu="h100-sxm", weights="fp8").scheme),
        runtime_bytes=6 * GIB,
        workers=4,
        graph_bytes=0,
        graph_estimate_bytes=2 * GIB,
        pool_bytes=b.pool_bytes - 5 * GIB,
    )  # fmt: skip
    report, _ = compared(d, o)
    said = "\n".join(report.explanations)
    for words in (
        "of device memory, the profile of h100-sxm has", "fp8 weights would be",
        "beyond all that was measured", "4 workers", "estimated 2.00 GiB above",
        "of it by the runtime",
    ):  # fmt: skip
        assert words in said


CALIBRATION = Calibration(
    gpu="h100-sxm", engine="vllm", engine_version="0.33", model="llama-3.1-8b",
    weight_format="bf16", tp=1, pp=1, max_num_seqs=1024, max_num_batched_tokens=8192,
    device_bytes=80 * GIB, weights=Measured(1.01, 101, 100), activation=Measured(0.5, 50, 100),
    cuda_graph=Measured(2.0, 200, 100), runtime_bytes=GIB,
)  # fmt: skip


def test_a_corrected_law_keeps_half_its_range() -> None:
    """100 to 400 around 200, halved: 50 to 200 around 100, of which half is 75 to 150."""
    (term,) = corrected_terms((Term("activation", 100, 200, 400, "law"),), asked(), CALIBRATION)
    assert (term.low, term.likely, term.high) == (75, 100, 100 + cdiv(100, 2))
    assert "calibration" in term.source


def test_runtime_and_weights_hold_where_they_were_measured() -> None:
    here, split = asked(), asked(tp=2)
    law = (Term("runtime", 1, 2, 3, "law"), Term("other", 1, 2, 3, "law"))
    measured, other = corrected_terms(law, here, CALIBRATION)
    assert (measured.low, measured.likely, measured.high) == (GIB, GIB, GIB)
    assert other == law[1]
    assert corrected_terms(law, split, CALIBRATION) == law
    assert corrected_weights(1000, here, CALIBRATION) == 1010
    assert corrected_weights(1000, split, CALIBRATION) == 1000
    assert corrected_weights(1000, asked(weights="fp8"), CALIBRATION) == 1000


def written(path: Path, document: object) -> str:
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = written(tmp_path / "cal.yaml", to_document(CALIBRATION))
    assert read_calibration(path) == CALIBRATION
    bare = CALIBRATION._replace(
        weights=None, activation=None, cuda_graph=None, runtime_bytes=None, device_bytes=None,
        max_num_seqs=None, max_num_batched_tokens=None,
    )  # fmt: skip
    assert read_calibration(written(tmp_path / "bare.yaml", to_document(bare))) == bare


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "kvplan.calibration/2"}, "schema is 'kvplan.calibration/2'"),
        ({"gpu": 5}, "gpu = 5"),
        ({"gpu": "a\nb"}, "gpu"),
        ({"more": 1}, "more is not a key of a calibration file"),
        ({"device_bytes": -1}, "device_bytes = -1"),
        ({"device_bytes": True}, "device_bytes = True"),
        ({"terms": {"activaton": None}}, "terms.activaton is not a key"),
        ({"terms": {"activation": {"ratio": 0, "observed_bytes": 1, "predicted_bytes": 1}}},
         "terms.activation.ratio = 0"),
        ({"terms": {"activation": {"ratio": float("nan"), "observed_bytes": 1,
                                   "predicted_bytes": 1}}}, "terms.activation.ratio = nan"),
        ({"terms": {"weights": {"ratio": 1.0}}}, "is missing"),
        ({"measured_on": {"weight_format": "bf16"}}, "measured_on.model is missing"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_one_is_refused_by_key(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    path = written(tmp_path / "cal.yaml", {**to_document(CALIBRATION), **change})
    with pytest.raises(MalformedFile, match=r"cal\.yaml") as caught:
        read_calibration(path)
    assert words in caught.value.message


def test_the_flag_takes_a_file_for_this_gpu_and_engine_only(tmp_path: Path) -> None:
    path = written(tmp_path / "cal.yaml", to_document(CALIBRATION))
    d = asked(calibration=path)
    assert (d.calibration, d.device_bytes) == (CALIBRATION, 80 * GIB)
    assert any("calibrated by a start of llama-3.1-8b" in said for said in d.assumptions)
    assert d.warnings == ()
    assert asked(calibration=path, gpu_memory="70GiB").device_bytes == 70 * GIB
    with pytest.raises(InputError, match="measured on the GPU h100-sxm, not on h200-sxm"):
        asked(calibration=path, gpu="h200-sxm")
    with pytest.raises(InputError, match="measured on the engine vllm, not on none"):
        asked("none", calibration=path)


def test_the_version_is_the_calibrated_one_unless_another_is_asked(tmp_path: Path) -> None:
    path = written(tmp_path / "cal.yaml", to_document(CALIBRATION._replace(engine_version="0.11")))
    assert asked("vllm", calibration=path).engine_version == "0.11"
    assert any("calibrated on vllm 0.11" in said for said in asked(calibration=path).warnings)

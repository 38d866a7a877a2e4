"""Whatever a plan or a manifest holds, it is judged or refused: nothing else can happen."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_files import CHAT, checked, deployment

from kvplan.checking.manifests.engines import deployed_by_command, deployed_by_manifest
from kvplan.checking.plan import MAX_PLAN_BYTES
from kvplan.checking.reading import read_plan
from kvplan.checking.report import Status
from kvplan.checking.reports import FORMATS, render
from kvplan.errors import KvplanError
from kvplan.question import FLAGS

SCRAPS = st.sampled_from(
    ["version: 1\n", "deployments:", "\n  - ", "name: a", "model: llama-3.1-8b", "gpu: h100-sxm",
     "budgets: {", "fits: ", "seq: ", "[", "]", "{", "}", ": ", "\n", "    ", "32k", "off", "~",
     "&a ", "*a", "!x ", "<<: ", "? ", "| \n", "\t", "'", '"', "\x00", "é", "1e999", "-", "#"]
)  # fmt: skip


@given(st.lists(SCRAPS, max_size=30))
def test_any_plan_is_read_or_refused(scraps: list[str]) -> None:
    read_plan("".join(scraps), "kvplan.yaml")


VALUES = st.one_of(
    st.sampled_from(
        ["0", "-1", "1e9", "32k", "auto", "true", "h100-sxm", "fp8", "none", "vllm@0.6"]
    ),
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=8),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from([flag.name for flag in FLAGS]), VALUES, max_size=4))
def test_any_flag_is_judged_or_refused(tmp_path: Path, flags: dict[str, str]) -> None:
    lines = [f"{k}: '{v.replace(chr(39), chr(39) * 2)}'" for k, v in flags.items() if k != "gpu"]
    report = checked(tmp_path, deployment(*lines, gpu=repr(flags.get("gpu", "h100-sxm"))))
    assert report.status in set(Status)
    for name in FORMATS:
        render(report, name)


WORDS = st.lists(
    st.one_of(
        st.sampled_from(["vllm", "serve", "--model", "-tp", "--no-", "--", "-", "=", "sh", "-c",
                         "python", "-m", "--max-model-len=", "8K", "'", '"', "$", "\\", ";", "{{"]),
        st.text(max_size=5),
    ),
    max_size=10,
)  # fmt: skip


@given(WORDS)
def test_any_command_is_read_or_refused(words: list[str]) -> None:
    for command in (" ".join(["vllm serve", *words]), ("vllm", "serve", *words), tuple(words)):
        with suppress(KvplanError):
            deployed_by_command(command, ())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SCRAPS | st.sampled_from(["services:", "kind: Pod", "containers:", "args:",
                                          "command: [vllm, serve, m]"]), max_size=20))  # fmt: skip
def test_any_manifest_is_read_or_refused(tmp_path: Path, scraps: list[str]) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text("".join(scraps), encoding="utf-8")
    with suppress(KvplanError):
        deployed_by_manifest(str(path), "deploy.yaml", None, ())


def test_a_plan_has_a_size(tmp_path: Path) -> None:
    report = checked(tmp_path, CHAT + "#" * MAX_PLAN_BYTES)
    (fault,) = report.files[0].faults
    assert "a document here has at most 1,048,576" in fault.message

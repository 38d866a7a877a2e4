"""The table: the verdict first, every figure with its unit, nothing wider than the screen."""

from __future__ import annotations

import io
import sys

import pytest
from report_builders import ESCAPE, GIB, changed, fits, make, oom, tight

from kvplan.planning.report import FitReport, MatrixReport, MatrixRow
from kvplan.reports.layout import cell_width
from kvplan.reports.table_report import render

WIDTHS = [40, 60, 80, 100, 140]

TABLE_AT_80 = """\
FITS  16.00 GiB of KV cache for 4 x 32,768 tokens in 20.00 GiB of pool: 4.00 GiB
      left
some-model: 6.74 billion parameters, bf16 weights, bf16 KV cache
1 x a-gpu, vllm 0.33, 4 sequences of 32,768 tokens

Memory per GPU ─────────────────────────────────────────────────────────────────
████████████████████████▚▚▞▞▞▞▒▒▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░░░░░········
█  weights          12.00 GiB   30.0 %  bf16
▚  activation peak   1.00 GiB    2.5 %  0.50 to 2.00 GiB
▞  CUDA graphs       2.00 GiB    5.0 %  0.00 to 3.00 GiB
▒  runtime           1.00 GiB    2.5 %
▓  KV cache needed  16.00 GiB   40.0 %  80.0 % of the pool
░  KV cache free     4.00 GiB   10.0 %  headroom
·  not claimed       4.00 GiB   10.0 %  gpu_memory_utilization 0.9
   KV pool          20.00 GiB   50.0 %  needed and free together
   GPU memory       40.00 GiB  100.0 %  as the framework sees it
KV cache per GPU ───────────────────────────────────────────────────────────────
  one token     131,072 B more at 32,768 tokens
  one sequence  4.00 GiB logical, 4.00 GiB reserved in 2,048 blocks of 16 tokens
  batch         16.00 GiB for 4 sequences
  pool          10,240 blocks of 2,097,152 B: 163,840 tokens
  concurrency   5.00x at max_model_len 32,768
  16 layers     full attention: 131,072 B a token
  16 layers     sliding window: 131,072 B a token up to 1,024 tokens
Limits, each on its own ────────────────────────────────────────────────────────
  largest batch      5               mildest weights         bf16
  longest sequence   40,960 tokens   max_num_seqs            up to 2,048
  smallest tp        1               max_num_batched_tokens  up to 8,192
  fewest GPUs        1               gpu_memory_utilization  0.8 or more
  mildest KV format  bf16            without CUDA graphs     fits
Batch that fits by context ─────────────────────────────────────────────────────
  KV format  bits   8k  32k
  bf16         16   20    5
  q8_0        8.5   37    9
Recommended ────────────────────────────────────────────────────────────────────
  batch       5: as many as the pool holds
  KV bits     16 bits, bf16: it fits at this precision
  window      none: it fits with every token kept
  block size  16 tokens: the smallest wastes least
Command ────────────────────────────────────────────────────────────────────────
  vllm serve some-model --max-model-len 32768
Warnings ───────────────────────────────────────────────────────────────────────
  ! beyond the native context
Assumptions ────────────────────────────────────────────────────────────────────
  - block_size 16: the default
"""


class Pipe(io.StringIO):
    """A stdout that is no terminal."""

    encoding = "utf-8"


@pytest.fixture(autouse=True)
def pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdout", Pipe())


def shown(report: FitReport, monkeypatch: pytest.MonkeyPatch, width: int = 80) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    return render(report, None, False)


def test_usual_report_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(fits(), monkeypatch) == TABLE_AT_80


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("report", [fits(), oom(), tight()], ids=["fits", "oom", "tight"])
def test_no_line_is_wider_than_the_screen(
    report: FitReport, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(report, monkeypatch, width)
    assert max(cell_width(line) for line in text.split("\n")) <= width
    assert ESCAPE not in text
    assert text.startswith(f"{report.verdict.upper()}  ")
    for figure in ("12.00 GiB", "40.00 GiB", "2,097,152 B", "32,768"):
        assert figure in text
    assert text.rstrip().endswith("block_size 16: the default")


@pytest.mark.parametrize("report", [fits(), oom(), tight()], ids=["fits", "oom", "tight"])
def test_report_stays_within_a_page(report: FitReport, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(report, monkeypatch).count("\n") <= 60
    assert shown(report, monkeypatch, 140).count("\n") <= 45


def test_wide_screen_shows_sections_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    line = next(
        line for line in shown(fits(), monkeypatch, 140).split("\n") if "Memory per GPU" in line
    )
    assert "KV cache per GPU" in line


def test_what_is_missing_is_said_and_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(oom(), monkeypatch)
    assert text.startswith("OOM  24.00 GiB of KV cache for 6 x 32,768 tokens, but only 20.00 GiB")
    assert "▶  missing           4.00 GiB   10.0 %  more than there is\n" in text
    assert "KV cache free" not in text
    assert "120.0 % of the pool" in text


def test_options_come_mildest_first_with_their_cost_and_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = shown(oom(), monkeypatch)
    first, second = text.index("--tp 2"), text.index("--kv fp8_e4m3")
    assert first < second
    fits_, tight_ = "FITS   12.00 GiB     12", "TIGHT  12.00 GiB     10"
    assert f"--tp 2         {fits_}  no loss of quality\n" in text
    assert f"--kv fp8_e4m3  {tight_}\n    GSM8K 0.9181 against 0.9168 | within noise" in text
    assert "(SGLang documentation)\n" in text
    assert "Single changes" not in shown(fits(), monkeypatch)


def test_no_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(oom(options=[]), monkeypatch)
    assert "no single change that kvplan knows makes it fit" in text


def test_measured_cost_is_not_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    report = oom()
    recommended = changed(
        report.recommended,
        kv_cache_dtype="fp8_e4m3",
        kv_bits=8.0,
        kv_reason="the mildest that fits; measured: GSM8K 0.9181 against 0.9168",
    )
    text = shown(changed(report, recommended=recommended), monkeypatch)
    assert "KV bits     8 bits, fp8_e4m3: the mildest that fits\n" in text


def test_unbounded_limits_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    report = fits()
    limits = changed(
        report.limits, max_batch=1 << 20, max_seq_len=1 << 40, max_num_seqs=None, min_tp=None
    )
    text = shown(changed(report, limits=limits), monkeypatch)
    assert "largest batch      no limit" in text
    assert "longest sequence   any length" in text
    assert "max_num_seqs            none fits" in text
    assert "smallest tp        none fits" in text


def test_given_pool_and_unknown_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    report = fits()
    memory = changed(report.memory, claim_bytes=None, weight_bytes=None)
    text = shown(changed(report, memory=memory), monkeypatch)
    assert "weights          not counted" in text
    assert "KV pool            20.00 GiB   50.0 %  as given" in text
    assert "mildest weights" not in text


def test_memory_held_by_others_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    report = fits()
    memory = changed(report.memory, device_bytes=42 * GIB)
    text = shown(changed(report, memory=memory), monkeypatch)
    assert "GPU memory       40.00 GiB  100.0 %  less 2.00 GiB held by others" in text


def test_bare_formula_has_no_engine_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    report = fits(flags=[], warnings=[], assumptions=[])
    bare = changed(
        report,
        deployment=changed(
            report.deployment, engine="none", engine_version=None, block_size=None,
            max_num_seqs=None, max_num_batched_tokens=None, gpu_memory_utilization=None,
        ),
        kv_cache=changed(
            report.kv_cache, page_bytes=None, pool_blocks=None, pool_tokens=None,
            max_concurrency=None, blocks_per_sequence=None,
        ),
        limits=changed(report.limits, fits_eager=None),
        recommended=changed(report.recommended, block_size=None),
    )  # fmt: skip
    text = shown(bare, monkeypatch)
    assert "no engine (the bare formula)" in text
    for word in ("blocks", "concurrency", "Command", "max_num_seqs", "Warnings", "Assumptions"):
        assert word not in text


def test_parallel_sizes_and_replicas_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    report = fits()
    split = changed(report.deployment, gpu_count=16, tp=8, dp=2)
    text = shown(changed(report, deployment=split), monkeypatch)
    assert "16 x a-gpu (tp 8, dp 2), vllm 0.33" in text
    assert "16.00 GiB for 4 sequences over 2 replicas" in text


def test_long_command_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/a/very/long/path/that/is/longer/than/any/narrow/screen"
    flags = ["vllm", "serve", path, "--max-model-len", "32768", "--block-size", "16"]
    text = shown(fits(flags=flags), monkeypatch, 40)
    lines = text[text.index("Command") :].split("\n")[1:]
    command = "\n".join(lines[: lines.index(next(x for x in lines if x.startswith("Warn")))])
    joined = command.replace("\\\n", "")
    assert joined.split() == flags


def test_quoted_word_is_left_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(fits(flags=["vllm", "serve", "a b's"]), monkeypatch)
    assert """vllm serve 'a b'"'"'s'""" in text


def test_names_from_strangers_send_no_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = fits(warnings=["\x1b[2J\x07gone"], flags=["vllm", "serve", "\x1b]0;x\x07"])
    named = changed(report.deployment, model="\x1b[31mred")
    text = shown(changed(report, deployment=named), monkeypatch)
    assert ESCAPE not in text
    assert "\x07" not in text
    assert "\\x1b[31mred" in text


def test_narrow_matrix_keeps_the_asked_context(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = [2048, 4096, 8192, 16384, 32768, 131072]
    row = make(MatrixRow, "turboquant_4bit_nc", 4.1875, [1000, 500, 250, 125, 62, 15])
    matrix = make(MatrixReport, contexts, [row])
    text = shown(fits(matrix=matrix), monkeypatch, 40)
    title = text[text.index("Batch that fits") :].split("\n")[1]
    assert "32k" in title
    assert " 2k" not in title
    assert "4.19" in shown(fits(matrix=matrix), monkeypatch, 80)


def test_ascii_screen_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ascii(Pipe):
        encoding = "ascii"

    monkeypatch.setattr(sys, "stdout", Ascii())
    for report in (fits(), oom()):
        assert shown(report, monkeypatch).isascii()


def test_colour_only_when_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert ESCAPE in shown(fits(), monkeypatch)
    assert ESCAPE not in render(fits(), None, True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert ESCAPE not in shown(fits(), monkeypatch)

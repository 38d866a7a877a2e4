"""A real Prometheus scrapes a real page, loads the rules, and the alert fires and ends."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from prometheus_tools import PAGES, tool
from web_server import changing, serving

pytestmark = pytest.mark.slow

PAGE = (PAGES / "vllm-0.33.0.prom").read_text()
HEALTHY = PAGE.replace("} 0.6125", "} 0.35").replace("} 3.0", "} 0.0")
OVERLOADED = PAGE.replace("} 0.6125", "} 0.97").replace("} 3.0", "} 9.0")
WAIT = 30.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def in_a_hurry(rules: str) -> str:
    """A test's copy of the rules: seconds where the real ones have minutes."""
    document = yaml.safe_load(re.sub(r"\[5m\]", "[4s]", rules))
    for group in document["groups"]:
        group["interval"] = "500ms"
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "1s"
    return yaml.safe_dump(document, sort_keys=False)


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """A Prometheus of its own, on this machine's loopback only; its address."""
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {"job_name": "vllm", "static_configs": [{"targets": [target.removeprefix("http://")]}]}
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        [
            tool("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)
        log.close()


def ask(url: str) -> dict[str, object] | None:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            answer: dict[str, object] = json.load(reply)
    except OSError:
        return None
    return answer


def firing(home: str) -> set[str] | None:
    """The alerts that Prometheus's own API calls firing; None until it answers."""
    answer = ask(f"{home}/api/v1/alerts")
    if answer is None:
        return None
    alerts = answer["data"]["alerts"]  # type: ignore[index]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def until(home: str, wanted: set[str]) -> set[str] | None:
    """What is firing once it is what is wanted, or at the end of patience."""
    end = time.monotonic() + WAIT
    seen = firing(home)
    while seen != wanted and time.monotonic() < end:
        time.sleep(0.2)
        seen = firing(home)
    return seen


def settled(home: str) -> bool:
    """Prometheus has scraped the page and evaluated the rules at least once."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        answer = ask(f"{home}/api/v1/query?query=kvplan:kv_use:ratio")
        if answer is not None and answer["data"]["result"]:  # type: ignore[index]
            return True
        time.sleep(0.2)
    return False


def test_an_overloaded_server_fires_and_a_healthy_one_does_not(
    kvplan_rules: str, tmp_path: Path
) -> None:
    page = {"now": HEALTHY}
    (tmp_path / "rules.yml").write_text(in_a_hurry(kvplan_rules))
    with (
        serving({"/metrics": changing(lambda: page["now"])}) as target,
        prometheus(tmp_path, target) as home,
    ):
        assert settled(home), (tmp_path / "log").read_text()
        time.sleep(2)
        assert firing(home) == set()
        page["now"] = OVERLOADED
        wanted = {"KvPoolUseHigh", "KvPoolNearlyFull", "RequestsWaiting"}
        assert until(home, wanted) == wanted
        page["now"] = HEALTHY
        assert until(home, set()) == set()


def test_watch_takes_its_rates_from_prometheus(kvplan_rules: str, tmp_path: Path) -> None:
    from kvplan.monitoring.prometheus_api import Prometheus
    from kvplan.monitoring.watch import Watched, Watcher
    from kvplan.policy import load_policy

    (tmp_path / "rules.yml").write_text(in_a_hurry(kvplan_rules))
    tokens = iter(range(0, 10_000_000, 500))

    def page() -> str:  # 500 tokens every half second
        return HEALTHY.replace("} 30500.0", f"}} {next(tokens)}.0")

    with serving({"/metrics": changing(page)}) as target, prometheus(tmp_path, target) as home:
        assert settled(home)
        time.sleep(5)
        source = Prometheus(home, target.removeprefix("http://"), window="4s")
        seen = Watcher(
            Watched(f"{target}/metrics", load_policy().monitoring, prometheus=source)
        ).look()
    assert seen.reading is not None
    assert seen.reading.basis == "the last 4s by Prometheus"
    assert seen.reading.generation_tokens_per_s == pytest.approx(1000, rel=0.2)


@pytest.fixture
def kvplan_rules(tmp_path: Path) -> str:
    """The rules as the program writes them."""
    import sys

    words = ["monitor", "rules", "llama-3.1-8b", "--gpu", "h100-sxm", "--seq", "32k"]
    done = subprocess.run(
        [sys.executable, "-m", "kvplan", *words], capture_output=True, text=True, check=True
    )
    return done.stdout

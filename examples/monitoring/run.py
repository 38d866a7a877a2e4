"""See an alert fire on this machine: a fake vLLM page, Debian's Prometheus, and the rules here.

    python examples/monitoring/run.py

The page is healthy, then overloaded, then healthy again. The rules are those of ``rules.yml`` with
seconds where they have minutes. Everything listens on 127.0.0.1 and ends with the script.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).parent
PAGE = """\
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {use}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{{engine="0",model_name="m",reason="capacity"}} {waiting}
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{gpu="0"}} 97
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{{gpu="0"}} 74000
"""
HEALTHY = {"use": 0.35, "running": 5, "waiting": 0}
OVERLOADED = {"use": 0.97, "running": 13, "waiting": 9}


class Engine(BaseHTTPRequestHandler):
    """The page of an engine and its GPU; ``now`` is what it shows."""

    now = HEALTHY

    def do_GET(self) -> None:
        body = PAGE.format(**Engine.now).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def firing(home: str) -> set[str]:
    """What fires now, by Prometheus's own API; nothing until it answers."""
    try:
        with urllib.request.urlopen(f"{home}/api/v1/alerts", timeout=2) as reply:
            alerts = json.load(reply)["data"]["alerts"]
    except OSError:
        return set()
    return {a["labels"]["alertname"] for a in alerts if a["state"] == "firing"}


def wait_for(home: str, alert: str, *, fires: bool) -> bool:
    """Whether the alert got there within half a minute."""
    for _ in range(150):
        if (alert in firing(home)) == fires:
            return True
        time.sleep(0.2)
    return False


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def configure(folder: Path, engine: int) -> None:
    """The files of this folder, in a hurry and with this engine's port."""
    rules = (HERE / "rules.yml").read_text(encoding="utf-8")
    rules = re.sub(r"^(\s+for): .*$", r"\1: 1s", rules.replace("[5m]", "[4s]"), flags=re.MULTILINE)
    (folder / "rules.yml").write_text(rules, encoding="utf-8")
    config = (HERE / "prometheus.yml").read_text(encoding="utf-8").replace("15s", "500ms")
    config = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{engine}", config)
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")


def main() -> int:
    """Healthy, overloaded, healthy again; 0 when the alert did what it should."""
    binary = shutil.which("prometheus")
    if binary is None:
        sys.exit("prometheus is not installed: apt-get install prometheus")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port, alert = free_port(), "KvPoolNearlyFull"
    home = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as name:
        configure(Path(name), int(server.server_address[1]))
        prometheus = subprocess.Popen(
            [binary, f"--config.file={name}/prometheus.yml", f"--storage.tsdb.path={name}/data",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
        )  # fmt: skip
        try:
            time.sleep(4)
            good = alert not in firing(home)
            print(f"healthy:       {alert} is silent" if good else f"healthy: {firing(home)}")
            Engine.now = OVERLOADED
            good = wait_for(home, alert, fires=True) and good
            print(f"overloaded:    {', '.join(sorted(firing(home)))}")
            Engine.now = HEALTHY
            good = wait_for(home, alert, fires=False) and good
            print(f"healthy again: {alert} is silent")
        finally:
            prometheus.terminate()
            prometheus.wait(timeout=20)
            server.shutdown()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

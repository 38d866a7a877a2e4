"""Examples are the same in every run, and few enough for a short one."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kvplan",
    deadline=None,
    max_examples=200,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kvplan")

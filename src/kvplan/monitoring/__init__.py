"""Watching a running server against its plan: Prometheus rules, a dashboard, a live check."""

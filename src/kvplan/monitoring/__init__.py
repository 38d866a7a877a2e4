"""Watching a running server against its plan: Prometheus rules, a Grafana dashboard, a live check."""

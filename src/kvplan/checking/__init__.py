"""Sizing checks for CI: a plan file → deployments → budgets → results.

document  YAML with the line of everything      plan      the strict form of kvplan.yaml
paths     which files may be read               matrix    lists → one deployment a combination
manifests engine commands out of what is deployed
models    names and files → models, no network  judging   one deployment → figures → budgets
report    the result as plain data              reports/  that data in each format
difference, revisions                           what changed between two plans
"""

"""Capacity-planning spreadsheets: many configurations, one row each.

`axes` reads lists and ranges, `grid` multiplies them, `row_file` takes the rows a user has,
`blocks` evaluates spans of rows by `planning.sweep`, `run` does so on all cores in order, and
`writers` turn blocks into a format.
"""

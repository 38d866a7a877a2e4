"""The answers: budget, fit, limits, options. Pure arithmetic, no input or output."""

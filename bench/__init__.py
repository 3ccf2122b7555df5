"""Benchmarks. Their figures are always ratios to something else in the same run."""

"""Benchmarks: one file, one question. Each prints one JSON object with its command, machine, commit and baseline."""

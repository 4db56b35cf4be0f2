"""Files and arguments to Settings; mistakes are one line with the value and the mend."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from scheduler_backend import config
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.problem import Problem


def settings(tmp_path: Path, text: str = "", *words: str) -> config.Settings:
    file = tmp_path / "gemini.toml"
    file.write_text(text)
    parser = argparse.ArgumentParser()
    config.configure(parser)
    return config.read_settings(parser.parse_args(["--config", str(file), "--state-dir", str(tmp_path), *words]))


def test_the_default_is_the_policy_as_it_stands(tmp_path: Path):
    assert settings(tmp_path).policy == Policy()


def test_every_constant_of_the_policy_is_an_option(tmp_path: Path):
    made = settings(tmp_path, 'quota_ms = 2.5\nordering = "fifo"\npreemption = false\nleast_quota_ms = 1\n')
    assert (made.policy.quota_ns, made.policy.ordering, made.policy.preemption) == (2_500_000, "fifo", False)
    assert {name for name, _ in config.POLICY.values()} == set(Policy._fields)
    assert made.policy.overrun_ns == 1000 * MS


def test_an_argument_wins_over_the_file(tmp_path: Path):
    made = settings(tmp_path, "metrics_port = 1\nidle_exit_seconds = 3\n", "--metrics-port", "9", "--no-trace")
    assert (made.metrics_port, made.idle_exit_seconds, made.trace) == (9, 3.0, False)
    assert settings(tmp_path, "", "--sim").sim == "gpus=1"
    assert settings(tmp_path, "", "--sim=gpus=2").sim == "gpus=2"


def test_tenants_of_the_file(tmp_path: Path):
    text = '[tenants.a]\nrequest = 0.5\nlimit = "60%"\nmemory = "4GiB"\nclass = "latency"\ngpus = [1]\n'
    text += "[tenants.b]\nlimit = 0.2\n"
    a, b = settings(tmp_path, text).tenants
    assert a == config.TenantSettings("a", 500_000, 600_000, 4 << 30, True, (1,))
    assert (b.request_ppm, b.limit_ppm) == (200_000, 200_000)  # a missing request beside a limit equals it
    assert b.spec(int, 2).gpus == (0, 1)


def test_cards_of_their_own_may_be_promised_wholly_each(tmp_path: Path):
    text = (
        "[tenants.a]\nrequest = 0.9\ngpus = [0]\n[tenants.b]\nrequest = 0.9\ngpus = [1]\n[tenants.c]\nrequest = 0.1\n"
    )
    assert [tenant.request_ppm for tenant in settings(tmp_path, text).tenants] == [900_000, 900_000, 100_000]


@pytest.mark.parametrize(
    ("text", "words", "match"),
    [
        ("quota_ms = 0", (), r"quota_ms 0 is no time"),
        ("quota_ms = true", (), r"quota_ms True is no time"),
        ("least_quota_ms = 20", (), r"least_quota_ms 20 is above quota_ms 10"),
        ("nonsense = 1", (), r"nonsense is unknown; there are metrics_port"),
        ('ordering = "best"', (), r"ordering 'best' is unknown; there are eevdf"),
        ("a = [", (), r"is no TOML"),
        ("tenants = 3", (), r"is no table"),
        ('[tenants.a]\nrequest = "x"', (), r"tenant a: request 'x' is no share"),
        ("[tenants.a]\nrequest = nan", (), r"is no share"),
        ("[tenants.a]\nspeed = 1", (), r"tenants.a.speed is unknown"),
        ('[tenants.a]\nmemory = "4Q"', (), r"memory '4Q' is no size"),
        ('[tenants.a]\nclass = "fast"', (), r"class 'fast' is unknown"),
        ("trace_bytes = 1", (), r"trace_bytes 1 is too little for a trace; give 64KiB"),
        ("[tenants.a]\nrequest = 1.5", (), r"tenants.a: request 1.5 is not within 0..1"),
        ('[tenants."a b"]\nrequest = 0.5', (), r"tenant name 'a b' is not valid"),
        ("[tenants.a]\ngpus = [0, 0]", (), r"tenants.a.gpus \[0, 0\] is no list of GPUs, each once"),
        ("[tenants.a]\ngpus = true", (), r"tenants.a.gpus True is no list"),
        ("[tenants.a]\nrequest = 0.6\n[tenants.b]\nrequest = 0.7", (), r"a 0.6 \+ b 0.7 promise 1.3 of each GPU"),
        (
            "[tenants.a]\nrequest = 0.6\n[tenants.b]\nrequest = 0.6\ngpus = [1]",
            (),
            r"tenants: a 0.6 \+ b 0.6 promise 1.2 of GPU 1; lower them to 1 together",
        ),
        ("", ("--metrics-port", "http"), r"--metrics-port 'http' is no port"),
        ("", ("--metrics-port", "70000"), r"70000 is no port"),
        ("", ("--idle-exit", "-1"), r"--idle-exit -1 is no time"),
        ("", ("--log", "loud"), r"--log 'loud' is unknown"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, text: str, words: tuple[str, ...], match: str):
    with pytest.raises(Problem, match=match) as caught:
        settings(tmp_path, text, *words)
    assert "\n" not in str(caught.value).strip() or "TOML" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(Problem, match="No such file"):
        config.read_file(tmp_path / "none.toml")


def test_a_file_without_end_is_not_read_to_its_end():
    with pytest.raises(Problem, match=r"config /dev/zero is longer than 1024 KiB"):
        config.read_file(Path("/dev/zero"))

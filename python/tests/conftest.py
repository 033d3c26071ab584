"""Every test runs the program in FLYBALL, on simulated machines and as any user."""

from __future__ import annotations

import pathlib

import pytest

import flyball


@pytest.fixture
def laptop() -> flyball.Machine:
    return flyball.Machine("sim:hybrid-laptop")


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A comparison of two arms on a simulated machine."""
    directory = tmp_path_factory.mktemp("runs") / "first"
    arms = {"now": {}, "off": {"turbo": False}}
    flyball.Machine("sim:hybrid-laptop").compare("sched-pipe", arms, output=directory, rounds=8, options=["--seed=1"])
    return directory

"""Settings, errors and holds on simulated machines."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import flyball


def test_what_is_planned_is_made_and_restored(laptop: flyball.Machine) -> None:
    before = laptop.get("governor", "turbo")
    plan = laptop.plan({"governor": "performance", "turbo": False})
    applied = laptop.apply({"governor": "performance", "turbo": False})
    places = [(row["location"], row["new"]) for row in plan.changes]
    assert places and places == [(row["location"], row["new"]) for row in applied.made]
    assert {row["outcome"] for row in applied.made} == {"applied"}
    assert laptop.verify({"governor": "performance"}, cpus="0-3").holds
    drifted = laptop.verify({"governor": "powersave"}, cpus="0-3").drifted
    assert [row["cpus"] for row in drifted] == ["0", "1", "2", "3"]
    assert not laptop.apply({"governor": "performance", "turbo": False}).made
    laptop.restore()
    assert laptop.get("governor", "turbo") == before


def test_every_question_has_an_answer(laptop: flyball.Machine) -> None:
    assert laptop.show().machine["core_types"] == {"P": "0-7", "E": "8-15"}
    assert len(laptop.get("epp", cpus="type:E")) == 8
    assert laptop.explain("epp")[0]["scope"] == "policy"
    assert "balanced" in laptop.profiles().columns()["name"]
    assert laptop.doctor().worst == "unknown"


def test_no_word_is_an_option(laptop: flyball.Machine) -> None:
    hostile = "--machine=sim:i7-2600"
    for call in (laptop.plan, laptop.apply, laptop.verify, laptop.get, laptop.explain):
        with pytest.raises(ValueError):
            call(hostile)
    with pytest.raises(ValueError):
        laptop.apply({hostile: 1})
    for text in ["$(touch pwned)", "a\nb", "';id;'", "\x1b[31m", "../../etc/shadow", "x" * 10000]:
        for settings in (text, {"governor": text}):
            with pytest.raises(flyball.NotAccepted) as raised, laptop.held(settings):
                pass
            assert "\x1b" not in str(raised.value)
    assert not os.path.exists("pwned")


@pytest.mark.parametrize(
    "error, code, settings",
    [
        (flyball.NotAccepted, 2, {"governor": "nonsense"}),
        (flyball.NotAccepted, 2, {"nonsense": "1"}),
        (flyball.NotAccepted, 2, "no-such-profile"),
        (flyball.NotHere, 4, {"sst-bf": True}),
    ],
)
def test_refusals(laptop: flyball.Machine, error: type[flyball.Error], code: int, settings: flyball.Settings) -> None:
    with pytest.raises(error) as raised:
        laptop.apply(settings)
    assert raised.value.exit_code == code
    assert "nonsense" in raised.value.message or "profile" in raised.value.message or "sst-bf" in raised.value.message


def test_a_failed_write_is_undone_and_says_where() -> None:
    rule = "write cpufreq/policy1/scaling_governor fails EIO"
    machine = flyball.Machine("sim:hybrid-laptop", options=["--sim-fault", rule])
    before = machine.get("governor")
    with pytest.raises(flyball.Failed, match="policy1/scaling_governor: .*EIO"):
        machine.apply({"governor": "performance"})
    assert machine.get("governor") == before


def test_a_write_without_effect_is_a_warning_or_an_error() -> None:
    options = ["--sim-fault", "write cpufreq/policy1/scaling_max_freq is lost"]
    with pytest.warns(flyball.ClampedWarning):
        applied = flyball.Machine("sim:hybrid-laptop", options=options).apply({"max-freq": "2GHz"}, cpus="1")
    assert applied.made[0]["outcome"] != "applied"
    with pytest.raises(flyball.Clamped) as raised:
        flyball.Machine("sim:hybrid-laptop", options=options).apply({"max-freq": "2GHz"}, cpus="1", strict=True)
    assert raised.value.data["made"]


def test_a_machine_in_use_is_held(tmp_path: pathlib.Path) -> None:
    laptop = flyball.Machine("sim:hybrid-laptop", state=tmp_path)
    command = ["-M", "sim:hybrid-laptop", "--state-dir", str(tmp_path / "state"), "run", "turbo=off", "--", "sh", "-c"]
    with subprocess.Popen([flyball.program(), *command, "echo; cat"], stdin=-1, stdout=-1, stderr=-3) as other:
        assert other.stdout and other.stdin
        other.stdout.readline()
        with pytest.raises(flyball.Held) as raised:
            laptop.apply({"turbo": False})
        assert raised.value.exit_code == 6
        other.stdin.close()


def test_no_settings_are_refused_before_the_program_runs(laptop: flyball.Machine) -> None:
    with pytest.raises(ValueError):
        laptop.apply({})


def test_held_settings_end_with_the_block(laptop: flyball.Machine) -> None:
    with laptop.held({"turbo": False}) as hold:
        assert hold["in_force"]
        laptop.apply({"max-freq": "1.2GHz"}, cpus="0")
        assert laptop.get("turbo")[0]["value"] is False
    assert laptop.get("turbo")[0]["value"] is True
    with pytest.raises(ZeroDivisionError), laptop.held({"turbo": False}):
        raise ZeroDivisionError
    assert laptop.get("turbo")[0]["value"] is True
    with pytest.raises(flyball.NotAccepted), laptop.held({"governor": "nonsense"}):
        pass


def test_held_settings_end_when_python_is_killed(tmp_path: pathlib.Path) -> None:
    script = (
        "import sys, time, flyball\n"
        "machine = flyball.Machine('sim:hybrid-laptop', state=sys.argv[1])\n"
        "with machine.held({'turbo': False}):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    laptop = flyball.Machine("sim:hybrid-laptop", state=tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(flyball.__file__).parent.parent)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout and child.stdout.readline() == b"held\n"
        assert laptop.get("turbo")[0]["value"] is False
        writes = (tmp_path / "machine").read_text().count("no_turbo")
        child.send_signal(signal.SIGKILL)
        killed = time.monotonic()
    # Not by a command: on a simulated machine it would write the state that it read over that of the release.
    while (tmp_path / "machine").read_text().count("no_turbo") == writes:
        assert time.monotonic() - killed < 10
        time.sleep(0.005)
    print(f"restored {time.monotonic() - killed:.2f} s after SIGKILL")
    assert laptop.get("turbo")[0]["value"] is True

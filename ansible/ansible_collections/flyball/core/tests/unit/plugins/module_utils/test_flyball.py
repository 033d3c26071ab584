# (c) The flyball project
# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import pytest

from ansible_collections.flyball.core.plugins.filter.types import types
from ansible_collections.flyball.core.plugins.module_utils.flyball import (
    arguments,
    cpu_list,
    diff,
    drifted,
    message,
    other_release,
    setting,
)


@pytest.mark.parametrize(
    "knob, value, expected",
    [
        ("turbo", True, "turbo=on"),
        ("turbo", False, "turbo=off"),
        ("turbo", "off", "turbo=off"),
        ("max-freq", "2.6GHz", "max-freq=2.6GHz"),
        ("max-perf-pct", 80, "max-perf-pct=80"),
        ("governor@0-3", "performance", "governor@0-3=performance"),
    ],
)
def test_values_of_yaml(knob, value, expected):
    assert setting(knob, value) == expected


@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_values_that_are_not_settings(value):
    with pytest.raises(ValueError):
        setting("turbo", value)


def test_knobs_come_after_the_profile():
    params = dict(profile="latency", settings={"turbo": False}, cpus="0-3")
    assert arguments(params) == ["-c", "0-3", "latency", "turbo=off"]


@pytest.mark.parametrize("word", ["--machine=sim:i7-2600", "--all", "-M", "-"])
@pytest.mark.parametrize("parameter", ["profile", "hold", "cpus", "settings"])
def test_no_word_is_an_option(parameter, word):
    params = dict(profile="latency", settings={"turbo": False}, cpus="0-3", hold="x")
    with pytest.raises(ValueError):
        arguments(dict(params, **{parameter: {word: 1} if parameter == "settings" else word}))


@pytest.mark.parametrize("text", ["$(id)", "a b", "';id;'", "a\nb", "--all", "\x1b[31m", "../../etc/shadow"])
def test_a_value_stays_one_word(text):
    assert arguments(dict(settings={"governor": text})) == ["governor=" + text]


def test_the_message_is_the_last_one_with_its_lines():
    stderr = "flyball: simulated: sim:x, kernel 6.12\nnote: a note\nflyball: cannot write: EIO\n  see dmesg\nrestored 1 setting\n"
    text, before = message(stderr)
    assert text == "cannot write: EIO\n  see dmesg\nrestored 1 setting"
    assert before[-1] == "note: a note"
    assert message("") == ("", [])


def test_the_diff_has_both_values_of_each_place():
    change = dict(knob="governor", place="policy 0", was="powersave", value="performance")
    assert diff([change])["before"] == "governor on policy 0: powersave\n"
    assert diff([change])["after"] == "governor on policy 0: performance\n"


def test_a_program_of_another_release_is_named():
    assert other_release(dict(schema="show/1"), "") is None
    assert other_release([], "flyball: cannot write: EIO\n") is None
    assert "schema" in other_release(dict(machine={}), "")
    assert "show/2" in other_release([dict(schema="show/2")], "")
    assert "older" in other_release(None, "error: unrecognized subcommand 'hold'\n\nUsage: flyball\n")


def test_types_have_their_hosts():
    def facts(model):
        return dict(machine=dict(model_name=model, microcode="0x1", kernel="6.12", present="0-3"))

    found = types({"b": facts("x"), "a": facts("x"), "c": facts("y"), "gone": None})
    assert [(kind["model"], kind["hosts"]) for kind in found] == [("x", ["a", "b"]), ("y", ["c"])]


def test_lists_of_cpus_are_joined():
    assert cpu_list([]) == ""
    assert cpu_list(["0-1", "4", "2", "6-7", ""]) == "0-2,4,6-7"


def test_cpus_that_differ_alike_are_one_clause():
    row = dict(knob="max-freq", instance="", was="2 GHz", value="3.7 GHz")
    rows = [dict(row, place="policy %d" % cpu, cpus=str(cpu)) for cpu in range(16)]
    rows.append(dict(row, knob="turbo", was="on", value="off", place="the machine", cpus=""))
    assert drifted(rows) == [
        "max-freq on CPUs 0-15 is 2 GHz, not 3.7 GHz",
        "turbo on the machine is on, not off",
    ]

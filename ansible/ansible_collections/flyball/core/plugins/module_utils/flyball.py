# Runs the program and makes results of its JSON and exit codes. No module decides what is written: the program plans.
# (c) The flyball project
# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

import json
import os
import time

# Exit code to the value of `error` in a failed result; the manual's page on exit codes has the meanings.
ERRORS = {1: "failed", 2: "not_accepted", 3: "left_changed", 4: "not_here", 6: "held", 7: "clamped"}

# What the modules read. A program that prints other schemas, or none, is of another release than the collection.
SCHEMAS = ["%s/1" % name for name in (
    "compare-plan", "doctor", "hold-add", "hold-list", "hold-release", "plan", "report", "restore", "restore-plan", "set", "show", "verify",
)]

COMMON = dict(
    binary=dict(type="str", default="flyball"),
    machine=dict(type="str", default="live"),
    state=dict(type="path"),
    lock_timeout=dict(type="float", default=10),
    missing=dict(type="str", choices=["fail", "skip"], default="fail"),
)

SETTINGS = dict(
    profile=dict(type="str"),
    settings=dict(type="dict", default={}),
    cpus=dict(type="str"),
)


def setting(knob, value):
    """A setting as the program takes it. YAML 1.1 reads on, off, yes and no as booleans: turbo: off is False."""
    if isinstance(value, bool):
        value = "on" if value else "off"
    if isinstance(value, (dict, list)) or value is None:
        raise ValueError("%s: a value is a word or a number, not %r" % (knob, value))
    return "%s=%s" % (knob, value)


def arguments(params):
    """The command line's settings: CPUs, profile, then knobs, which win over the profile."""
    cpus = ["-c", params["cpus"]] if params.get("cpus") else []
    profile = [params["profile"]] if params.get("profile") else []
    # The program would read such a word as an option: facts of a node may have any text.
    hold = [params["hold"]] if params.get("hold") else []
    for word in cpus[1:] + profile + hold + list(params["settings"]):
        if word.startswith("-"):
            raise ValueError("%r: CPUs, a profile, a hold or a knob do not begin with '-'" % word)
    return cpus + profile + [setting(knob, value) for knob, value in params["settings"].items()]


def message(stderr):
    """The program's last message, and the lines before it."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    starts = [at for at, line in enumerate(lines) if line.startswith("flyball: ") and ": simulated: " not in line]
    at = starts[-1] if starts else 0
    text = "\n".join(lines[at:])
    return (text[len("flyball: ") :] if text.startswith("flyball: ") else text), lines[:at]


def diff(changes):
    """What Ansible shows with --diff: each place with its value before and after, in the knob's own terms."""

    def lines(which):
        return "".join("%s on %s: %s\n" % (change["knob"], change["place"], change[which]) for change in changes)

    return dict(before=lines("was"), after=lines("value"), before_header="now", after_header="planned")


def cpu_list(lists):
    """Several lists of CPUs as one: 0-1 and 2,4 are 0-2,4."""
    cpus = set()
    for part in ",".join(lists).split(","):
        first, dash, last = part.partition("-")
        if part:
            cpus.update(range(int(first), int(last if dash else first) + 1))
    ranges = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in ranges)


def drifted(rows):
    """What differs, in words: the CPUs that differ in the same way are one clause."""
    groups = {}
    for row in rows:
        knob = row["knob"] + (":" + row["instance"] if row.get("instance") else "")
        groups.setdefault((knob, row["was"], row["value"]), []).append(row)
    clauses = []
    for (knob, was, value), same in groups.items():
        cpus = cpu_list([row.get("cpus") or "" for row in same])
        place = same[0]["place"] if len(same) == 1 or not cpus else "CPUs %s" % cpus
        clauses.append("%s on %s is %s, not %s" % (knob, place, was, value))
    return clauses


def other_release(data, stderr):
    """Why the program is not of the collection's release, if it is not."""
    # What clap says of a command or an option that the program does not have yet.
    if stderr.startswith("error: un"):
        return "flyball on the node is older than this collection: %s" % stderr.splitlines()[0]
    for printed in [data] if isinstance(data, dict) else data or []:
        schema = printed.get("schema")
        if not schema:
            return "flyball on the node is older than this collection: its JSON names no schema"
        if schema not in SCHEMAS:
            return "flyball on the node is of another release than this collection, which does not read %s" % schema
    return None


class Program:
    """The program on the node, for one task."""

    def __init__(self, module):
        self.module = module
        self.params = module.params
        self.path = self.params["binary"]
        if os.sep not in self.path:
            self.path = module.get_bin_path(self.path, required=True)

    def machine(self, keep_state=True):
        options = ["-M", self.params["machine"]]
        state = self.params["state"]
        if state:
            os.makedirs(state, mode=0o700, exist_ok=True)
            options += ["--state-dir", os.path.join(state, "state")]
            if keep_state:
                options += ["--sim-state", os.path.join(state, "machine")]
        return options

    def settings(self):
        try:
            return arguments(self.params)
        except ValueError as why:
            self.module.fail_json(msg=str(why), error="not_accepted")

    def run(self, command, results=(0,), keep_state=True):
        """Runs a command with --json. Returns its exit code, data and messages; other codes than `results` end the task."""
        line = [self.path, "--json"] + self.machine(keep_state) + command
        until = time.monotonic() + self.params["lock_timeout"]
        while True:
            # A value is taken literally: `$NAME` in it is not a variable of this host.
            code, out, err = self.module.run_command(line, expand_user_and_vars=False)
            # The lock is held for milliseconds by most commands, and for hours by a comparison.
            if code != 6 or time.monotonic() > until:
                break
            time.sleep(0.2)
        try:
            data = json.loads(out) if out.strip() else None
        except ValueError:
            self.module.fail_json(msg="flyball printed no JSON", error="failed", exit_code=code, stdout=out, stderr=err)
        other = other_release(data, err)
        if other:
            self.module.fail_json(msg=other, error="not_accepted", exit_code=code)
        if code not in results:
            self.fail(code, err, data)
        return code, data, err

    def fail(self, code, stderr, data=None):
        text, before = message(stderr)
        result = dict(msg=text or "flyball ended with exit code %d" % code, exit_code=code, notes=before)
        result["error"] = ERRORS.get(code, "failed")
        if code == 4 and self.params["missing"] == "skip":
            self.module.exit_json(skipped=True, **result)
        if code == 3:
            # Some of the writes are there.
            result["changed"] = True
        if data is not None:
            result["data"] = data
        self.module.fail_json(**result)

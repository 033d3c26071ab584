"""Compares a node's facts with its files: facts_are_the_files.py NODE FACTS.json, with lines FILE:TEXT of cpufreq on stdin."""

import json
import re
import sys


def cpus(text):
    found = set()
    for part in re.split(r"[,\s]+", text.strip()):
        if part:
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return found


node, path = sys.argv[1:]
with open(path) as file:
    facts = json.load(file)
files = dict(line.rstrip("\n").split(":", 1) for line in sys.stdin)
assert cpus(facts["machine"]["online"]) == cpus(files["online"]), (node, facts["machine"], files["online"])
expected = {}
for name, text in files.items():
    if name.endswith("/scaling_governor"):
        for cpu in cpus(files[name.replace("scaling_governor", "affected_cpus")]):
            expected[cpu] = text
found = {}
for where, value in facts["knobs"].get("governor", {}).items():
    for cpu in cpus(where):
        found[cpu] = value
assert found == expected, (node, found, expected)
# Without cpufreq there is a reason for it.
assert expected or facts["absent"]["governor"], (node, facts["absent"])

#!/usr/bin/python
# (c) The flyball project
# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
module: compare
short_description: Compare settings under a workload on a node
description:
  - Runs C(flyball compare). The settings of the node are restored at the end.
  - Nothing is run if O(directory) has a report already.
options:
  arms:
    description: Names of the arms with the settings of each; the first is what the others are compared with.
    type: dict
  experiment:
    description: A file on the node that describes the whole comparison, as C(flyball compare --experiment) takes it.
    type: path
  command:
    description: The workload, as a command.
    type: list
    elements: str
  workload:
    description: A built-in workload instead of a command.
    type: str
  directory:
    description: The run directory on the node.
    type: path
    required: true
  rounds:
    description: Number of rounds of each arm; if not given, 15.
    type: int
  seed:
    description: Random seed of the order; if not given, a random one, which the run directory has.
    type: int
  options:
    description: Further options of C(flyball compare).
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - action_common_attributes
  - flyball.core.flyball
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Does turbo pay here
  flyball.core.compare:
    arms:
      now: {}
      turbo-off: {turbo: off}
    workload: sched-pipe
    directory: /var/tmp/turbo
"""

RETURN = r"""
comparisons:
  description: Each arm compared with the first in each quantity; the fields are those of the schema report/1.
  returned: when the comparison was run, or had been run before
  type: list
  elements: dict
plan:
  description: What would be run, in check mode.
  returned: in check mode
  type: dict
directory:
  description: The run directory.
  returned: success
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.flyball.core.plugins.module_utils.flyball import COMMON, Program, setting


def arm(name, settings):
    words = [setting(knob, value) for knob, value in (settings or {}).items()]
    # The program splits an arm at its first colon and at blanks.
    if ":" in name or any(len(word.split()) != 1 for word in words):
        raise ValueError("arm %r: a name has no colon, and a setting no blank" % name)
    return "--arm=%s: %s" % (name, " ".join(words))


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            arms=dict(type="dict"),
            experiment=dict(type="path"),
            command=dict(type="list", elements="str"),
            workload=dict(type="str"),
            directory=dict(type="path", required=True),
            rounds=dict(type="int"),
            seed=dict(type="int"),
            options=dict(type="list", elements="str", default=[]),
        ),
        required_one_of=[("command", "workload", "experiment"), ("arms", "experiment")],
        mutually_exclusive=[("command", "workload", "experiment")] + [("experiment", other) for other in ("arms", "rounds", "seed")],
        supports_check_mode=True,
    )
    params = module.params
    program = Program(module)
    directory = params["directory"]
    if os.path.exists(os.path.join(directory, "report.json")):
        code, data, err = program.run(["report", directory], keep_state=False)
        module.exit_json(changed=False, exit_code=code, directory=directory, comparisons=data["comparisons"])
    line = ["compare", "-o", directory]
    try:
        line += [arm(name, settings) for name, settings in (params["arms"] or {}).items()]
    except ValueError as why:
        module.fail_json(msg=str(why), error="not_accepted")
    for option in ("experiment", "rounds", "seed"):
        if params[option] is not None:
            line.append("--%s=%s" % (option, params[option]))
    line += params["options"]
    if module.check_mode:
        line.append("-n")
    if params["workload"]:
        line += ["--workload", params["workload"]]
    elif params["command"]:
        line += ["--"] + params["command"]
    code, data, err = program.run(line, keep_state=False)
    found = dict(plan=data) if module.check_mode else dict(comparisons=data["comparisons"])
    module.exit_json(changed=True, exit_code=code, directory=directory, **found)


if __name__ == "__main__":
    main()

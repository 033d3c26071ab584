#!/usr/bin/python
# (c) The flyball project
# SPDX-License-Identifier: MIT OR Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
module: settings
short_description: Set CPU performance knobs on a node, until reboot or as a hold
description:
  - Applies a profile and settings with flyball. Every write is journaled and read back; if one fails, all are undone.
  - In check mode nothing is written. The diff is the program's plan.
options:
  profile:
    description: A profile, by the name that C(flyball profiles) lists or by its path on the node.
    type: str
  settings:
    description:
      - Knobs with their values, as C(flyball explain) describes them. They win over O(profile).
      - Frequencies have a unit. Booleans are on and off, because YAML reads V(off) as a boolean.
    type: dict
    default: {}
  cpus:
    description: The CPUs of settings that do not name their own, such as V(0-3,7) or V(type:P).
    type: str
  hold:
    description: Name of a hold that keeps the settings. Without it they last until something changes them. A hold ends with the boot unless O(at_boot).
    type: str
  at_boot:
    description: Whether flyball-hold.service adds the hold at every boot. It takes a profile, and no settings besides. Releasing the hold ends this too.
    type: bool
    default: false
  priority:
    description: Priority of the hold.
    type: int
    default: 100
  on_clamped:
    description: What to do when the kernel made another value of one. The settings remain in both cases.
    type: str
    choices: [accept, fail]
    default: accept
  present:
    description: Whether the settings are to be there. If not, the hold is released, or without a hold all changes of flyball are restored.
    type: bool
    default: true
  verify:
    description: Whether to compare all settings with the machine once more after they were made.
    type: bool
    default: false
extends_documentation_fragment:
  - action_common_attributes
  - flyball.core.flyball
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Full speed on the performance cores
  flyball.core.settings:
    settings:
      governor: performance
      turbo: on
    cpus: type:P

- name: A profile that is kept
  flyball.core.settings:
    profile: latency
    hold: steady

- name: As it was before
  flyball.core.settings:
    hold: steady
    present: false
"""

RETURN = r"""
writes:
  description: The changes in the order of their writes, planned ones in check mode; the fields are those of the schema set/1.
  returned: success
  type: list
  elements: dict
clamped:
  description: The changes of which the kernel made another value.
  returned: success
  type: list
  elements: dict
notes:
  description: What else the program had to say.
  returned: success
  type: list
  elements: str
exit_code:
  description: The program's exit code.
  returned: always
  type: int
error:
  description: The kind of failure, from the exit code.
  returned: failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.flyball.core.plugins.module_utils.flyball import COMMON, SETTINGS, Program, diff


def restored(restoration):
    """The writes of a restoration in the shape of changes, for the diff."""
    written = (restoration or {}).get("written", [])
    return [dict(knob=write["location"], place="node", was=write["from"], value=write["to"]) for write in written]


def holds(program):
    return {hold["name"]: hold for hold in program.run(["hold", "list"])[1]}


def absent(program, hold, check):
    if hold:
        if hold not in holds(program):
            return dict(changed=False, exit_code=0, writes=[], clamped=[], notes=[])
        # A release has no dry run, so that check mode knows only that there is something to release.
        writes = [] if check else restored(program.run(["hold", "release", hold])[1]["restoration"])
        return dict(changed=True, exit_code=0, writes=writes, clamped=[], notes=[], diff=diff(writes))
    if check:
        data = program.run(["restore", "-n"])[1]
        writes = [dict(knob=at["location"], place="node", was=at["now"], value=at["was"]) for at in data["differing"]]
    else:
        data = program.run(["restore"])[1]
        writes = restored(data.get("restoration"))
    return dict(changed=bool(writes), exit_code=0, writes=writes, clamped=[], notes=[], diff=diff(writes))


def present(program, params, check):
    hold = params["hold"]
    command = ["hold", "add", hold, "--priority", str(params["priority"])] if hold else ["apply"]
    before = holds(program) if hold else {}
    if params["at_boot"] and not check:
        command.append("--at-boot")
    code, data, err = program.run(command + program.settings() + (["-n"] if check else []), results=(0, 7))
    if check:
        writes, notes, clamped = data["changes"], data["notes"], []
        changed = bool(writes)
    else:
        applied = (data["applied"] or dict(made=[], notes=[])) if hold else data
        writes = [dict(made["change"], outcome=made["outcome"]) for made in applied["made"]]
        clamped = [write for write in writes if write["outcome"] != "applied"]
        notes, changed = applied["notes"], bool(writes)
    if hold:
        if not check:
            released = restored(data["restoration"])
            old = before.get(hold, {})
            wanted = [(setting["from"], setting.get("on")) for setting in data["hold"]["settings"]]
            same = [(setting["from"], setting.get("on")) for setting in old.get("settings", [])] == wanted
            changed = bool(writes or released) or not same or old.get("priority") != params["priority"]
        else:
            changed = changed or hold not in before
    if code == 7 and params["on_clamped"] == "fail":
        program.fail(code, err, data)
    return dict(changed=changed, exit_code=code, writes=writes, clamped=clamped, notes=notes, diff=diff(writes))


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            hold=dict(type="str"),
            at_boot=dict(type="bool", default=False),
            priority=dict(type="int", default=100),
            on_clamped=dict(type="str", choices=["accept", "fail"], default="accept"),
            present=dict(type="bool", default=True),
            verify=dict(type="bool", default=False),
            **SETTINGS
        ),
        supports_check_mode=True,
    )
    params = module.params
    program = Program(module)
    if not params["present"]:
        module.exit_json(**absent(program, params["hold"], module.check_mode))
    if params["at_boot"] and not params["hold"]:
        module.fail_json(msg="at_boot needs the name of a hold", error="not_accepted")
    if not params["profile"] and not params["settings"]:
        module.fail_json(msg="give a profile or settings", error="not_accepted")
    result = present(program, params, module.check_mode)
    if params["verify"] and not module.check_mode:
        code, data, err = program.run(["verify"] + program.settings(), results=(0, 5))
        if code == 5:
            result.update(drifted=data["drifted"], exit_code=code)
            module.fail_json(msg="settings do not hold after they were made", error="drifted", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()

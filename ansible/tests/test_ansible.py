"""The collection on simulated machines: its modules, and rollouts that succeed and that stop."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Dict

import pytest

HERE = pathlib.Path(__file__).parent
COLLECTIONS = HERE.parent
FLYBALL = os.environ["FLYBALL"]
BIN = pathlib.Path(sys.executable).parent
ROLLOUT = COLLECTIONS / "ansible_collections/flyball/core/playbooks/rollout.yml"


def playbook(folder: pathlib.Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_PIPELINING": "1",
        "LC_ALL": "C.UTF-8",
    }
    command = [str(BIN / "ansible-playbook"), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_modules_and_exit_codes(tmp_path: pathlib.Path) -> None:
    ran = playbook(tmp_path, HERE / "modules.yml", "-e", f"binary={FLYBALL}", "-e", f"state={tmp_path}")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_role_installs_nothing_from_where_users_write() -> None:
    for path in (COLLECTIONS / "ansible_collections/flyball/core/roles").glob("*/*/*.yml"):
        assert "/tmp" not in path.read_text().replace("in /var/tmp, a user could", ""), path


def inventory(folder: pathlib.Path, machines: Dict[str, str]) -> pathlib.Path:
    lines = (
        f"{name} ansible_connection=local flyball_binary={FLYBALL} flyball_machine='{machine}' flyball_state={folder}/{name}"
        for name, machine in machines.items()
    )
    (folder / "inventory.ini").write_text("\n".join(lines) + "\n")
    return folder / "inventory.ini"


def on(folder: pathlib.Path, name: str, machine: str, *words: str) -> str:
    """What flyball prints on a machine of the fleet."""
    (folder / name).mkdir(exist_ok=True)
    state = ["--sim-state", f"{folder}/{name}/machine", "--state-dir", f"{folder}/{name}/state"]
    return subprocess.run([FLYBALL, "-M", machine, *state, *words], capture_output=True, text=True, check=True).stdout


def governors(folder: pathlib.Path, machines: Dict[str, str]) -> Dict[str, str]:
    """The governor that each machine has now."""
    return {name: on(folder, name, machine, "get", "governor").split()[1] for name, machine in machines.items()}


FLEET = {"amd1": "sim:ryzen-5750g", "amd2": "sim:ryzen-5750g", "amd3": "sim:ryzen-5750g", "intel1": "sim:hybrid-laptop"}


def test_a_rollout_changes_all_and_a_second_one_nothing(tmp_path: pathlib.Path) -> None:
    hosts = inventory(tmp_path, {**FLEET, "old1": "sim:i7-2600"})
    rollout = [ROLLOUT, "-i", hosts, "-e", f"rollout_controller_binary={FLYBALL}", "-e", '{"rollout_settings": {"governor": "performance"}}']
    ran = playbook(tmp_path, *rollout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert set(governors(tmp_path, FLEET).values()) == {"performance"}
    again = playbook(tmp_path, *rollout)
    assert again.returncode == 0 and "changed=1" not in again.stdout, again.stdout + again.stderr


@pytest.mark.parametrize(
    "failing, changed",
    [
        # The only one of its type is a canary. Ansible runs the rescue for all hosts of the play: all canaries are restored.
        ("intel1", set()),
        # The first batch after the canaries, which stay.
        ("amd2", {"amd1", "intel1"}),
    ],
)
def test_a_host_that_fails_is_restored_and_stops_the_rollout(tmp_path: pathlib.Path, failing: str, changed: set[str]) -> None:
    fault = "write cpufreq/policy3/scaling_governor fails EIO"
    machines = {**FLEET, failing: f"{FLEET[failing]},fault={fault}"}
    for name, machine in machines.items():
        on(tmp_path, name, machine, "hold", "add", "rollout", "max-freq=75%")
    before = governors(tmp_path, machines)
    limits = {name: on(tmp_path, name, machine, "get", "max-freq") for name, machine in machines.items()}
    hosts = inventory(tmp_path, machines)
    settings = '{"rollout_settings": {"governor": "performance"}}'
    ran = playbook(tmp_path, ROLLOUT, "-i", hosts, "-e", f"rollout_controller_binary={FLYBALL}", "-e", settings)
    assert ran.returncode != 0
    assert f"{failing} is restored; the rollout stops" in ran.stdout, ran.stdout + ran.stderr
    after = governors(tmp_path, machines)
    assert {name for name in FLEET if after[name] != before[name]} == changed
    # The hold of the last rollout is in force where this one was undone, and where it never came.
    for name, machine in machines.items():
        held = on(tmp_path, name, machine, "hold", "list")
        assert ("governor" if name in changed else "max-freq") in held and "rollout.new" not in held, held
        assert (on(tmp_path, name, machine, "get", "max-freq") == limits[name]) == (name not in changed)


def test_a_profile_that_a_type_does_not_take_is_refused_in_the_rehearsal(tmp_path: pathlib.Path) -> None:
    before = governors(tmp_path, FLEET)
    settings = '{"rollout_settings": {"sst-bf": true}}'
    ran = playbook(tmp_path, ROLLOUT, "-i", inventory(tmp_path, FLEET), "-e", f"rollout_controller_binary={FLYBALL}", "-e", settings)
    assert ran.returncode != 0 and "this machine has no sst-bf" in ran.stdout
    assert "Plan on every host" not in ran.stdout
    assert governors(tmp_path, FLEET) == before

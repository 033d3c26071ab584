#!/usr/bin/python3
"""Clients of the power-profiles interface, as desktops make their calls. usage: clients.py SCENARIO (bus: DBUS_SYSTEM_BUS_ADDRESS)

Each scenario connects by itself and ends with an assertion error, or prints a line."""

import json
import os
import random
import signal
import subprocess
import sys
import time

from gi.repository import Gio, GLib

UPOWER = ("org.freedesktop.UPower.PowerProfiles", "/org/freedesktop/UPower/PowerProfiles")
HADESS = ("net.hadess.PowerProfiles", "/net/hadess/PowerProfiles")
FACES = (UPOWER, HADESS)


def connect():
    """A connection of its own: `Gio.bus_get_sync` shares one."""
    flags = Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION
    address = os.environ["DBUS_SYSTEM_BUS_ADDRESS"]
    return Gio.DBusConnection.new_for_address_sync(address, flags, None, None)


class Client:
    """One face of the service, on a connection; notes the signals that it gets."""

    def __init__(self, face=UPOWER, bus=None):
        self.name, self.path = face
        self.bus = bus or connect()
        self.released, self.changed = [], {}
        self.bus.signal_subscribe(
            self.name, self.name, "ProfileReleased", self.path, None, 0,
            lambda *a: self.released.append(a[5].unpack()[0]))
        self.bus.signal_subscribe(
            self.name, "org.freedesktop.DBus.Properties", "PropertiesChanged", self.path, self.name, 0,
            lambda *a: self.changed.update(a[5].unpack()[1]))

    def call(self, interface, method, arguments, answer=None):
        answer = GLib.VariantType(answer) if answer else None
        flags = Gio.DBusCallFlags.NONE
        return self.bus.call_sync(self.name, self.path, interface, method, arguments, answer, flags, 10000, None)

    def get(self, name):
        answer = self.call("org.freedesktop.DBus.Properties", "Get", GLib.Variant("(ss)", (self.name, name)))
        return answer.unpack()[0]

    def all(self):
        return self.call("org.freedesktop.DBus.Properties", "GetAll", GLib.Variant("(s)", (self.name,)), "(a{sv})")

    def set(self, name, value):
        arguments = GLib.Variant("(ssv)", (self.name, name, value))
        self.call("org.freedesktop.DBus.Properties", "Set", arguments)

    def choose(self, profile):
        self.set("ActiveProfile", GLib.Variant("s", profile))

    def hold(self, profile, reason="a game", application="org.example.Game"):
        arguments = GLib.Variant("(sss)", (profile, reason, application))
        return self.call(self.name, "HoldProfile", arguments, "(u)").unpack()[0]

    def release(self, cookie):
        self.call(self.name, "ReleaseProfile", GLib.Variant("(u)", (cookie,)))


def wait(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        GLib.MainContext.default().iteration(False)
        time.sleep(0.001)


def refused(error, call):
    try:
        call()
    except GLib.Error as found:
        got = Gio.DBusError.get_remote_error(found)
        assert got == "org.freedesktop.DBus.Error." + error, f"{got}, not {error}: {found.message}"
    else:
        raise AssertionError(f"not refused with {error}")


def properties():
    """All of them have the type that the interface gives them, on both faces."""
    types = {
        "ActiveProfile": "s", "PerformanceInhibited": "s", "PerformanceDegraded": "s", "Profiles": "aa{sv}",
        "Actions": "as", "ActiveProfileHolds": "aa{sv}", "Version": "s",
    }
    more = {"ActionsInfo": "aa{sv}", "BatteryAware": "b"}
    for face in FACES:
        found = Client(face).all().get_child_value(0)
        got = {}
        for index in range(found.n_children()):
            entry = found.get_child_value(index)
            value = entry.get_child_value(1).get_variant()
            got[entry.get_child_value(0).get_string()] = value.get_type_string()
        assert got == (types | more if face is UPOWER else types), got
        profiles = Client(face).get("Profiles")
        assert [one["Profile"] for one in profiles] == ["power-saver", "balanced", "performance"], profiles
        assert all(one["Driver"] and one["CpuDriver"] for one in profiles), profiles


def gnome():
    """GNOME Shell's quick settings: a proxy with cached properties, and the property set through it."""
    for face in FACES:
        client = Client(face)
        proxy = Gio.DBusProxy.new_sync(client.bus, 0, None, face[0], face[1], face[0], None)
        assert proxy.get_name_owner(), "the tile is shown while the name has an owner"
        names = [one["Profile"] for one in proxy.get_cached_property("Profiles").unpack()]
        for name in ["performance", "power-saver", "balanced"]:
            assert name in names
            client.choose(name)
            current = lambda: proxy.get_cached_property("ActiveProfile").unpack() == name
            wait(current, f"the proxy does not show {name}")


def kde():
    """powerdevil: GetAll at the start, PropertiesChanged and ProfileReleased after it, holds of its own."""
    client = Client()
    start = client.all().unpack()[0]
    assert start["PerformanceInhibited"] == "" and start["PerformanceDegraded"] == "", start
    client.choose("balanced")
    cookie = client.hold("performance", "compiling", "org.kde.kdevelop")
    held = [{"ApplicationId": "org.kde.kdevelop", "Profile": "performance", "Reason": "compiling"}]
    wait(lambda: client.changed.get("ActiveProfileHolds") == held, f"holds: {client.changed}")
    wait(lambda: client.changed.get("ActiveProfile") == "performance", f"profile: {client.changed}")
    client.release(cookie)
    wait(lambda: client.changed.get("ActiveProfileHolds") == [], f"holds: {client.changed}")
    wait(lambda: client.changed.get("ActiveProfile") == "balanced", f"profile: {client.changed}")
    assert client.released == [], "one's own release is not reported"


def holds():
    """A user's choice ends all holds. Each program gets the signal for its own hold, on the interface that it used."""
    one, other = Client(), Client(HADESS)
    one.choose("balanced")
    first, second = one.hold("performance"), other.hold("power-saver", "low battery", "org.example.Battery")
    assert first != second
    assert one.get("ActiveProfile") == "power-saver", "it beats performance"
    assert len(other.get("ActiveProfileHolds")) == 2
    other.release(second)
    assert one.get("ActiveProfile") == "performance"
    second = other.hold("power-saver")
    one.choose("balanced")
    wait(lambda: one.released == [first] and other.released == [second], f"{one.released} {other.released}")
    assert one.get("ActiveProfileHolds") == [] and one.get("ActiveProfile") == "balanced"
    refused("InvalidArgs", lambda: one.release(first))


def vanishing():
    """A client that is killed holds nothing any more. Prints how long that took, in milliseconds."""
    client = Client()
    client.choose("balanced")
    took = []
    for _ in range(5):
        script = f"import sys; sys.path[:0] = [{os.path.dirname(os.path.abspath(__file__))!r}]; import clients, time; " \
            "clients.Client().hold('performance'); print('held', flush=True); time.sleep(100)"
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"held\n"
        assert client.get("ActiveProfile") == "performance"
        client.changed.clear()
        child.send_signal(signal.SIGKILL)
        start = time.monotonic()
        wait(lambda: client.changed.get("ActiveProfile") == "balanced", "the hold stays")
        took.append((time.monotonic() - start) * 1000)
        child.wait()
        assert client.get("ActiveProfileHolds") == []
    print("released after ms:", " ".join(f"{one:.1f}" for one in sorted(took)))


def staying():
    """Programs that stay after their holds keep no other from holding, and a hold that cannot end with its program is refused."""
    clients = [Client() for _ in range(60)]
    for client in clients:
        client.release(client.hold("performance"))
    outcomes = [outcome(lambda: client.hold("performance")) for client in clients]
    count = outcomes.count("ok")
    assert 20 < count < 40 and outcomes[count:] == ["LimitsExceeded"] * (60 - count), outcomes
    wait(lambda: clients[0].changed.get("ActiveProfile") == "performance", "the holds are not in force")
    assert len(clients[0].get("ActiveProfileHolds")) == count
    for client in clients[:count]:
        client.bus.close_sync()
    wait(lambda: clients[-1].get("ActiveProfileHolds") == [], "holds stay")
    clients[-1].hold("performance")


def bad():
    """What is wrong is refused with InvalidArgs, and nothing is done."""
    for face in FACES:
        client, other = Client(face), Client(face)
        client.choose("balanced")
        before = client.all().unpack()
        for profile in ["balanced", "custom", "", "Performance", "performance ", "x" * 100000]:
            refused("InvalidArgs", lambda: client.hold(profile))
        for profile in ["custom", "", "unknown", "balanced\n"]:
            refused("InvalidArgs", lambda: client.choose(profile))
        refused("InvalidArgs", lambda: client.set("ActiveProfile", GLib.Variant("u", 1)))
        refused("InvalidArgs", lambda: client.hold("performance", "x" * 2000))
        refused("InvalidArgs", lambda: client.release(4711))
        cookie = client.hold("performance")
        refused("InvalidArgs", lambda: other.release(cookie))
        client.release(cookie)
        assert client.all().unpack() == before
    client = Client()
    arguments = GLib.Variant("(sb)", ("trickle_charge", True))
    refused("NotSupported", lambda: client.call(client.name, "SetActionEnabled", arguments))


PROFILE = 'governor = "performance"\n'

# TOML has an escape for what no string of D-Bus may have.
NUL = 'governor = "\\u0000"'


def asker():
    """A client of flyball's own interface, and a function that calls its methods."""
    name, path = "org.flyball.Control1", "/org/flyball/Control1"
    client = Client((name, path))
    return client, lambda method, *texts: json.loads(
        client.call(name, method, GLib.Variant("(" + "s" * len(texts) + ")", texts), "(s)").unpack()[0])


def outcome(call):
    try:
        call()
    except GLib.Error as found:
        return (Gio.DBusError.get_remote_error(found) or found.message).rsplit(".", 1)[-1]
    return "ok"


def calls():
    """Prints what comes of every call that may be refused."""
    desktop, (_, ask) = Client(), asker()
    assert desktop.get("ActiveProfile"), "anyone may read it"
    print(json.dumps({
        "ActiveProfile": outcome(lambda: desktop.choose("performance")),
        "BatteryAware": outcome(lambda: desktop.set("BatteryAware", GLib.Variant("b", True))),
        "HoldProfile": outcome(lambda: desktop.release(desktop.hold("power-saver"))),
        "Plan": outcome(lambda: ask("Plan", PROFILE)),
        "Verify": outcome(lambda: ask("Verify")),
        "Status": outcome(lambda: ask("Status")),
        "Apply": outcome(lambda: ask("Apply", PROFILE, f"of-{os.getuid()}")),
        "Release": outcome(lambda: ask("Release", f"of-{os.getuid()}")),
    }))


def denied():
    """Prints what comes of calls whose texts are wrong."""
    _, ask = asker()
    print(*[outcome(lambda: ask(*words)) for words in [("Plan", "["), ("Apply", "[", "x"), ("Release", "two words")]])


def polkit():
    """Plays polkit: the named users may do everything, the others could if they entered a password, which they never do."""
    bus, waiting = connect(), []
    arguments = "".join(f'<arg direction="in" type="{kind}"/>' for kind in ["(sa{sv})", "s", "a{ss}", "u", "s"])
    node = Gio.DBusNodeInfo.new_for_xml(
        '<node><interface name="org.freedesktop.PolicyKit1.Authority"><method name="CheckAuthorization">'
        + arguments + '<arg direction="out" type="(bba{ss})"/></method></interface></node>')

    def ask_bus(method, signature, *words):
        name, path = "org.freedesktop.DBus", "/org/freedesktop/DBus"
        return bus.call_sync(name, path, name, method, GLib.Variant(signature, words), None, 0, -1, None).unpack()[0]

    def answer(_bus, _sender, _path, _interface, _method, asked, invocation):
        (_, subject), _, _, flags, _ = asked.unpack()
        if flags & 1:
            return waiting.append(invocation)
        user = ask_bus("GetConnectionUnixUser", "(s)", subject["name"])
        invocation.return_value(GLib.Variant("((bba{ss}))", ((str(user) in sys.argv[2:], True, {}),)))

    bus.register_object("/org/freedesktop/PolicyKit1/Authority", node.interfaces[0], answer, None, None)
    ask_bus("RequestName", "(su)", "org.freedesktop.PolicyKit1", 0)
    GLib.MainLoop().run()


def interactive():
    """Prints what comes of a call that may show a dialogue."""
    client, _ = asker()
    flags = Gio.DBusCallFlags.ALLOW_INTERACTIVE_AUTHORIZATION
    arguments = GLib.Variant("(s)", ("x",))

    def call():
        client.bus.call_sync(client.name, client.path, client.name, "Release", arguments, None, flags, 1500, None)

    print(outcome(call))


def dialogues():
    """Has this many users wait for two dialogues each, until stdin ends."""
    children = []
    for user in range(3000, 3000 + int(sys.argv[2])):
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            client, _ = asker()
            for _ in range(2):
                message = Gio.DBusMessage.new_method_call(client.name, client.path, client.name, "Release")
                message.set_flags(Gio.DBusMessageFlags.ALLOW_INTERACTIVE_AUTHORIZATION)
                message.set_body(GLib.Variant("(s)", ("x",)))
                client.bus.send_message(message, Gio.DBusSendMessageFlags.NONE)
            client.bus.flush_sync(None)
            signal.pause()
        children.append(child)
    sys.stdin.read()
    for child in children:
        os.kill(child, signal.SIGKILL)


def long():
    """Texts that become long lines between the service and its process on the bus."""
    _, ask = asker()
    knobs = [f'"idle-state:X{number}" = "off"\n' for number in range(250)]
    for selector, count in [("0," * 5000 + "0", 250), ("0," * 25000 + "0", 1), ("0-65535:2", 250)]:
        profile = f'[optional.cpus."{selector}"]\n' + "".join(knobs[:count])
        refused("InvalidArgs", lambda: ask("Plan", profile))
        refused("InvalidArgs", lambda: ask("Apply", profile, "x"))
    name = "x" * (2 << 20)
    refused("InvalidArgs", lambda: ask("Apply", PROFILE, name))
    refused("InvalidArgs", lambda: ask("Release", name))
    refused("InvalidArgs", lambda: ask("Plan", name))
    assert ask("Status")["holds"] == []


def replace():
    """Prints what comes of replacing and releasing the holds that are named."""
    _, ask = asker()
    for name in sys.argv[2:]:
        print(name, outcome(lambda: ask("Apply", PROFILE, name)), outcome(lambda: ask("Release", name)))


def make():
    asker()[1]("Apply", PROFILE, sys.argv[2])


def fill():
    """Holds as many profiles as the user may over two connections, prints their number, and keeps them until stdin ends."""
    number = 0
    for desktop in (Client(), Client()):
        while outcome(lambda: desktop.hold("power-saver")) == "ok":
            number += 1
    print(number, flush=True)
    sys.stdin.read()


def anything(choose):
    """A value of a random type, as deep as the choices make it."""
    texts = ["", "performance", PROFILE, NUL, "desktop", "/x", "\x1b[31m", "\u202e", "x" * 70000, "[" * 3000, "0"]
    kind = choose.randrange(9)
    if kind < 3:
        return GLib.Variant("s", choose.choice(texts))
    if kind == 3:
        return GLib.Variant("u", choose.choice([0, 1, 2**32 - 1]))
    if kind == 4:
        return GLib.Variant("b", choose.random() < 0.5)
    if kind == 5:
        return GLib.Variant("d", float("nan"))
    if kind == 6:
        return GLib.Variant.new_variant(anything(choose))
    if kind == 7:
        return GLib.Variant("ay", bytes(choose.randrange(256) for _ in range(choose.randrange(40))))
    return GLib.Variant.new_tuple(*(anything(choose) for _ in range(1 + choose.randrange(3))))


def random_calls():
    """Sends messages of all kinds that the bus lets through; usage: random_calls SEED COUNT."""
    choose = random.Random(int(sys.argv[2]))
    names = [UPOWER, HADESS, ("org.flyball.Control1", "/org/flyball/Control1")]
    standard = ["Properties", "Introspectable", "Peer", "ObjectManager"]
    members = ["HoldProfile", "ReleaseProfile", "SetActionEnabled", "Plan", "Apply", "Release", "Verify", "Status", "Get", "Set",
               "GetAll", "Introspect", "Ping", "GetMachineId", "GetManagedObjects", "Nothing"]
    bus = connect()
    for number in range(int(sys.argv[3])):
        if choose.random() < 0.01:
            # With calls that wait for an answer.
            bus.close_sync()
            bus = connect()
        name, path = choose.choice(names)
        interface = choose.choice([name, name, "org.freedesktop.DBus." + choose.choice(standard), None])
        member = choose.choice(members)
        message = Gio.DBusMessage.new_method_call(name, choose.choice([path, path, "/", "/org"]), interface, member)
        if choose.random() < 0.1:
            message = Gio.DBusMessage.new_signal(path, name, member)
            message.set_destination(name)
        message.set_flags(Gio.DBusMessageFlags(choose.randrange(8)))
        right = {"Plan": 1, "Apply": 2, "Release": 1, "HoldProfile": 3, "GetAll": 1, "Get": 2}.get(member)
        if right and choose.random() < 0.5:
            body = [GLib.Variant("s", choose.choice([name, PROFILE, NUL, "performance", "ActiveProfile", "x"])) for _ in range(right)]
        else:
            body = [anything(choose) for _ in range(choose.randrange(4))]
        if body:
            message.set_body(GLib.Variant.new_tuple(*body))
        bus.send_message(message, Gio.DBusSendMessageFlags.NONE)
        if number % 50 == 0:
            bus.flush_sync(None)
            outcome(lambda: asker()[1]("Status"))
    bus.flush_sync(None)
    assert outcome(lambda: asker()[1]("Status")) in ("ok", "AccessDenied", "LimitsExceeded")


def control():
    """flyball's own interface."""
    client, ask = asker()
    profile = PROFILE
    plan = ask("Plan", profile)
    assert plan["changes"], plan
    assert ask("Status")["holds"] == []
    applied = ask("Apply", profile, "mine")
    assert applied["hold"]["name"] == "mine" and applied["applied"]["made"], applied
    assert [one["Name"] for one in client.get("Holds")] == ["mine"]
    assert ask("Plan", profile)["changes"] == [] and ask("Verify")["drifted"] == []
    assert ask("Status")["knobs"][0]["holds"] is True
    for wrong in ["governor = 3", "govenor = \"x\"", "[", "x" * 300000, "governor = \"fast\""]:
        refused("InvalidArgs", lambda: ask("Plan", wrong))
        refused("InvalidArgs", lambda: ask("Apply", wrong, "other"))
    for hold in ["a b", "", "desktop", "desktop:1", "x" * 65]:
        refused("InvalidArgs", lambda: ask("Apply", profile, hold))
    refused("InvalidArgs", lambda: ask("Release", "other"))
    assert ask("Release", "mine")["released"] == ["mine"]
    assert client.get("Holds") == [] and ask("Plan", profile)["changes"]


if __name__ == "__main__":
    globals()[sys.argv[1]]()

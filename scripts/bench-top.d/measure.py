"""The parts of scripts/bench-top: PART FLYBALL ROUNDS MACHINE. It starts itself again inside of the simulated machine."""

import fcntl, glob, json, os, pty, re, resource, select, shutil, signal, statistics, struct, subprocess, sys, termios, time

part, flyball, rounds, machine = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
if "BENCH_TOP_TERMINAL" not in os.environ:
    # A served machine has no terminals to open: this one is passed on.
    ends = pty.openpty()
    os.environ["BENCH_TOP_TERMINAL"] = "%d,%d" % ends
    sys.exit(subprocess.run([flyball, "sim", "run", machine, "--", "python3", *sys.argv], pass_fds=ends).returncode)
machine = os.path.basename(machine).removesuffix(".toml")
missed = []
# The screen's own numbers, and no warning of a terminal that is not known.
environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}


def goal(what, value, most, unit, least=False):
    good = value >= most if least else value <= most
    if not good:
        missed.append(what)
    print(f"  {'met' if good else 'NOT MET'}: {what}: {value:.3g} {unit} (goal: at {'least' if least else 'most'} {most:g})", flush=True)


def used_ms(pid):
    """CPU time of all threads; neither program ends one that counts."""
    total = 0
    for file in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        try:
            total += int(open(file).read().split()[0])
        except OSError:
            pass
    return total / 1e6


def whole_ms(command):
    """CPU time of a command from start to end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def load(cpus):
    return subprocess.Popen([flyball, "sim", "work", "spin", "--amount", "1000000000", "--pin", cpus], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def end(process):
    process.send_signal(signal.SIGTERM)
    process.wait()


class Bursts:
    """A program that prints something per sample: what it had used after each."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
        self.fd = self.process.stdout.fileno()

    def next(self):
        """Waits for the next output and its end; the text and the CPU time so far."""
        text = b""
        while select.select([self.fd], [], [], 0.15 if text else 30)[0]:
            data = os.read(self.fd, 1 << 20)
            if not data:
                break
            text += data
        return text, used_ms(self.process.pid)

    def costs(self, count):
        """CPU time per sample, and the text of each. The first two have the start in them."""
        self.next()
        _, before = self.next()
        costs, texts = [], []
        for _ in range(count):
            text, now = self.next()
            costs.append(now - before)
            texts.append(text)
            before = now
        end(self.process)
        return costs, texts


class Terminal:
    """A program on a terminal of this size. It answers the questions that the program asks the terminal.

    The terminal is used again, so it controls no session: the kernel would hang it up at the end of the first."""

    def __init__(self, command, columns=200, rows=60):
        self.fd, slave = map(int, os.environ["BENCH_TOP_TERMINAL"].split(","))
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.burst(0)
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True)
        self.pid = self.process.pid

    def burst(self, wait, quiet=0.04):
        """What comes next, within so long; when it began and when it ended."""
        text, first, last = b"", None, None
        while select.select([self.fd], [], [], quiet if text else wait)[0]:
            try:
                data = os.read(self.fd, 1 << 20)
            except OSError:
                break
            if not data:
                break
            last = time.monotonic()
            first = first or last
            text += data
            if b"\x1b[6n" in data:
                os.write(self.fd, b"\x1b[1;1R")
        return text, first, last

    def status(self, key):
        return int(re.search(rf"^{key}:\s+(\d+)", open(f"/proc/{self.pid}/status").read(), re.M).group(1))

    def quit(self):
        os.write(self.fd, b"q")
        self.burst(2, 0.3)
        end(self.process)


def middle(numbers):
    return statistics.median(numbers)


COLUMNS = ["--show", "CPU,Busy%,Bzy_MHz,PkgWatt"]


def sample():
    """Pairs of flyball and turbostat; in each round both sample five times, a second apart, and the other goes first."""
    for name, cpus in (("no CPU busy", None), ("all CPUs busy", "0-511")):
        worker = load(cpus) if cpus else None
        time.sleep(2)
        pairs = {"all": [], "three": []}
        taking = []
        for number in range(rounds):
            for which, ours, theirs in (
                ("all", [flyball, "top", "--csv"], ["turbostat", "--quiet", "-i", "1"]),
                ("three", [flyball, "top", "--csv", *THREE], ["turbostat", "--quiet", "-i", "1", *COLUMNS]),
            ):
                one = two = None
                for turn in (0, 1):
                    if (number + turn) % 2:
                        one = middle(Bursts(ours).costs(5)[0])
                    else:
                        two = middle(Bursts(theirs).costs(5)[0])
                pairs[which].append((one, two))
            lines = Bursts([flyball, "--json", "top"]).costs(3)[1]
            taking += [json.loads(line)["cost"]["cpu"] / 1e6 for text in lines for line in text.splitlines()]
        print(f"{machine}, {name}; {rounds} paired rounds, CPU time per sample (user and system), medians")
        for which, share, most in (("all", 1 / 8, 12), ("three", 1 / 4, 6)):
            one, two = (middle(pair[side] for pair in pairs[which]) for side in (0, 1))
            ratio = middle(pair[0] / pair[1] for pair in pairs[which])
            title = "all columns" if which == "all" else "busy, MHz and watts"
            print(f"  {title}: flyball {one:.2f} ms with its rows printed, turbostat {two:.2f} ms, ratio {ratio:.3f}")
            goal(f"{name}, {title}: of turbostat's time", ratio, share, "")
            goal(f"{name}, {title}: a sample and its rows", one, most, "ms")
        print(f"  flyball's sample alone: {min(taking):.2f} to {max(taking):.2f} ms")
        goal(f"{name}: a sample", middle(taking), 10, "ms")
        if worker:
            end(worker)


THREE = ["--columns", "cpu,busy_percent,khz,package_watts"]


def first_screen():
    terminal = Terminal([flyball, "top"])
    text, last = b"", None
    # Until the limits and requests are there, which need no interval.
    while b"want" not in text:
        more, _, last = terminal.burst(20, 0.1)
        if not more:
            sys.exit(f"no screen: {text!r}")
        text += more
    used = used_ms(terminal.pid)
    terminal.quit()
    return used, 1e3 * (last - terminal.began)


def start():
    worker = load("0-63")
    time.sleep(2)
    screens, readings = [], []
    first_screen()
    for number in range(rounds):
        if number % 2:
            screens.append(first_screen())
            readings.append(whole_ms(["turbostat", "--quiet", "-i", "0.05", "-n", "1"]))
        else:
            readings.append(whole_ms(["turbostat", "--quiet", "-i", "0.05", "-n", "1"]))
            screens.append(first_screen())
    print(f"{machine}; {rounds} paired rounds, CPU time from start, medians")
    print(f"  flyball top to its first screen: {middle(used for used, _ in screens):.0f} ms; on the screen after {middle(wall for _, wall in screens):.0f} ms")
    print(f"  turbostat, start and one sample: {middle(readings):.0f} ms, ratio {middle(one[0] / two for one, two in zip(screens, readings)):.2f}")
    if shutil.which("cpupower"):
        print(f"  cpupower monitor -i 1:           {middle([whole_ms(['cpupower', 'monitor', '-i', '1']) for _ in range(3)]):.0f} ms")
    stui = os.environ.get("STUI") or shutil.which("s-tui")
    if stui:
        print(f"  s-tui -t:                        {middle([whole_ms([stui, '-t']) for _ in range(3)]):.0f} ms")
    goal("start to first screen", middle(used for used, _ in screens), 150, "ms")
    end(worker)


def screen():
    worker = load("0-575")
    print(f"{machine}, all CPUs busy, 200 x 60, a sample a second")
    time.sleep(2)
    for view, name in ((b"1", "overview"), (b"2", "map"), (b"3", "table"), (b"4", "one CPU")):
        terminal = Terminal([flyball, "top"])
        # The first screen, and two more with speeds.
        for _ in range(3):
            terminal.burst(5, 0.3)
        os.write(terminal.fd, view)
        terminal.burst(5, 0.3)
        used, began, sizes = used_ms(terminal.pid), time.monotonic(), []
        for _ in range(max(rounds, 20)):
            text, _, _ = terminal.burst(3)
            sizes.append(len(text))
        share = (used_ms(terminal.pid) - used) / (time.monotonic() - began) / 10
        memory = terminal.status("VmHWM") / 1024
        goal(f"{name}: share of a CPU", share, 1.5, "%")
        goal(f"{name}: memory at most", memory, 24, "MiB")
        goal(f"{name}: bytes of a frame, median", middle(sizes), 12000, "")
        if view == b"1":
            keys, largest = [], 0
            for number in range(60):
                # Just after a frame and in between, so that some keys come while a sample is taken.
                time.sleep(0.137)
                terminal.burst(0, 0.03)
                pressed = time.monotonic()
                os.write(terminal.fd, b"1234"[number % 4 : number % 4 + 1] if number % 4 else b"2")
                text, _, last = terminal.burst(2, 0.02)
                largest = max(largest, len(text))
                if last:
                    keys.append(1e3 * (last - pressed))
            keys.sort()
            print(f"  key to frame, {len(keys)} keys: median {middle(keys):.1f} ms, most {keys[-1]:.1f} ms")
            goal("bytes of a frame after a key, the largest", largest, 12000, "")
            goal("key to frame, 95 of 100", keys[len(keys) * 95 // 100], 50, "ms")
        terminal.quit()
    end(worker)


def values():
    """Both over the same five seconds, started together."""
    count = len(glob.glob("/sys/devices/system/cpu/cpu[0-9]*"))
    worker = load(f"0-{count // 2 - 1}")
    time.sleep(3)
    errors = {"busy": [], "MHz": [], "watts": []}
    for _ in range(3):
        theirs = subprocess.Popen(["turbostat", "--quiet", "-i", "5", "-n", "1", "--show", "Package,Core,CPU,Busy%,Bzy_MHz,PkgWatt"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ours = subprocess.Popen([flyball, "top", "--csv", "-i", "5s", "--samples", "1"], stdout=subprocess.PIPE, text=True)
        head, *rows = [line.split(",") for line in ours.communicate()[0].splitlines()]
        lines = [line.split() for line in theirs.communicate()[0].splitlines() if line.strip()]
        names = lines[0]
        table = {row[names.index("CPU")]: row for row in lines[1:] if row[names.index("CPU")] != "-"}
        watts = {}
        for row in rows:
            mine = dict(zip(head, row))
            row = dict(zip(names, table[mine["cpu"]]))
            if float(row["Busy%"]) > 50:
                errors["busy"].append(abs(float(mine["busy_percent"]) - float(row["Busy%"])))
                errors["MHz"].append(abs(float(mine["mhz"]) / float(row["Bzy_MHz"]) - 1) * 100)
            # Only the first row of a package has it.
            if row.get("PkgWatt"):
                watts[mine["package"]] = (float(mine["package_watts"]), float(row["PkgWatt"]))
        errors["watts"] += [abs(one / two - 1) * 100 for one, two in watts.values()]
    print(f"{machine}, half of the CPUs busy, 3 intervals of 5 s, difference to turbostat")
    for what, unit in (("busy", "points"), ("MHz", "%"), ("watts", "%")):
        numbers = sorted(errors[what])
        if not numbers:
            print(f"  {what}: turbostat has none here")
            continue
        print(f"  {what}: {len(numbers)} values, median {middle(numbers):.3f}, most {numbers[-1]:.3f} {unit}")
        goal(f"{what}, 95 of 100", numbers[(len(numbers) * 95 - 1) // 100], 0.5, unit)
    end(worker)


{"sample": sample, "start": start, "screen": screen, "values": values}[part]()
sys.exit(1 if missed else 0)

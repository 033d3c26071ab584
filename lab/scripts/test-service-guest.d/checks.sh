# Run by bash as a unit of systemd in a guest: the checks of lab/scripts/test-service-guest. Prints `ok NAME`, `not ok NAME: why`, `# FIGURE`,
# and `done` at its end.
# $1: which; $2: how often the service is killed.
which=$1 kills=$2
C=/sys/devices/system/cpu
export NO_COLOR=1
unit=flyball-hold.service
# The profile's governor is not the one that the kernel starts with.
wanted=$(sed -n 's/^governor = "\(.*\)"/\1/p' /etc/flyball/kept.toml)
other=performance
[ $wanted = powersave ] || other=powersave
shopt -s nullglob

ok() { echo "ok $1"; }
bad() { echo "not ok $1: $2"; }
# check NAME COMMAND...
check() {
    local name=$1 out
    shift
    if out=$("$@" 2>&1); then ok "$name"; else bad "$name" "$(tail -n 3 <<<"$out" | tr '\n' ';')"; fi
}
# within SECONDS COMMAND...: until it succeeds.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}
has() { case $2 in *"$3"*) ok "$1" ;; *) bad "$1" "no '$3' in '$2'" ;; esac; }
read1() { local line=; if read -r line <"$1"; then echo "$line"; else echo unreadable; fi; } 2>/dev/null
# Without a program, which in an emulator takes longer than the service does.
differs() {
    found=
    local count=0 policy value
    for policy in $C/cpufreq/policy*; do
        count=$((count + 1))
        value=
        read -r value <"$policy/scaling_governor"
        [ "$value" = "$wanted" ] || found+="${policy##*/} $value; "
        value=
        read -r value <"$policy/scaling_max_freq"
        [ "$value" = "$most" ] || found+="${policy##*/} $value kHz; "
    done 2>/dev/null
    [ $count = "$policies" ] || found+="$count policies; "
    [ -n "$found" ]
}
# held NAME SECONDS: everything is held again within that time; prints after how many ms.
held() {
    local begin=${EPOCHREALTIME/./} end=$((SECONDS + $2))
    while differs && [ $SECONDS -lt $end ]; do sleep 0.02; done
    local took=$(((${EPOCHREALTIME/./} - begin) / 1000))
    if differs; then bad "$1" "$found$(journalctl -u $unit -n 3 -o cat --no-pager | tr '\n' ';')"; else
        ok "$1"
        echo "# $1: $took ms"
    fi
}
service_pid() { systemctl show -P MainPID $unit; }
is_active() { systemctl is-active --quiet $unit; }
log() { journalctl -u $unit -o cat --no-pager "$@"; }
status() { flyball hold status 2>&1; }

policies=0
for policy in $C/cpufreq/policy*; do policies=$((policies + 1)); done

finish() {
    log >out/journal 2>/dev/null
    tar -C / -cf out/state.tar --exclude=./etc/flyball/hold.toml etc/flyball var/lib/flyball 2>/dev/null
    echo done
    exit 0
}

common() {
    check "systemd is process 1" grep -qx systemd /proc/1/comm
    # This command is a unit of the boot; everything else has started.
    check "the boot has ended" within 60 bash -c '[ -z "$(systemctl list-jobs --no-legend)" ]'
    failed=$(systemctl --failed --no-legend --plain | cut -d' ' -f1 | tr '\n' ' ')
    echo "# failed units: ${failed:-none}"
    check "the service is ready" within 60 is_active
    echo "# systemd $(systemctl --version | head -n 1), $(systemd-analyze time 2>/dev/null | head -n 1)"
}

another_writer() {
    echo $other >$C/cpufreq/policy1/scaling_governor
    held "another writer is corrected" 10
    has "with its name and unit" "$(log -n 20)" "flyball-command.service"
}

malformed() {
    common
    has "the governor is the kernel's" "$(cat $C/cpufreq/policy*/scaling_governor | sort -u)" $other
    high=$(read1 $C/cpufreq/policy0/cpuinfo_max_freq)
    has "the limit is the kernel's" "$(cat $C/cpufreq/policy*/scaling_max_freq | sort -u)" "$high"
    check "the journal has no writes" bash -c '! grep -q Write /run/flyball/journal 2>/dev/null'
    text=$(status)
    has "status has file and line" "$text" "kept.toml line 3"
    echo "# $(grep -m 1 kept.toml <<<"$text")"
    sed -i 's/^max-freq = .*/max-freq = "2GHz"/' /etc/flyball/kept.toml
    check "the file is mended and read again" systemctl reload $unit
    most=$(($(read1 $C/cpufreq/policy0/scaling_max_freq)))
    within 20 bash -c "[ \"\$(cat $C/cpufreq/policy0/scaling_governor)\" = $wanted ]"
    most=$(read1 $C/cpufreq/policy0/scaling_max_freq)
    held "then it holds" 20
    finish
}

# What the driver makes of the frequency of the profile is what is to be held.
wait_for_boot() {
    within 30 bash -c "[ \"\$(cat $C/cpufreq/policy0/scaling_governor)\" = $wanted ]"
    sleep 1
    most=$(read1 $C/cpufreq/policy0/scaling_max_freq)
    [ $((most / 100000)) = $(($1 / 100000)) ] || bad "the limit at boot" "$most kHz instead of about $1"
    held "the profile holds after boot" 10
    check "hold status says so" flyball hold status
}

killed() {
    local round=0 wrong=0 slowest=0 pid new begin took
    # systemd gives up on a unit that ends too often; here that is the test.
    mkdir -p /run/systemd/system/$unit.d
    printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\n' >/run/systemd/system/$unit.d/test.conf
    systemctl daemon-reload
    while [ $round -lt $kills ]; do
        round=$((round + 1))
        pid=$(service_pid)
        [ "$pid" != 0 ] || { within 30 is_active; pid=$(service_pid); }
        # A drift, so that some of the kills come in the middle of a correction or of a start.
        echo $other >$C/cpufreq/policy$((RANDOM % policies))/scaling_governor
        sleep "$((RANDOM % 2)).$((RANDOM % 1000 + 1000))"
        kill -9 "$pid" 2>/dev/null
        [ $((round % 4)) = 0 ] || continue
        begin=${EPOCHREALTIME/./}
        within 60 is_active || { wrong=$((wrong + 1)); echo "# round $round: not active"; continue; }
        # A setting that was corrected five times in a minute is left by design: the hold is added again, as a user would.
        local end=$((SECONDS + 20))
        while differs && [ $SECONDS -lt $end ]; do sleep 0.05; done
        if differs; then
            if status | grep -q "left after\|gave way\|left"; then systemctl kill -s HUP $unit; else wrong=$((wrong + 1)); echo "# round $round: $found"; fi
        fi
        took=$(((${EPOCHREALTIME/./} - begin) / 1000))
        [ $took -le $slowest ] || slowest=$took
    done
    within 60 is_active
    rm -r /run/systemd/system/$unit.d
    systemctl daemon-reload
    systemctl restart $unit
    echo "# $kills kills, slowest return $slowest ms"
    if [ $wrong = 0 ]; then ok "killed $kills times"; else bad "killed $kills times" "$wrong wrong"; fi
    held "held after all kills" 30
}

boot() {
    common
    wait_for_boot 2000000
    another_writer

    for cpu in 3 1; do
        echo 0 >$C/cpu$cpu/online && echo 1 >$C/cpu$cpu/online && held "CPU $cpu was offline" 15
    done
    for cpu in 1 2 3; do echo 0 >$C/cpu$cpu/online; done
    for cpu in 1 2 3; do echo 1 >$C/cpu$cpu/online; done
    held "all but one were offline" 15
    for round in 1 2 3 4 5 6 7 8 9 10; do
        echo 0 >$C/cpu$((round % 3 + 1))/online
        echo 1 >$C/cpu$((round % 3 + 1))/online
    done
    held "a storm of hotplug" 20

    for mode in passive guided active; do
        if echo $mode >$C/amd_pstate/status; then held "driver mode $mode" 20; else bad "driver mode $mode" refused; fi
    done

    asleep
    check "the service is the same" [ "$(systemctl show -P NRestarts $unit)" = 0 ]

    now=$(date +%s)
    date -s "@$((now + 31536000))" >/dev/null
    sleep 2
    date -s "@$((now - 86400))" >/dev/null
    sleep 2
    date -s "@$now" >/dev/null
    check "the clock jumped" is_active
    held "held after it" 10

    flyball hold run >/tmp/second 2>&1
    code=$?
    if [ $code = 6 ]; then ok "a second service is refused"; else bad "a second service is refused" "exit $code: $(cat /tmp/second)"; fi
    has "with the first one's number" "$(cat /tmp/second)" "$(service_pid)"

    # No room: the holds stay as they are.
    dd if=/dev/zero of=/run/full bs=1M >/dev/null 2>&1
    flyball hold add more turbo=off >/tmp/full 2>&1
    code=$?
    if [ $code = 1 ]; then ok "no room in /run is a failure"; else bad "no room in /run is a failure" "exit $code: $(cat /tmp/full)"; fi
    echo "# $(tail -n 1 /tmp/full)"
    rm /run/full
    has "and no hold is added" "$(flyball hold list)" kept
    case $(flyball hold list) in *more*) bad "nor half of it" "$(flyball hold list)" ;; *) ok "nor half of it" ;; esac
    held "held after it" 10

    busy
    unprivileged

    for round in $(seq 12); do
        echo $other >$C/cpufreq/policy2/scaling_governor
        sleep 1
    done
    has "a writer of each second: given way" "$(log -n 60)" "left for a while, because it was corrected too often"
    echo "# $(log -n 60 | grep -c 'corrected') corrections in the log"
    systemctl restart $unit
    held "held after a start" 20

    killed

    systemctl stop $unit
    if differs; then bad "stop keeps the settings" "$found"; else ok "stop keeps the settings"; fi
    check "it starts again" systemctl start $unit
    flyball hold release --all >/tmp/released 2>&1 || bad "release" "$(cat /tmp/released)"
    has "released: the governor is the kernel's" "$(cat $C/cpufreq/policy*/scaling_governor | sort -u)" $other
    finish
}

# A bus that restarts, and one that is gone.
busy() {
    check "the service is on the bus" within 60 busctl --quiet status org.flyball.Control1
    systemctl restart dbus
    check "on the bus again" within 90 busctl --quiet status org.flyball.Control1
    echo $other >$C/cpufreq/policy0/scaling_governor
    held "held after it" 10
}

# Users without rights: what polkit does not allow is refused; what it allows is set.
unprivileged() {
    as_bob() { setpriv --reuid bob --regid bob --clear-groups busctl --system call org.flyball.Control1 /org/flyball/Control1 org.flyball.Control1 "$@"; }
    if as_bob Apply ss 'max-freq = "1GHz"' bobs >/tmp/bob 2>&1; then bad "a user is refused" "$(cat /tmp/bob)"; else ok "a user is refused"; fi
    mkdir -p /etc/polkit-1/rules.d
    echo 'polkit.addRule(function(action, subject) { if (action.id == "org.flyball.hold" && subject.user == "bob") return "yes"; });' \
        >/etc/polkit-1/rules.d/10-test.rules
    sleep 2
    if as_bob Apply ss 'max-freq = "1GHz"' bobs >/tmp/bob 2>&1; then ok "polkit allows it"; else bad "polkit allows it" "$(cat /tmp/bob)"; fi
    has "the hold is bob's" "$(flyball hold list)" bob
    within 5 bash -c "[ \$(cat $C/cpufreq/policy0/scaling_max_freq) -lt 1200000 ]" && ok "and it is set" || bad "and it is set" "$(cat $C/cpufreq/policy0/scaling_max_freq)"
    as_bob Release s bobs >/tmp/bob 2>&1 || bad "bob releases it" "$(cat /tmp/bob)"
    held "then the profile counts again" 10
}

asleep() {
    # All levels but the firmware's: the other CPUs go and come back without uevents; at core the clocks stop too.
    for what in "mem devices" "mem processors" "mem core" "freeze platform"; do
        if echo "${what#* }" >/sys/power/pm_test 2>/dev/null && echo "${what% *}" >/sys/power/state; then
            held "suspended (${what% *}, pm_test=${what#* })" 75
        else
            echo "# this kernel does not suspend here ($what)"
        fi
    done
    echo none >/sys/power/pm_test
    # Without pm_test nothing wakes this guest: the emulator's clock does not end its idle sleep.
    echo "# lines about sleep: $(log | grep -c 'after the machine was asleep')"
}

intel() {
    common
    wait_for_boot 1500000
    another_writer
    for mode in passive active; do
        if echo $mode >$C/intel_pstate/status; then held "driver mode $mode" 20; else bad "driver mode $mode" refused; fi
    done
    check "Speed Select has levels" flyball sst info
    before=$(flyball get sst-level 2>/dev/null | head -n 1)
    for level in 4 0; do
        flyball sst perf-profile set-config-level -l $level >/tmp/level 2>&1 || bad "level $level" "$(cat /tmp/level)"
        held "Speed Select level $level" 30
    done
    echo "# level: $before; $(flyball get sst-level 2>/dev/null | head -n 1)"

    # Energy for users who may not read the meter.
    meter=$(echo /sys/class/powercap/intel-rapl:0/energy_uj)
    if [ -e "$meter" ]; then
        as() { setpriv --reuid "$1" --regid "$1" --init-groups "${@:2}"; }
        if as bob cat "$meter" >/dev/null 2>&1; then bad "the meter is root's" "$(stat -c %a "$meter")"; else ok "the meter is root's"; fi
        before=$(read1 "$meter")
        watts() { awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "package_watts") column = i }
            NR > 1 && $column > 0 { found = $column } END { print found }' "$1"; }
        # The service may have looked for meters before the driver came; it looks again after ten seconds.
        ann=
        for round in 1 2 3; do
            as ann flyball top --csv -n 4 >/tmp/ann 2>/tmp/ann.err
            ann=$(watts /tmp/ann)
            [ -z "$ann" ] || break
            sleep 10
        done
        as bob flyball top --csv -n 3 >/tmp/bob 2>/tmp/bob.err
        bob=$(watts /tmp/bob)
        echo "# meter $before to $(read1 "$meter") uJ; $round rounds"
        if [ -n "$ann" ]; then ok "a user of the group flyball gets the energy"; else bad "a user of the group flyball gets the energy" "$(cat /tmp/ann.err)"; fi
        if [ -z "$bob" ]; then ok "another user does not"; else bad "another user does not" "$bob W"; fi
        echo "# ann: $ann W; bob: $(tail -n 2 /tmp/bob.err | tr '\n' '|')"
    else
        echo "# no meter at $meter: $(echo /sys/class/powercap/*)"
    fi
    killed
    finish
}

# TLP and TuneD next to the service: they are named with the command that ends them, that command does, they may run beside the service, and how often
# each wakes, in the same minutes of the same guest.
neighbours() {
    common
    wait_for_boot 2000000
    systemctl start tlp tuned
    check "TLP and TuneD run beside the service" bash -c "systemctl is-active --quiet tuned && systemctl is-active --quiet $unit"
    systemctl stop tuned "$unit"
    systemctl restart tlp
    has "TLP sets the governor" "$(cat $C/cpufreq/policy0/scaling_governor)" powersave
    flyball hold add one governor=performance >/tmp/note 2>&1
    note=$(grep TLP /tmp/note)
    has "TLP is named" "$note" "systemctl disable --now tlp.service"
    echo "# $note"
    eval "${note##*to end it: }" >/dev/null 2>&1
    tlp auto >/tmp/auto 2>&1
    check "udev's call does nothing any more" grep -q disabled /tmp/auto
    check "the command ends it" bash -c '! systemctl is-active --quiet tlp && ! systemctl is-enabled --quiet tlp'
    flyball hold add one governor=performance >/tmp/note 2>&1
    case $(cat /tmp/note) in *TLP*) bad "then it is not named" "$(grep TLP /tmp/note)" ;; *) ok "then it is not named" ;; esac
    systemctl start tuned
    within 60 pgrep -f /usr/sbin/tuned >/dev/null
    flyball hold add two governor=performance >/tmp/note 2>&1
    note=$(grep tuned /tmp/note)
    has "TuneD is named" "$note" "systemctl disable --now tuned.service"
    echo "# $note"
    flyball hold release --all >/dev/null 2>&1

    # All three at once, for a while.
    sed -i 's/^dynamic_tuning.*/dynamic_tuning = 1/' /etc/tuned/tuned-main.conf
    systemctl restart tuned
    tuned-adm profile balanced
    tlp start >/dev/null 2>&1
    flyball hold run >/tmp/service 2>&1 &
    service=$!
    within 60 grep -q "\"pid\": $service" /run/flyball/holds
    tuned=$(systemctl show -P MainPID tuned)
    sleep 30
    # usage PID: voluntary switches of all threads, and their CPU time in ms.
    usage() {
        cat "/proc/$1"/task/*/status 2>/dev/null | awk '/^voluntary_ctxt/ { n += $2 } END { printf "%d ", n }'
        cat "/proc/$1"/task/*/schedstat 2>/dev/null | awk '{ n += $1 } END { printf "%d\n", n / 1e6 }'
    }
    first_tuned=$(usage "$tuned") first_service=$(usage $service) begin=${EPOCHREALTIME/./}
    sleep "${MINUTES_OF_REST:-5}m"
    last_tuned=$(usage "$tuned") last_service=$(usage $service) took=$(((${EPOCHREALTIME/./} - begin) / 1000000))
    echo "# in $took s: tuned $first_tuned to $last_tuned, flyball $first_service to $last_service (wake-ups, ms of CPU)"
    echo "# processes of TLP: $(pgrep -c '^tlp'), timers: $(systemctl list-timers --all --no-legend | grep -c tlp)"
    kill $service
    finish
}

$which

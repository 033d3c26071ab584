#!/bin/sh
# Runs in a guest: flyball sst changes the machine, the unmodified tool says what it sees, flyball restores, and the
# state has to be what it was, as the drivers and the kernel tell it. A line a check: ok ..., or not ok ... .
#   flyball-sst.sh [few]
. ./common.sh
few=$1
# Of what is not asked in every guest each day, what is asked where registers are in memory.
case $(/tmp/raw | head -1) in *1) few_more= ;; *) few_more=yes ;; esac
[ -n "$few" ] || few_more=yes
fly="$start /tmp/fb/flyball --state-dir /tmp/state"
ok() { echo "ok $*"; }
bad() { echo "not ok $*"; cat /tmp/out /tmp/err 2>/dev/null; }
fly() { $fly "$@" >/tmp/out 2>/tmp/err; }
restored() { # WHAT: puts back, and compares with the state before
    if ! $fly restore >/tmp/out 2>/tmp/err; then bad "$1: restore ends with $?"; fi
    state >/tmp/after
    if cmp -s /tmp/before /tmp/after; then ok "$1: restored"; else bad "$1: not restored"; diff /tmp/before /tmp/after; fi
}
# What an eye from outside sees while the settings of WORDS hold: the tool's WORDS print PATTERN, or where there is no
# tool at least something is other than before.
check() { # WORDS TOOL-WORDS PATTERN
    state >/tmp/before
    fly $1
    code=$?
    if [ $code -ne 0 ] && [ $code -ne 7 ]; then
        bad "$1: exit $code"
    elif [ -n "$real" ]; then
        if $real $2 2>&1 | grep -q -e "$3"; then ok "$1"; else bad "$1: no $3 from $2"; $real $2 2>&1 | head -60; fi
    else
        state >/tmp/during
        if cmp -s /tmp/before /tmp/during; then bad "$1: nothing changed"; else ok "$1"; fi
    fi
    restored "$1"
}
# A refusal: EXIT, words on stderr that have PATTERN, and nothing changed.
refused() { # EXIT PATTERN WORDS...
    wanted=$1 pattern=$2
    shift 2
    state >/tmp/untouched
    fly "$@"
    code=$?
    state >/tmp/after
    if [ $code -ne $wanted ]; then bad "$*: exit $code, not $wanted"
    elif ! grep -q -i -e "$pattern" /tmp/err; then bad "$*: does not say $pattern"
    elif ! cmp -s /tmp/untouched /tmp/after; then bad "$*: refused, and yet"; diff /tmp/untouched /tmp/after
    else ok "refused: $*"; fi
}
said() { # PATTERN: in what was said last
    if cat /tmp/out /tmp/err | grep -q -e "$1"; then ok "said: $1"; else bad "does not say $1"; fi
}
fly --json sst perf-profile get-config-levels
levels=$(grep -o '"highest_level": [0-9]*' /tmp/out | head -1 | grep -o '[0-9]*$')
: ${levels:=0}
# Sierra Forests, as recorded, have levels alone.
fly --json sst info
if grep -q '"base_freq": true' /tmp/out; then features=yes; else features=; fi

refused 2 'levels are' sst perf-profile set-config-level -l 9
if [ -n "$features" ]; then
    check 'sst base-freq enable -a' 'core-power get-config -c 0' 'clos-min:[1-9]'
    fly plan sst-bf=on
    said 'sst-bf=on needs classes of service'
    said 'CPUs\? ([0-9,-]*) at [0-9]* MHz, .* at [0-9]* MHz instead of [0-9]* MHz'
    check 'sst -c 1 turbo-freq enable -a' '-c 0 perf-profile info -l 0' 'speed-select-turbo-freq:enabled'
else
    refused 2 'no level has it' sst base-freq enable -a
    refused 2 'no level has it' sst -c 1 turbo-freq enable -a
fi

if [ $levels -ge 2 ]; then
    check 'sst perf-profile set-config-level -l 2 -o' 'perf-profile get-config-current-level' 'current_level:2'
    [ -z "$few_more" ] || check 'sst perf-profile set-config-level -l 2 --cgroup' 'perf-profile get-config-current-level' 'current_level:2'
    # Base-freq on, then a level that has none: two commands, one way back.
    state >/tmp/before
    fly sst base-freq enable
    fly sst perf-profile set-config-level -l 2 -o || bad "level 2 under base-freq: exit $?"
    grep -q base-freq /tmp/err /tmp/out || bad 'a level change that switches base-freq off does not say so'
    refused 2 'levels with it' set sst-bf=on
    fly restore --last || bad "restore --last: exit $?"
    restored 'base-freq, then level 2'

    # kill -9 in the middle: at parts of the time that the whole takes.
    cat >/tmp/many.toml <<'END'
sst-level = "1"
sst-cp = "on"
clos = "2"
"clos-min:2" = "1GHz"
"clos-max:2" = "2GHz"
[cpus."1"]
online = "off"
END
    state >/tmp/before
    start_of=$(cut -d' ' -f1 /proc/uptime)
    if fly apply /tmp/many.toml; then ok 'apply many'; else bad "apply many: exit $?"; fi
    took=$(echo "$start_of $(cut -d' ' -f1 /proc/uptime)" | awk '{print $2 - $1}')
    state >/tmp/during
    if cmp -s /tmp/before /tmp/during; then bad 'apply many: nothing changed'; fi
    restored 'apply many'
    [ -n "$few" ] && parts='60' || parts='10 20 30 40 50 55 60 65 70 75 80 85 90 95'
    middle=0
    for part in $parts; do
        $fly apply /tmp/many.toml >/tmp/out 2>/tmp/err &
        victim=$!
        sleep $(echo "$took $part" | awk '{print $1 * $2 / 100}')
        kill -9 $victim 2>/dev/null
        wait $victim 2>/dev/null
        restored "kill -9 at $part % of $took s"
        grep -q 'did not finish' /tmp/out && middle=$((middle + 1))
    done
    if [ -z "$few" ]; then
        if [ $middle -gt 0 ]; then ok "killed in the middle $middle times"; else bad 'never killed in the middle'; fi
    fi

    # Firmware that fails while settings are put back (lab/docs/guest.md, --faults): what is not back is said, by name and
    # with an exit code of its own; it is remembered, and when the firmware works again everything is put back.
    break_firmware() { /tmp/raw msr 0x400000fb $1 || bad "the firmware cannot be broken"; }
    fails() { # VALUE HOW PATTERN
        state >/tmp/before
        fly apply /tmp/many.toml || bad "apply many: exit $?"
        break_firmware $1
        $fly restore >/tmp/out 2>/tmp/err
        code=$?
        cat /tmp/out /tmp/err >/tmp/said
        if [ $code -eq 3 ]; then ok "firmware $2 while restoring: exit 3"; else bad "firmware $2 while restoring: exit $code"; fi
        if grep -q -e "$3" /tmp/said; then ok "and says $3"; else bad "does not say $3"; fi
        if grep -q 'tries again' /tmp/said; then ok 'and what to do'; else bad 'does not say what to do'; fi
        # Asked again it fails again, and forgets nothing.
        $fly restore >/tmp/out 2>/tmp/err
        code=$?
        if [ $code -eq 3 ]; then ok "firmware $2, once more: exit 3"; else bad "firmware $2, once more: exit $code"; fi
        fly restore -n
        if grep -q 'would undo' /tmp/out && ! grep -q ', 0 differ' /tmp/out; then ok 'and remembers'; else bad 'the journal is gone'; fi
        break_firmware 0
        restored "firmware $2, then well again"
    }
    [ -z "$few_more" ] || fails 2 'refuses' 'sst-level\|perf-profile\|level'
    if [ -z "$few" ]; then
        fails 4 'locks levels' 'level'
        case $(/tmp/raw | head -1) in *1) fails 1 'is busy' 'mailbox\|EBUSY\|busy' ;; esac
        # And while they are made: nothing is left half done.
        state >/tmp/before
        break_firmware 2
        fly apply /tmp/many.toml
        code=$?
        if [ $code -eq 1 ]; then ok 'firmware that refuses: exit 1'; else bad "firmware that refuses: apply ends with $code"; fi
        break_firmware 0
        state >/tmp/after
        if cmp -s /tmp/before /tmp/after; then ok 'and all is as it was'; else bad 'left half done'; diff /tmp/before /tmp/after; fi
    fi
else
    refused 2 'locked\|levels are' sst perf-profile set-config-level -l 1
fi

if [ -z "$few" ] && [ -n "$features" ]; then
    for words in info 'perf-profile info' 'perf-profile info -l 0' 'perf-profile get-lock-status' \
        'perf-profile get-config-levels' 'perf-profile get-config-version' 'perf-profile get-config-enabled' \
        'perf-profile get-config-current-level' 'base-freq info' 'turbo-freq info' 'turbo-freq info -b 0' \
        'core-power info' 'core-power get-config' 'core-power get-config -c 1' 'core-power get-assoc' \
        'turbo-mode get-trl' 'recommend --cpus 1' 'recommend --cpus 1 --turbo'; do
        for json in '' --json; do
            if fly $json sst $words && [ -s /tmp/out ]; then ok "sst $words $json"; else bad "sst $words $json"; fi
        done
    done
    check 'sst core-power config -c 1 --min 1GHz --max 2GHz' 'core-power get-config -c 1' 'clos-max:2000 MHz'
    check 'sst -c 1 core-power assoc -c 2' '-c 1 core-power get-assoc' 'clos:2'
    refused 2 'class' sst core-power config -c 7 --min 1GHz
    refused 2 'hexadecimal' sst turbo-mode set-trl -t 0xzz
    check 'sst turbo-mode set-trl -t 0x2020202020202020' '-c 0 turbo-mode get-trl' 'trl:0x2020202020202020'
    check 'sst core-power enable -p ordered' 'core-power info' 'priority-type:ordered'
    check 'sst core-power enable -p proportional' 'core-power info' 'enable-status:enabled'
    check 'sst base-freq enable' '-c 0 perf-profile info -l 0' 'speed-select-base-freq:enabled'
    check 'sst turbo-freq enable' '-c 0 turbo-mode get-trl' 'trl:0xffffffffffffffff'
    check 'sst turbo-freq enable -t 0x1f1f1f1f1f1f1f1f' '-c 0 turbo-mode get-trl' 'trl:0x1f1f1f1f1f1f1f1f'
    check 'sst turbo-mode disable' '--version' 'v1'
    if [ $levels -ge 1 ]; then
        check 'sst perf-profile set-config-level -l 1' 'perf-profile get-config-current-level' 'current_level:1'
        check 'sst perf-profile set-config-level -l 1 -o' 'perf-profile get-config-current-level' 'current_level:1'
        check 'apply sst-level=1 sst-bf=on sst-tf=on clos-max:3=2GHz clos=3' '-c 1 core-power get-assoc' 'clos:3'
    fi
    state >/tmp/before
    fly sst recommend --cpus 1 --profile
    cp /tmp/out /tmp/profile.toml
    if fly apply /tmp/profile.toml; then ok 'the recommended profile applies'; else bad 'the recommended profile'; fi
    if fly verify /tmp/profile.toml; then ok 'and holds'; else bad 'the recommended profile does not hold'; fi
    restored 'the recommended profile'
    state >/tmp/before
    if fly run sst-bf=on -- sh -c '/tmp/raw >/tmp/within'; then ok 'run'; else bad "run: exit $?"; fi
    /tmp/raw >/tmp/now
    cmp -s /tmp/within /tmp/now && bad 'run: nothing was other for the command'
    restored 'run'
    for pair in 'enable disable'; do
        state >/tmp/before
        fly sst base-freq enable -a && fly sst base-freq disable -a || bad 'base-freq enable, disable'
        fly sst -c 1 turbo-freq enable -a && fly sst turbo-freq disable -a || bad 'turbo-freq enable, disable'
        fly sst core-power disable || bad 'core-power disable'
        restored 'enable and disable'
    done
    # A level that somebody else changes, followed.
    if [ $levels -ge 2 ] && [ -n "$real" ]; then
        for by in '' --cgroup; do
            state >/tmp/before
            $fly sst watch --poll 1 $by >/tmp/out 2>/tmp/err &
            watcher=$!
            eventually grep -q ': level 0$' /tmp/out
            was=$(cat $sys/online)
            followed() { [ "$(cat $sys/online)" != "$was" ] || grep -q isolated /sys/fs/cgroup/*/cpuset.cpus.partition; }
            back() { ! followed 2>/dev/null; }
            $real perf-profile set-config-level -l 2 >/dev/null 2>&1
            if eventually followed 2>/dev/null; then ok "watch $by: followed"; else bad "watch $by: nothing followed"; fi
            eventually grep -q 'became 2' /tmp/out
            sleep 2
            $real perf-profile set-config-level -l 0 >/dev/null 2>&1
            eventually back
            eventually grep -q 'became 0' /tmp/out
            sleep 2
            kill -TERM $watcher
            wait $watcher
            code=$?
            [ $code -eq 0 ] && ok "watch $by ends with 0" || bad "watch $by: exit $code"
            grep -q 'became 2' /tmp/out && grep -q 'became 0' /tmp/out && ok "watch $by says what it saw" || bad "watch $by"
            state >/tmp/after
            # A level brings its turbo limits along, whoever changes it; those from before are nobody's to put back here.
            grep -v -e cgroup -e '^trl of' /tmp/before >/tmp/b; grep -v -e cgroup -e '^trl of' /tmp/after >/tmp/a
            cmp -s /tmp/b /tmp/a && ok "watch $by: back" || { bad "watch $by: not back"; diff /tmp/b /tmp/a; }
        done
    fi
fi
if [ -z "$few" ]; then
    # Who may not, and what is not there.
    echo nobody:x:65534:65534::/:/bin/sh >>/etc/passwd
    chmod 1777 /tmp
    as_nobody() { su -s /bin/sh nobody -c "$start /tmp/fb/flyball --state-dir /tmp/none $*" >/tmp/out 2>/tmp/err; }
    as_nobody sst core-power info
    code=$?
    [ $code -eq 1 ] && grep -q -i 'root\|permission' /tmp/err && ok 'no permission' || bad "no permission: exit $code"
    as_nobody sst core-power enable
    code=$?
    [ $code -ne 0 ] && grep -q -i 'root\|permission' /tmp/err && ok 'no permission to write' || bad "write: exit $code"
    mv /dev/isst_interface /dev/away
    fly sst core-power info
    code=$?
    if [ $code -eq 4 ] || [ $code -eq 0 ]; then
        grep -q -i 'modprobe\|debugfs\|CONFIG' /tmp/err && ok 'no node' || bad 'no node: no remedy'
    else
        bad "no node: exit $code"
    fi
    mv /dev/away /dev/isst_interface
fi
[ -e events.sh ] && . ./events.sh
if dmesg | grep -E 'Oops|BUG:|Call Trace|general protection'; then echo 'not ok the kernel complains'; fi
echo '##### end of the checks'

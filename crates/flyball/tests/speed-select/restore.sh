#!/bin/sh
# Runs in a guest: flyball sst changes the machine, the unmodified tool says what it sees, flyball restores, and the
# state has to be what it was. Prints one line a check; ends with the number of failures.
# Beside it: t26 (the real tool with its C library), fb (flyball under the name intel-speed-select).
for m in isst_if_common isst_if_mbox_msr isst_if_mbox_pci isst_if_mmio intel_vsec intel_vsec_tpmi isst_tpmi; do
    modprobe $m 2>/dev/null
done
cp -a t26 fb /tmp/
ln -sf intel-speed-select /tmp/fb/flyball
tool="/tmp/t26/ld-linux-x86-64.so.2 --library-path /tmp/t26 /tmp/t26/intel-speed-select"
fly="/tmp/t26/ld-linux-x86-64.so.2 --library-path /tmp/t26:/tmp/fb /tmp/fb/flyball --state-dir /tmp/state"
cpus=0-$(($(ls -d /sys/devices/system/cpu/cpu[0-9]* | wc -l) - 1))
failed=0
quiet() { "$@" 2>&1 | grep -v -e '^Intel(R) Speed' -e '^Executing on' -e '^Caching'; }
state() {
    sleep 0.1
    grep -H . /sys/devices/system/cpu/cpu[0-9]*/online /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_m??_freq
    quiet $tool core-power info
    for c in 0 1 2 3; do quiet $tool core-power get-config -c $c; done
    quiet $tool -c $cpus core-power get-assoc
    quiet $tool perf-profile get-config-current-level
    quiet $tool perf-profile info | grep -e speed-select-turbo-freq: -e speed-select-base-freq: -e speed-select-core-power:
    quiet $tool turbo-mode get-trl
}
check() { # WORDS EXPECTED-PATTERN-OF-STATE
    state >/tmp/before
    $fly $1 >/tmp/out 2>/tmp/err
    code=$?
    state >/tmp/during
    if [ $code -ne 0 ] && [ $code -ne 7 ]; then
        failed=$((failed + 1)); echo "FAILED $1: exit $code"; cat /tmp/out /tmp/err
    elif ! grep -q "$2" /tmp/during; then
        failed=$((failed + 1)); echo "FAILED $1: no $2"; cat /tmp/out /tmp/err
    fi
    $fly restore >/tmp/out 2>&1 || { failed=$((failed + 1)); echo "FAILED restore after $1"; cat /tmp/out; }
    state >/tmp/after
    if cmp -s /tmp/before /tmp/after; then
        echo "ok $1 (exit $code)"
    else
        failed=$((failed + 1)); echo "FAILED $1: not restored"; diff /tmp/before /tmp/after
    fi
}
$fly sst info
check 'sst core-power enable -p 1' 'priority-type:ordered'
check 'sst core-power config -c 1 --min 1GHz --max 2GHz -w 3' 'clos-max:2000 MHz'
check 'sst -c 1 core-power assoc -c 2' 'clos:2'
check 'sst base-freq enable' 'speed-select-base-freq:enabled'
check 'sst base-freq enable -a' 'clos-proportional-priority:15'
check 'sst -c 1 turbo-freq enable -a' 'speed-select-turbo-freq:enabled'
check 'sst turbo-mode set-trl -t 0x2020202020202020' 'trl:0x2020202020202020'
check 'sst perf-profile set-config-level -l 1' 'get-config-current_level:1'
check 'sst perf-profile set-config-level -l 2 -o' 'get-config-current_level:2'
$fly plan sst-bf=on
$fly sst -c 1 recommend
$fly sst core-power config -c 7; echo "rc $?"
$fly sst perf-profile set-config-level -l 9; echo "rc $?"
dmesg | grep -E 'Oops|BUG:|Call Trace' && failed=$((failed + 1))
echo "failures: $failed"
exit $failed

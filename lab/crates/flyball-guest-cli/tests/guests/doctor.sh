#!/bin/sh
# doctor.sh FLYBALL [MODULE]: what the doctor says of this boot, the tests that write with the files before and after, and,
# where its module is given, what the kernel's own tests say. Runs as root in a guest.
bin=$1 module=$2
cp "$bin" /tmp/flyball && cd /tmp || exit 1
modprobe msr 2>/dev/null
# Everything that a test could leave behind; what is measured by the moment left out.
look() {
    for file in /sys/devices/system/cpu/cpufreq/*/* /sys/devices/system/cpu/cpufreq/boost \
        /sys/devices/system/cpu/*_pstate/* /sys/devices/system/cpu/cpu*/online; do
        case $file in *cur_freq | *avg_freq | */stats | *setspeed) continue ;; esac
        [ -f "$file" ] && echo "$file=$(cat "$file" 2>/dev/null)"
    done
}
# Limits settle a moment after the driver is up.
sleep 1
look > before
echo "--- doctor"; ./flyball --json doctor; code=$?; echo; echo "--- exit $code"
[ -n "$module" ] || exit 0
echo "--- write"; ./flyball --json --state-dir /tmp/state doctor --write; code=$?; echo; echo "--- exit $code"
sleep 1
look > after
cmp -s before after && echo "--- same before and after" || { echo "--- different after"; diff before after; }
kernel() {
    dmesg -c > /dev/null
    taskset -c 0 insmod "$module" || echo "--- no module"
    echo "--- $1"
    dmesg | sed -n 's/.*amd_pstate_ut: //p'
    rmmod amd_pstate_ut
}
kernel kernel
# A limit that somebody has set: the module's test of frequencies wants none.
policy=/sys/devices/system/cpu/cpufreq/policy1
echo $(($(cat $policy/cpuinfo_max_freq) / 2)) > $policy/scaling_max_freq
sleep 1
echo "--- limited"; ./flyball --json doctor; echo
kernel kernel-limited

#!/bin/sh
# Run as root in a guest with a real cpufreq driver: the service keeps a hold while CPUs go, the driver changes its mode, the machine
# sleeps, other programs write, and the service is killed. Prints `ok NAME` or `not ok NAME: why`, and `done` at the end.
# $1: flyball. $2: modes of the driver to switch through and back, with blanks between, or none. $3: the driver's status file, or none.
C=/sys/devices/system/cpu
cp "$1" /tmp/flyball && F=/tmp/flyball
modes=$2 status=$3
export NO_COLOR=1

ok() { echo "ok $1"; }
bad() { echo "not ok $1: $2"; }
has() { case $2 in *"$3"*) ok "$1" ;; *) bad "$1" "no '$3' in '$2'" ;; esac; }
read1() { if read -r line < "$1"; then echo "$line"; else echo unreadable; fi; } 2> /dev/null

# differs: the places that do not hold what is held, by reading the files only. A policy that is missing differs too.
differs() {
    count=0
    for policy in $C/cpufreq/policy*; do
        count=$((count + 1))
        for pair in "scaling_governor $wanted" "scaling_max_freq $half"; do
            found=$(read1 "$policy/${pair% *}")
            [ "$found" = "${pair#* }" ] || echo "${policy##*/}/${pair% *}=$found"
        done
    done
    [ "$count" = "$policies" ] || echo "$count policies"
}

# held NAME SECONDS: everything is held again, within that time. An emulated second is slow: 10 looks for each.
held() {
    looks=$(($2 * 10))
    while [ -n "$(differs)" ] && [ $looks -gt 0 ]; do
        looks=$((looks - 1))
        sleep 0.1
    done
    found=$(differs | tr '\n' ' ')
    if [ -z "$found" ]; then ok "$1"; else bad "$1" "$found; $(tail -n 3 /tmp/service | tr '\n' ';')"; fi
}

start() {
    $F hold run >> /tmp/service 2>&1 &
    service=$!
    looks=300
    # The service writes its process into the store before it is ready.
    until grep -q "\"pid\": $service" /run/flyball/holds 2> /dev/null || [ $looks = 0 ]; do
        looks=$((looks - 1))
        sleep 0.1
    done
}

policies=0
for policy in $C/cpufreq/policy*; do policies=$((policies + 1)); done
governor=$(read1 $C/cpufreq/policy0/scaling_governor)
wanted=performance
[ "$governor" = performance ] && wanted=powersave
low=$(read1 $C/cpufreq/policy0/cpuinfo_min_freq)
high=$(read1 $C/cpufreq/policy0/cpuinfo_max_freq)
. ./look.sh
first=$(look)

# What the driver makes of the frequency in the middle is what is to be held.
$F set "max-freq=$(((low + high) / 2))kHz" > /dev/null 2>&1
half=$(read1 $C/cpufreq/policy0/scaling_max_freq)
$F restore > /dev/null
: > /tmp/service
start
$F hold add kept "governor=$wanted" "max-freq=${half}kHz" > /tmp/out 2>&1 || bad "hold add" "$(cat /tmp/out)"
held "added" 5

echo "$governor" > $C/cpufreq/policy2/scaling_governor
held "another writer" 5
has "the writer is named" "$(cat /tmp/service)" "written by sh"

for cpu in 3 1; do
    echo 0 > $C/cpu$cpu/online && echo 1 > $C/cpu$cpu/online && held "CPU $cpu was offline" 10
done
for cpu in 1 2 3; do echo 0 > $C/cpu$cpu/online; done
for cpu in 1 2 3; do echo 1 > $C/cpu$cpu/online; done
held "all but one were offline" 10

before=$(read1 "$status")
for mode in $modes $([ -n "$modes" ] && echo "$before"); do
    if echo "$mode" > "$status"; then held "driver mode $mode" 20; else bad "driver mode $mode" refused; fi
done

# The other CPUs go and come back without uevents (kernel/cpu.c, freeze_secondary_cpus); the kernel needs CONFIG_PM_DEBUG.
if [ -e /sys/power/pm_test ]; then
    sleep_state=freeze level=devices
    case $(cat /sys/power/state) in *mem*) sleep_state=mem level=processors ;; esac
    if echo $level > /sys/power/pm_test && echo $sleep_state > /sys/power/state; then
        # Without a report: the comparison of every minute finds what differs.
        held "slept ($sleep_state, $level)" 75
    else
        echo "# this kernel does not sleep here ($sleep_state, $level)"
    fi
    echo none > /sys/power/pm_test
else
    echo "# this kernel has no pm_test"
fi

for round in 1 2 3; do
    kill -9 $service
    wait $service 2> /dev/null
    # A drift while nothing watches.
    echo "$governor" > $C/cpufreq/policy$round/scaling_governor
    start
    held "killed and started again, round $round" 10
done

# A writer that does not give up: the service pauses, and says so.
# Where the host is busy, a correction may take longer than a second, and two writes are one drift.
round=0
while [ $round -lt 30 ] && ! grep -q "left for a while" /tmp/service; do
    echo "$governor" > $C/cpufreq/policy1/scaling_governor
    sleep 1
    round=$((round + 1))
done
writes=$(grep -c "scaling_governor\|governor on CPUs" /tmp/service)
has "a writer of each second" "$(cat /tmp/service)" "left for a while, because it was corrected too often"
echo "# $writes lines about it"

kill $service
wait $service 2> /dev/null
$F hold release --all > /tmp/out 2>&1 || bad "release" "$(cat /tmp/out)"
now=$(look)
if [ "$now" = "$first" ]; then ok "as before the first hold"; else
    echo "$now" > /tmp/now
    echo "$first" > /tmp/then
    bad "as before the first hold" "$(diff /tmp/then /tmp/now | tr '\n' ';')"
fi
echo done

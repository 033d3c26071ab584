#!/bin/sh
# compare.sh FLYBALL --trace|'' ARM ARM ...: runs flyball compare in a guest whose time follows the driver's requests, and looks
# at the kernel's files from outside, before, during and after.
bin=$1; trace=$2; shift 2
cp "$bin" /tmp/flyball; cd /tmp || exit 1
P=/sys/devices/system/cpu/cpufreq
modprobe msr 2>/dev/null; modprobe intel_rapl_msr 2>/dev/null
look() {
    for file in scaling_governor energy_performance_preference scaling_min_freq scaling_max_freq; do
        cat $P/policy*/$file 2>/dev/null
    done
    cat /sys/devices/system/cpu/*_pstate/status /sys/devices/system/cpu/*_pstate/no_turbo 2>/dev/null
}
look > before
touch measuring
while [ -e measuring ]; do cat $P/policy0/scaling_governor $P/policy0/energy_performance_preference 2>/dev/null | tr '\n' ' ' >> during; echo >> during; sleep 0.1; done &
set -- "$@"
arms=; for arm in "$@"; do arms="$arms --arm \"$arm\""; done
eval "./flyball compare $trace $arms --rounds 12 --seed 3 -o run --workload spin --amount 1" > out 2> err
echo "exit $?"
rm measuring; wait
look > after
cmp -s before after && echo "same before and after" || { echo "different after"; diff before after; }
sort -u during | sed 's/^/during: /'
cat out err
echo "--- report"
cat run/report.json

#!/bin/sh
# speed-select.sh FAVOURED OTHER LEVEL: in a guest, sets Speed Select with flyball and times ./loop on two CPUs, one that
# base-freq favours and another one. Prints NAME=NANOSECONDS.
favoured=$1 other=$2 level=$3
I=/sys/devices/system/cpu/intel_pstate
P=/sys/devices/system/cpu/cpufreq
# The kernel's clock, ns, into n: the third line, without starting a program.
now() { { read -r x; read -r x; read -r x x n x; } < /proc/timer_list; }
on() {
    mask=$(printf %x $((1 << $2)))
    now; a=$n; taskset $mask ./loop; now; echo $1=$((n - a))
}
both() { on $1.favoured $favoured; on $1.other $other; }
# The processor tells of a new guaranteed frequency by an interrupt that guests do not get: the driver looks again when
# something of its own is written.
fly() {
    ./flyball sst "$@" > /tmp/said 2>&1 || { echo "failed: $*"; cat /tmp/said; exit 1; }
    read -r n < $I/no_turbo; echo $((1 - n)) > $I/no_turbo; echo $n > $I/no_turbo
}

echo "interface=$(./flyball sst info | sed -n 's/^interface: //p')"
for p in $P/policy*; do echo performance > $p/scaling_governor; done
echo 1 > $I/no_turbo
both base
fly base-freq enable
both bf
fly base-freq disable
fly perf-profile set-config-level -l $level
both level
fly perf-profile set-config-level -l 0
both back
echo 0 > $I/no_turbo
both turbo
fly core-power config -c 3 --max 1500
fly -c $other core-power assoc --clos 3
fly core-power enable
both clos
fly -c $other core-power assoc --clos 0
fly core-power disable
fly -c $favoured turbo-freq enable -a
both tf
fly turbo-freq disable -a
both end

#!/bin/sh
# rounds.sh FLYBALL ROUNDS SEED: run as root on a machine whose settings may change. See scripts/kills.
#
# Each round starts a command that changes settings, kills it after a random time (in half of the rounds the processes that
# it started too), restores, and looks at every setting with the shell. In a quarter of the rounds the first restore
# is killed as well.
C=/sys/devices/system/cpu
F=/tmp/flyball-under-test.$$
cp "$1" "$F" || exit 1
rounds=$2 random=$3
export NO_COLOR=1

# A number below $1, from a generator that the seed repeats (Park and Miller's).
next() { random=$((random * 48271 % 2147483647)); number=$((random % $1)); }
i=0
random=$((random * 7919 + 1))

line() {
    [ -e "$1" ] || return
    if read -r text < "$1"; then echo "$1 $text"; else echo "$1 unreadable"; fi
} 2> /dev/null

# Every setting that the commands below can change, a line each.
look() {
    for f in $C/cpu*/online $C/amd_pstate/status $C/intel_pstate/status $C/intel_pstate/no_turbo $C/intel_pstate/*_perf_pct \
        $C/intel_pstate/hwp_dynamic_boost $C/cpufreq/boost $C/cpufreq/ondemand/up_threshold $C/cpu*/power/energy_perf_bias \
        $C/cpu*/power/pm_qos_resume_latency_us $C/cpu*/cpuidle/state*/disable; do
        line "$f"
    done
    for n in scaling_driver scaling_governor energy_performance_preference scaling_min_freq scaling_max_freq boost; do
        for f in $C/cpufreq/policy*/$n; do line "$f"; done
    done
}

# `usleep` is in busybox, not in coreutils, whose `sleep` takes fractions.
pause() { usleep "$1" 2> /dev/null || sleep "$(printf '0.%06d' "$1")"; }

# The processes that run the binary of this script and no other.
own() {
    for exe in /proc/[0-9]*/exe; do
        [ "$(readlink "$exe" 2> /dev/null)" = "$F" ] || continue
        pid=${exe#/proc/}
        echo "${pid%/exe}"
    done
}

command() {
    next 11
    case $number in
        0) set -- set governor=performance ;;
        1) set -- set governor=powersave max-freq=2GHz ;;
        2) set -- set governor=performance min-freq=1.5GHz max-freq=2.5GHz ;;
        3) set -- set turbo=off ;;
        4) set -- set epp=power epb=15 ;;
        5) set -- set driver-mode=passive governor=schedutil ;;
        6) set -- set -c 1 governor=performance ;;
        7) set -- run governor=performance max-freq=2GHz -- sleep 0.3 ;;
        8) set -- set online=off -c 1 ;;
        9) set -- quiet --cpus 1 -- sleep 0.3 ;;
        10) set -- compare --arm now --arm 'b: governor=performance' --rounds 2 -- true ;;
    esac
    "$F" "$@" > /tmp/kills-out.$$ 2>&1 &
    child=$!
}

kills=0 restores=0 ended=0 exact=0 kept=0 false=0
before=$(look)
[ -n "$before" ] || { echo "false: no settings here"; exit 1; }
cd /tmp || exit 1
while [ $i -lt "$rounds" ]; do
    i=$((i + 1))
    command
    what="case $number"
    # Most commands take 10 to 300 ms; in an emulator ten times that.
    next 5
    case $number in 0) next 5000 ;; 1) next 20000 ;; 2) next 80000 ;; 3) next 300000 ;; 4) next 900000 ;; esac
    pause "$number"
    next 2
    everything=$number
    if kill -9 $child 2> /dev/null; then kills=$((kills + 1)); else ended=$((ended + 1)); fi
    if [ "$everything" = 1 ]; then
        for pid in $(own); do kill -9 "$pid" 2> /dev/null && kills=$((kills + 1)); done
    fi
    wait $child 2> /dev/null
    next 4
    if [ "$number" = 0 ]; then
        "$F" restore > /dev/null 2>&1 &
        child=$!
        next 60000
        pause "$number"
        kill -9 $child 2> /dev/null && restores=$((restores + 1))
        wait $child 2> /dev/null
    fi
    # A guardian that lives restores on its own: `restore` waits for its lock, and says so with 6 if that takes long.
    tries=0
    while :; do
        "$F" restore > /tmp/kills-restore.$$ 2>&1
        code=$?
        [ $code = 6 ] && [ $tries -lt 20 ] || break
        tries=$((tries + 1))
        pause 500000
    done
    now=$(look)
    if [ $code = 0 ] && [ "$now" = "$before" ]; then
        exact=$((exact + 1))
    elif [ $code = 0 ]; then
        false=$((false + 1))
        echo "$before" > /tmp/kills-before.$$
        echo "$now" > /tmp/kills-now.$$
        echo "false: round $i, $what: $(diff /tmp/kills-before.$$ /tmp/kills-now.$$ | head -n 6 | tr '\n' ';') $(tr '\n' ';' < /tmp/kills-restore.$$)"
        # So that one fault is not counted again in every round that follows.
        before=$now
    else
        kept=$((kept + 1))
        echo "not restored: round $i, $what: exit $code: $(tail -n 3 /tmp/kills-restore.$$ | tr '\n' ';')"
    fi
done
rm -f "$F" /tmp/kills-*.$$
echo "sum: $rounds rounds $kills kills $restores kills-of-restore $ended ended-before $exact exact $kept not-restored $false false"

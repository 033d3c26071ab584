#!/bin/sh
# quiet.sh FLYBALL: quiet on a kernel with cpufreq and cgroup v2, judged from outside: what holds meanwhile, and that
# every file is what it was after success, Ctrl-C and kill -9. Runs as root in a guest; prints ok and not ok lines.
cp "$1" /tmp/flyball && cd /tmp || exit 1
C=/sys/devices/system/cpu
modprobe msr 2>/dev/null
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
G=/sys/fs/cgroup/flyball-quiet
say() { if [ "$1" = 0 ]; then echo "ok $2"; else echo "not ok $2"; fi; }
# Every file that quiet may touch, with its content; what is measured by the moment left out.
look() {
    for file in $C/cpufreq/*/* $C/cpufreq/boost $C/*_pstate/* $C/cpu*/online $C/cpu*/cpuidle/*/disable \
        $C/cpu*/power/* /proc/irq/*/smp_affinity /proc/irq/default_smp_affinity /proc/sys/kernel/* \
        /sys/kernel/mm/transparent_hugepage/* /sys/fs/cgroup/cgroup.subtree_control; do
        case $file in
        *cur_freq | *avg_freq | *setspeed | */stats | */random | *entropy* | *ns_last_pid | *runtime_* | *pty | */stable) continue ;;
        esac
        [ -f "$file" ] && echo "$file=$(cat "$file" 2>/dev/null)"
    done
    ls -d /sys/fs/cgroup/*/ 2>/dev/null
}
same() {
    sleep 1
    look > after
    if cmp -s before after; then echo "ok $1: $(wc -l < before) files are as they were"; else
        echo "not ok $1"; diff before after | head -20
    fi
}
sleep 1
echo 100000 > /proc/sys/kernel/perf_event_max_sample_rate
look > before
# A neighbour that may run anywhere.
sh -c 'while :; do :; done' & noise=$!
allowed() { sed -n 's/^Cpus_allowed_list:\t*//p' "/proc/$1/status"; }
[ "$(allowed $noise)" = 0-3 ]; say $? "the neighbour may run anywhere before"

cat > inside.sh <<'X'
. /tmp/inside.env
cat /sys/fs/cgroup/flyball-quiet/cpuset.cpus /sys/fs/cgroup/flyball-quiet/cpuset.cpus.partition
sed -n 's/^Cpus_allowed_list:\t*//p' /proc/self/status
sed -n 's/^Cpus_allowed_list:\t*//p' "/proc/$noise/status"
cat /sys/devices/system/cpu/cpufreq/policy3/scaling_governor /sys/devices/system/cpu/cpufreq/boost
cat /sys/devices/system/cpu/cpufreq/policy3/scaling_max_freq /sys/devices/system/cpu/cpufreq/policy3/scaling_min_freq
cat /proc/sys/kernel/perf_event_max_sample_rate
exit 5
X
echo "noise=$noise" > inside.env
./flyball quiet --level fixed --cpus 3 -- sh inside.sh > inside 2> notes
say $(($? != 5)) "the command's exit code"
i=0
for want in 3 isolated 3 0-2 performance 0 '' '' 1; do
    i=$((i + 1)); got=$(sed -n ${i}p inside)
    [ -z "$want" ] || { [ "$got" = "$want" ]; say $? "inside, line $i: $got"; }
done
[ "$(sed -n 7p inside)" = "$(sed -n 8p inside)" ]; say $? "one frequency: $(sed -n 7p inside)"
same "after success"
[ "$(allowed $noise)" = 0-3 ]; say $? "the neighbour may run anywhere again"
kill $noise

./flyball quiet --level fixed --cpus 2-3 -- sh -c 'cat /sys/fs/cgroup/flyball-quiet/cpuset.cpus.partition > two; sleep 60' 2> two.notes &
quiet=$!
for wait in $(seq 300); do [ -s two ] && break; sleep 0.1; done
[ "$(cat two)" = root ]; say $? "two CPUs are a balanced partition: $(cat two two.notes)"
kill -INT $quiet; wait $quiet
same "after Ctrl-C"

rm -f two
./flyball quiet --level fixed --cpus 3 -- sh -c 'echo x > two; sleep 60' 2>/dev/null &
quiet=$!
for wait in $(seq 300); do [ -s two ] && break; sleep 0.1; done
[ -d $G ]; say $? "quiet before kill -9"
kill -9 $quiet; wait $quiet 2>/dev/null
for wait in $(seq 300); do [ -d $G ] || break; sleep 0.1; done
same "after kill -9, by the guardian"

./flyball quiet on --level steady --cpus 3 > on 2>&1; grep -q "cgroup.procs" on; say $? "quiet on names the group"
./flyball quiet status --level steady --cpus 3 > /dev/null 2>&1; say $? "quiet status"
./flyball quiet off > /dev/null; say $? "quiet off"
same "after quiet off"

./flyball compare --quiet=steady --pin 3 --arm now: --arm 'slow: max-freq=2GHz' --rounds 3 --warm-up 0 --workload spin \
    --amount 20 -o run > compare 2>&1; say $? "compare --quiet"
grep -q "kept quiet (level steady, CPUs 3" compare; say $? "and says so"
same "after compare --quiet"
sed 's/^/# /' notes
echo done

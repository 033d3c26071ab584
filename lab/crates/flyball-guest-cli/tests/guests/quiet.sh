#!/bin/sh
# quiet.sh FLYBALL: `doctor --fix` and `quiet` on a kernel with cpufreq and cgroup v2, judged from outside by reading files:
# what holds meanwhile, and that every file is what it was after success, Ctrl-C, kill -9, `quiet off` and `restore`.
# Runs as root in a guest of four CPUs. Prints `ok NAME` or `not ok NAME: why`, and `done` at the end.
# Files are read by the shell itself: to start a program for each is most of the time in an emulator.
cp "$1" /tmp/flyball && cd /tmp || exit 1
F=./flyball C=/sys/devices/system/cpu J=/run/flyball/journal
export NO_COLOR=1
modprobe msr 2> /dev/null
mkdir -p /sys/fs/cgroup
[ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 none /sys/fs/cgroup
G=/sys/fs/cgroup/flyball-quiet

ok() { echo "ok $1"; }
bad() { echo "not ok $1: $2"; }
# same NAME WANTED FOUND
same() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1" "wanted '$2', found '$3'"; fi; }
# has NAME TEXT PART
has() { case $2 in *"$3"*) ok "$1" ;; *) bad "$1" "no '$3' in '$2'" ;; esac; }
# sysctl files answer one read only, and the shell reads byte by byte: those take a program.
read1() {
    case $1 in /proc/sys/*) cat "$1" && return ;; *) read -r line < "$1" && echo "$line" && return ;; esac
    echo unreadable
} 2> /dev/null
# fly NAME CODE ARGUMENT...: runs flyball, keeps its words in out and err, checks its exit code.
fly() {
    name=$1 code=$2
    shift 2
    $F "$@" > out 2> err
    rc=$?
    if [ $rc = "$code" ]; then ok "$name"; else bad "$name" "exit $rc, wanted $code: $(cat out err | tr '\n' ';')"; fi
}

# Every file that could be touched, with its lines; what is measured by the moment left out.
look() {
    for f in $C/cpufreq/*/* $C/cpufreq/boost $C/*_pstate/* $C/online $C/cpu[0-3]/online $C/cpu[0-3]/cpuidle/*/disable \
        $C/cpu[0-3]/power/energy_perf_bias $C/cpu[0-3]/power/pm_qos_resume_latency_us /proc/irq/*/smp_affinity_list \
        /proc/irq/default_smp_affinity /proc/sys/kernel/perf_event_max_sample_rate /proc/sys/kernel/randomize_va_space \
        /proc/sys/kernel/sched_rt_runtime_us /sys/kernel/mm/transparent_hugepage/enabled \
        /sys/fs/cgroup/cgroup.subtree_control; do
        case $f in *cur_freq | *avg_freq | *_perf_freq) continue ;; esac
        [ -f "$f" ] || continue
        echo "$f"
        case $f in
        /proc/sys/*) cat "$f" ;;
        *) while read -r line; do echo "  $line"; done < "$f" ;;
        esac
    done 2> /dev/null
    echo /sys/fs/cgroup/*/
}
# unchanged NAME [FILE]: everything reads as it did when FILE was written. A guardian, a limit settling, a group whose
# last process has just died: each takes a moment.
unchanged() {
    for try in 1 2 3 4 5 6 7 8; do
        look > after
        cmp -s "${2:-before}" after && { ok "$1: as it was"; return; }
        sleep 1
    done
    bad "$1" "$(diff "${2:-before}" after | tr '\n' ';')"
}
# A process that is killed is gone when its guardian has put everything back.
gone() { n=0; while [ -e $J ] && [ $n -lt 400 ]; do sleep 0.1; n=$((n + 1)); done; }
allowed() { sed -n 's/^Cpus_allowed_list:\t*//p' "/proc/$1/status"; }

# Kernels without a performance counter in sight do not have it.
R=/proc/sys/kernel/perf_event_max_sample_rate
[ -e $R ] && echo 100000 > $R
sleep 1
look > before
lines=0
while read -r line; do lines=$((lines + 1)); done < before
echo "# $lines lines in all that could be touched"
if [ $lines -gt 100 ]; then ok "there is something to look at"; else bad "there is something to look at" "$lines lines"; fi

# --- doctor --fix: one CPU under another governor, another one capped below its base frequency.
g=$(read1 $C/cpufreq/policy0/scaling_governor)
other=performance
[ "$g" = performance ] && other=powersave
full=$(read1 $C/cpufreq/policy2/scaling_max_freq)
cap=$((full / 2))
echo $other > $C/cpufreq/policy1/scaling_governor
echo $cap > $C/cpufreq/policy2/scaling_max_freq
sleep 1
look > damaged
fly "the doctor warns" 8 doctor --only conflict
has "of mixed governors" "$(cat out)" "[conflict.governor]"
has "and of the cap" "$(cat out)" "[conflict.limits]"
fly "a dry run of the fix" 0 doctor --only conflict --fix -n
has "shows the governor's write" "$(cat out)" "$other -> $g"
unchanged "after the dry run" damaged
fly "the fix" 0 doctor --only conflict --fix
has "shows its plan" "$(cat out)" "$other -> $g"
same "the governor is mended" "$g" "$(read1 $C/cpufreq/policy1/scaling_governor)"
same "the cap is gone" "$full" "$(read1 $C/cpufreq/policy2/scaling_max_freq)"
fly "the doctor is content" 0 doctor --only conflict.governor,conflict.limits,conflict.below-base
fly "restore" 0 restore
unchanged "after restore, the damage too" damaged
echo "$g" > $C/cpufreq/policy1/scaling_governor
echo "$full" > $C/cpufreq/policy2/scaling_max_freq
unchanged "the damage undone"

# --- quiet -- COMMAND at each level. A neighbour may run anywhere, but not on the benchmark's CPU meanwhile.
sh -c 'while :; do sleep 0.1; done' & noise=$!
same "the neighbour may run anywhere before" 0-3 "$(allowed $noise)"
cat > inside.sh << 'END'
C=/sys/devices/system/cpu
one() { line=$(cat "$1") && echo "$2=$line"; } 2> /dev/null
allowed() { while read -r name value; do [ "$name" = Cpus_allowed_list: ] && echo "$1=$value"; done; }
one /sys/fs/cgroup/flyball-quiet/cpuset.cpus group
one /sys/fs/cgroup/flyball-quiet/cpuset.cpus.partition kind
allowed own < /proc/self/status
allowed neighbour < /proc/$1/status
for n in 0 3; do one $C/cpufreq/policy$n/scaling_governor governor$n; done
one $C/cpufreq/policy3/energy_performance_preference epp
one $C/cpufreq/policy3/scaling_max_freq max
one $C/cpufreq/policy3/scaling_min_freq min
one $C/cpufreq/boost boost
one $C/intel_pstate/no_turbo no_turbo
one $C/cpu3/power/pm_qos_resume_latency_us latency
one /proc/sys/kernel/perf_event_max_sample_rate rate
exit 5
END
value() { sed -n "s/^$1=//p" inside; }
for level in light steady fixed; do
    $F quiet --level $level --cpus 3 -- sh inside.sh $noise > inside 2> notes
    same "$level: the command's exit code" 5 $?
    same "$level: the group" "3 isolated" "$(value group) $(value kind)"
    same "$level: the command runs there, its neighbour elsewhere" "3 0-2" "$(value own) $(value neighbour)"
    same "$level: governors" "performance performance" "$(value governor0) $(value governor3)"
    [ -e $R ] && same "$level: rare profiling interrupts" 1 "$(value rate)"
    case $level in
    light)
        [ -e $C/cpufreq/boost ] && same "light: turbo as it was" "$(read1 $C/cpufreq/boost)" "$(value boost)"
        ;;
    *)
        [ -e $C/cpufreq/boost ] && same "$level: boost" 0 "$(value boost)"
        [ -e $C/intel_pstate/no_turbo ] && same "$level: no_turbo" 1 "$(value no_turbo)"
        ;;
    esac
    [ $level = fixed ] && same "fixed: one frequency" "$(value max)" "$(value min)"
    [ $level = fixed ] && [ "$(value max)" -lt "$full" ] && ok "fixed: below turbo, $(value max) of $full kHz"
    unchanged "$level, after success"

    # kill -9 in the middle: nobody but the guardian is left to put everything back.
    rm -f mark
    $F quiet --level $level --cpus 3 -- sh -c 'echo > mark; exec sleep 100' > /dev/null 2>&1 &
    quiet=$!
    n=0
    while ! [ -e mark ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done
    same "$level: in force before kill -9" performance "$(read1 $C/cpufreq/policy3/scaling_governor)"
    kill -9 $quiet
    wait $quiet 2> /dev/null
    gone
    unchanged "$level, after kill -9, by the guardian"
done
same "the neighbour may run anywhere again" 0-3 "$(allowed $noise)"
kill $noise

# --- killed while it still writes: from the journal's first record on.
$F quiet --level fixed --cpus 3 -- true > /dev/null 2>&1 &
quiet=$!
while ! [ -s $J ] && kill -0 $quiet 2> /dev/null; do :; done
kill -9 $quiet 2> /dev/null
wait $quiet 2> /dev/null
gone
unchanged "killed while writing"

# --- Ctrl-C, and two CPUs, which stay balanced between each other.
rm -f two
$F quiet --level fixed --cpus 2-3 -- sh -c "cat $G/cpuset.cpus.partition > two.new; mv two.new two; exec sleep 100" 2> two.notes &
quiet=$!
n=0
while ! [ -e two ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done
same "two CPUs are a balanced partition" root "$(cat two two.notes 2>&1 | sed -n 1p)"
kill -INT $quiet
wait $quiet
unchanged "after Ctrl-C"

# --- one command in quiet with a setting on top.
fly "run --quiet" 7 run --quiet=steady --pin 3 "max-freq=${cap}kHz" -- \
    sh -c "cat $C/cpufreq/policy3/scaling_governor $G/cpuset.cpus > ran; exit 7"
same "run --quiet: governor and group" "performance 3" "$(tr '\n' ' ' < ran | sed 's/ $//')"
unchanged "after run --quiet"

# --- a session.
fly "not quiet yet" 5 quiet status --level steady --cpus 3
fly "quiet on" 0 quiet on --level steady --cpus 3
has "names the group" "$(cat out)" "$G/cgroup.procs"
fly "quiet status" 0 quiet status --level steady --cpus 3
has "says that it holds" "$(cat out)" "quiet for level steady"
look > quieted
if cmp -s before quieted; then bad "something changed" "nothing did"; else ok "something changed"; fi
fly "quiet off" 0 quiet off
unchanged "after quiet off"
fly "quiet off again" 0 quiet off
has "says that there is nothing" "$(cat out)" "nothing to undo"
unchanged "all in all"

# --- a comparison in quiet, where asked for.
if [ "$2" = compare ]; then
    fly "compare --quiet" 0 compare --quiet=steady --pin 3 --arm now: --arm "slow: max-freq=${cap}kHz" --rounds 3 \
        --warm-up 0 -o run -- sh -c 'i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done'
    has "says that it was quiet" "$(cat out err)" "kept quiet (level steady, CPUs 3"
    unchanged "after compare --quiet"
fi
echo done

#!/bin/sh
# Runs the steps of a file on the running kernel and prints after each what every cpufreq attribute reads. It needs root and
# a POSIX shell with busybox or the usual tools, nothing of flyball: a reproducer is this script and a file of steps.
#   sh agent.sh STEPS
# A line of STEPS is one of
#   seq NAME          a sequence begins
#   s NUMBER          a step begins
#   w PATTERN VALUE   write VALUE to every file below /sys/devices/system/cpu that the pattern names
#   l SECONDS         keep all CPUs busy
#   p SECONDS         wait
#   x COMMAND         run a command
#   o                 wait until deferred work is done, then print all attributes
# VALUE may be @initial (what the file read at the start), @NAME (what the file NAME next to it reads), @NAME+N or @NAME-N.
cd /sys/devices/system/cpu || exit 125
# The port by which the emulator's log of register writes gets a mark (MARK in flyball-guest-plugin/src/layout.rs).
port=22271
mkfifo /tmp/never 2>/dev/null
exec 9<>/tmp/never
: > /tmp/step

pause() { read -t "$1" _ <&9; }

mark() {
    echo "$1" > /tmp/step
    if [ -e /job/marks ]; then
        dd if=/job/marks of=/dev/port bs=1 count=1 skip=$(($1 & 255)) seek=$port conv=notrunc 2>/dev/null
        # On the console the mark says after which step a message of the kernel came.
        echo "<3>flyball: step $1" > /dev/kmsg
    fi
}

# One file at a time: which files exist depends on the driver's mode.
attributes() {
    for f in amd_pstate/* intel_pstate/* cpufreq/boost cpufreq/*/* cpufreq/policy*/*/* cpu[0-9]*/online; do
        case $f in
        *'*'* | */stats | */stats/*) ;;
        # They differ from one read to the next.
        */scaling_cur_freq | */cpuinfo_cur_freq | */cpuinfo_avg_freq) ;;
        *) [ -f "$f" ] && echo "$f" ;;
        esac
    done
}

remember() {
    attributes > /tmp/attributes
    while read -r f; do
        mkdir -p "/tmp/initial/${f%/*}"
        cat "$f" > "/tmp/initial/$f" 2>/dev/null
    done < /tmp/attributes
}

value() { # FILE VALUE: sets $v
    case $2 in
    @initial)
        v=
        [ -e "/tmp/initial/$1" ] && read -r v < "/tmp/initial/$1"
        ;;
    @*)
        n=${2#@}
        add=0
        case $n in
        *+*) add=${n#*+} n=${n%%+*} ;;
        *-*) add=-${n#*-} n=${n%%-*} ;;
        esac
        v=
        read -r v 2>/dev/null < "${1%/*}/$n"
        [ "$add" = 0 ] || v=$((v + add))
        ;;
    *) v=$2 ;;
    esac
}

answer() { # MESSAGE: sets $r
    case $1 in
    *'Invalid arg'*) r=EINVAL ;;
    *'Permission'*) r=EACCES ;;
    *'not permitted'*) r=EPERM ;;
    *'evice or resource busy'*) r=EBUSY ;;
    *'No such device or'*) r=ENXIO ;;
    *'No such device'*) r=ENODEV ;;
    *'No such file'* | *nonexist*) r=ENOENT ;;
    *'not supported'*) r=EOPNOTSUPP ;;
    *'esource temporarily'*) r=EAGAIN ;;
    *'out of range'*) r=ERANGE ;;
    *'nput/output'*) r=EIO ;;
    *'File exists'*) r=EEXIST ;;
    *'No data'*) r=ENODATA ;;
    *'not implemented'*) r=ENOSYS ;;
    *'timed out'*) r=ETIMEDOUT ;;
    *'annot allocate'*) r=ENOMEM ;;
    *) r="?$1" ;;
    esac
}

write() { # PATTERN VALUE
    for f in $1; do
        value "$f" "$2"
        if [ ! -e "$f" ]; then
            r=absent
        elif { echo "$v" > "$f"; } 2>/tmp/error; then
            r=ok
        else
            e=
            read -r e < /tmp/error
            answer "$e"
        fi
        echo "w $f $r $v"
    done
}

load() { # SECONDS
    pids=
    for c in cpu[0-9]*; do
        [ -e "$c/online" ] && { read -r up < "$c/online"; [ "$up" = 1 ] || continue; }
        taskset -c "${c#cpu}" sh -c 'while :; do :; done' 2>/dev/null &
        pids="$pids $!"
    done
    pause "$1"
    kill $pids 2>/dev/null
    wait $pids 2>/dev/null
    echo l
}

observe() {
    # Limits are applied by a work item (drivers/cpufreq/cpufreq.c, cpufreq_notifier_max).
    pause 0.03
    attributes > /tmp/attributes
    echo o
    # By name: a directory or file may go away between the two lines.
    xargs grep '' /dev/null < /tmp/attributes 2>&1
    echo .
}

# Ends a guest in which a step does not return.
watch() {
    last=
    while sleep 20; do
        read -r now < /tmp/step
        if [ "$now" = "$last" ]; then
            echo "hang $now"
            echo w > /proc/sysrq-trigger
            sleep 1
            poweroff -f
        fi
        last=$now
    done
}
[ -e /job/marks ] && { watch & watcher=$!; }

remember
exec 3< "${1:-/job/steps}"
while read -r op a b <&3; do
    case $op in
    seq) echo "seq $a" ;;
    s) mark "$a"; echo "s $a" ;;
    w) write "$a" "$b" ;;
    l) load "$a" ;;
    p) pause "$a" ;;
    x) sh -c "$a $b" 3<&- 9<&-; echo "x $?" ;;
    o) observe ;;
    esac
done
[ -n "$watcher" ] && kill "$watcher"
# The end of the last step in the log of register writes.
mark 0
echo end

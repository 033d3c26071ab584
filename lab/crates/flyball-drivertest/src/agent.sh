#!/bin/sh
# Runs the steps of a file on the running kernel and prints after each which cpufreq attributes read something else than before.
# It needs root and busybox, nothing of flyball. What lies between the lines of '--' is also the head of a reproducer, for any POSIX shell.
#   sh agent.sh STEPS
# A line of STEPS is one of
#   seq NAME          a sequence begins
#   s NUMBER          a step begins
#   w PATTERN VALUE   write VALUE to every file below /sys/devices/system/cpu that the pattern names
#   l SECONDS         keep all CPUs busy
#   p SECONDS         wait
#   x COMMAND         run a command
#   i NUMBER ARGUMENT call Speed Select's device; what follows is for people. It prints what ioctl(2) returned and the argument afterwards
#   f NUMBER          break the emulated firmware, or repair it (0)
#   o                 wait until deferred work is done, then print PATH:VALUE of what is new and -PATH:VALUE of what is no more
# VALUE may be @initial (what the file read at the start), @NAME (what the file NAME next to it reads), @NAME+N or @NAME-N.
# -- steps --
cd /sys/devices/system/cpu || exit 125
# Which files exist depends on the driver's mode. Current frequencies differ from one read to the next.
attributes() { # sets $all
    if [ -e /job/state ]; then
        all=$(find cpu[0-9]*/online cpufreq/policy*/base_frequency 2>/dev/null)
        return
    fi
    all=$(find amd_pstate intel_pstate cpufreq cpu[0-9]*/online -name stats -prune -o \
        -type f ! -name '*_cur_freq' ! -name cpuinfo_avg_freq -print 2>/dev/null)
}

remember() {
    attributes
    grep -F '' /dev/null $all > "$t/initial" 2>/dev/null
}

value() { # FILE VALUE: sets $v
    case $2 in
    @initial)
        v=$(grep "^$1:" "$t/initial")
        v=${v#*:}
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
        elif { echo "$v" > "$f"; } 2>"$t/error"; then
            r=ok
        else
            e=
            read -r e < "$t/error"
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

# Speed Select's device.
call() { # NUMBER ARGUMENT
    "$isst" /dev/isst_interface "$1" "$2" 2>/dev/null || echo "i killed $?"
}

# Emulated firmware: faults by their bits, 0 for none.
firmware() {
    printf "\\$(printf %o "$1")\\0\\0\\0\\0\\0\\0\\0" |
        dd of=/dev/cpu/0/msr bs=8 count=1 seek=1073742075 oflag=seek_bytes conv=notrunc 2>/dev/null
    echo "x $?"
    faulty=$1
}

# -- end of steps --

# The port by which the emulator's log of register writes gets a mark (MARK in flyball-guest-plugin/src/layout.rs).
port=22271
t=/tmp
mkfifo $t/never 2>/dev/null
exec 9<>$t/never
: > $t/step

pause() { read -t "$1" _ <&9; }

# 0 is the end of a step: what comes after it was not the driver's answer to the step.
port_mark() { dd if=/job/marks of=/dev/port bs=1 count=1 skip="$1" seek=$port conv=notrunc 2>/dev/null; }

mark() {
    echo "$1" > $t/step
    if [ -e /job/marks ]; then
        port_mark $(($1 % 255 + 1))
        # On the console the mark says after which step a message of the kernel came.
        echo "<3>flyball: step $1" > /dev/kmsg
    fi
}

# What Speed Select's device says of all that can be set: each line of /job/state is a name, a number and an argument.
remember_queries() { # sets $names and $queries
    names=
    queries=
    while read -r name number argument; do
        names="$names $name"
        queries="$queries $number $argument"
    done < /job/state
}

speed_select() {
    port_mark 0
    # Words, and no program more than needed: each takes milliseconds.
    # shellcheck disable=SC2086
    set -- $queries
    # A driver asks a busy mailbox thousands of times before it gives up: if the first query finds it busy, the others would.
    if [ $((faulty & 1)) = 1 ]; then
        case $("$isst" /dev/isst_interface "$1" "$2" 2>/dev/null) in
        "i 0000000000000000"*) ;;
        *) set -- "$1" "$2" ;;
        esac
    fi
    "$isst" /dev/isst_interface "$@" 2>/dev/null | for name in $names; do
        read -r _ returned argument || break
        echo "isst/$name:$returned $argument"
    done
}

observe() {
    # Limits are applied by a work item (drivers/cpufreq/cpufreq.c, cpufreq_notifier_max).
    pause 0.01
    attributes
    echo o
    # A directory or file may go away between the two lines: grep then says so.
    grep -F '' /dev/null $all > $t/seen.$now 2>&1
    [ -e /job/state ] && speed_select >> $t/seen.$now
    # A serial line takes each character by itself, which is most of the time of a guest that prints everything.
    awk 'FNR == NR { old[$0]; next } $0 in old { delete old[$0]; next } { print } END { for (line in old) print "-" line }' \
        $t/seen.$old $t/seen.$now
    old=$now
    now=$((1 - now))
    echo .
}

# Ends a guest in which a step does not return.
watch() {
    last=
    # Not sleep(1): init waits for what still has the output open.
    while :; do
        pause 20
        read -r now < $t/step
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

isst=/job/isst
export isst
faulty=0
[ -e /job/state ] && { chmod +x $isst; remember_queries; }
remember
echo > $t/seen.0
old=0
now=1
exec 3< "${1:-/job/steps}"
while read -r op a b <&3; do
    case $op in
    seq) echo "seq $a" ;;
    s) mark "$a"; echo "s $a" ;;
    w) write "$a" "$b" ;;
    l) load "$a" ;;
    p) pause "$a" ;;
    x) sh -c "$a $b" 3<&- 9<&-; echo "x $?" ;;
    i) call "$a" "${b%% *}" ;;
    f) firmware "$a" ;;
    o) observe ;;
    esac
done
[ -n "$watcher" ] && kill "$watcher"
# The end of the last step in the log of register writes.
[ -e /job/marks ] && port_mark 0
echo end

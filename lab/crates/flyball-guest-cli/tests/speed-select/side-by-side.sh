#!/bin/sh
# Runs in a guest: the lines of a list of commands with the unmodified tool, then, from the same state, with the drop-in.
#   side-by-side.sh LIST
# Prints what each said on each stream, its exit code and, after lines that begin with !, the state of the machine as
# the drivers and the kernel tell it.
. ./common.sh
ours="$start /tmp/fb/intel-speed-select"
list=$1
echo nobody:x:65534:65534::/:/bin/sh >>/etc/passwd
for file in $(mesh); do echo "echo $(cat $file) >$file"; done >/tmp/mesh
for folder in $sys/cpu[0-9]*/cpufreq; do
    echo "cat $folder/cpuinfo_min_freq >$folder/scaling_min_freq; cat $folder/cpuinfo_max_freq >$folder/scaling_max_freq"
done >/tmp/widest
reset() {
    chmod 600 /dev/isst_interface
    for file in $sys/cpu[0-9]*/online; do echo 1 >$file; done 2>/dev/null
    $real turbo-freq disable
    $real base-freq disable
    $real perf-profile set-config-level -l 0
    for class in 0 1 2 3; do $real core-power config -c $class; done
    $real -c $cpus core-power assoc -c 0
    $real core-power enable -p 1
    $real core-power disable
    echo 0 >$sys/intel_pstate/no_turbo
    $real -c $cpus turbo-mode set-trl -t 0x2a2a2a2a2a2b2d2e
    . /tmp/mesh
    . /tmp/widest
    for folder in /sys/fs/cgroup/[0-9]*; do rmdir $folder; done
    echo -cpuset >/sys/fs/cgroup/cgroup.subtree_control
    rm -f /var/run/isst_cpu_topology.dat /tmp/result /tmp/hfi-events.pid
}
# Follows a level that somebody else changes.
follow() {
    $program "$@" >/tmp/log 2>&1 </dev/null &
    daemon=$!
    for level in 1 0; do
        sleep 3
        $real perf-profile set-config-level -l $level >/dev/null 2>&1
    done
    sleep 3
    kill -INT $daemon
    wait $daemon
    echo "[rc=$?]"
    cat /tmp/log
}
run() {
    while IFS= read -r line; do
        case $line in
        '' | '#'*) continue ;;
        # Where the kernel tells of changes, these never end: events.sh has them.
        --oob | '-n --oob') grep -q -w hfi /proc/cpuinfo && continue ;;
        esac
        words=$(echo "${line#[~!]}" | sed "s/ALL/$cpus/")
        echo "### $line"
        case $words in
        '$ '*)
            eval "${words#??}" 2>&1
            case $line in '!'*) echo '[state]'; state ;; esac
            continue
            ;;
        esac
        case $line in
        '~'*) su -s /bin/sh nobody -c "$program $words" </dev/null >/tmp/out 2>/tmp/err ;;
        *) eval "$program $words" </dev/null >/tmp/out 2>/tmp/err ;;
        esac
        code=$?
        for stream in out err; do
            echo "[std$stream]"
            sed -e "s,/tmp/t26/intel-speed-select,PROGRAM,g" -e "s,/tmp/fb/intel-speed-select,PROGRAM,g" /tmp/$stream
        done
        echo "[rc=$code]"
        [ -e /tmp/result ] && { echo '[file]'; cat /tmp/result; rm /tmp/result; }
        case $line in '!'*) echo '[state]'; state ;; esac
    done <$list
    echo "### at the end"
    state
}
for who in tool dropin; do
    reset >/dev/null 2>&1
    echo "##### $who"
    echo "### at the beginning"
    state
    case $who in tool) program=$real ;; *) program=$ours ;; esac
    run
done
reset >/dev/null 2>&1
echo "##### end of the list"

#!/bin/sh
# Runs in a guest: every line of `commands` with one of the two programs, and prints what it said on each stream, its
# exit code and, after lines that begin with !, the state of the machine as the real tool and the kernel see it.
#   transcript.sh tool | dropin
# Beside it: t26 (the real tool with its C library), fb (the drop-in), commands.
for m in isst_if_common isst_if_mbox_msr isst_if_mbox_pci isst_if_mmio intel_vsec intel_vsec_tpmi isst_tpmi; do
    modprobe $m 2>/dev/null
done
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
mkdir -p /tmp/run
cp -a t26 fb /tmp/
chmod -R a+rX /tmp/t26 /tmp/fb
chmod 755 / /tmp
real="/tmp/t26/ld-linux-x86-64.so.2 --library-path /tmp/t26 /tmp/t26/intel-speed-select"
case $1 in
tool) program=$real ;;
*) program="/tmp/t26/ld-linux-x86-64.so.2 --library-path /tmp/t26:/tmp/fb /tmp/fb/intel-speed-select" ;;
esac
cpus=0-$(($(ls -d /sys/devices/system/cpu/cpu[0-9]* | wc -l) - 1))
quiet() { "$@" 2>&1 | grep -v -e '^Intel(R) Speed' -e '^Executing on'; }
state() {
    # Limits settle after the write has returned.
    sleep 0.1
    grep -H . /sys/devices/system/cpu/cpu[0-9]*/online /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_m??_freq \
        /sys/fs/cgroup/[0-9]*/cpuset.cpus /sys/fs/cgroup/[0-9]*/cpuset.cpus.partition \
        /sys/devices/system/cpu/intel_uncore_frequency/*/m??_freq_khz 2>/dev/null
    if ls /sys/kernel/debug/tpmi-*/tpmi-id-05/mem_dump >/dev/null 2>&1; then
        cat /sys/kernel/debug/tpmi-*/tpmi-id-05/mem_dump
    else
        quiet $real core-power info
        for c in 0 1 2 3; do quiet $real -c 0 core-power get-config -c $c; done
        quiet $real -c $cpus core-power get-assoc
        quiet $real perf-profile get-config-current-level
        quiet $real -c 0 perf-profile info -l 0 | grep speed-select-
    fi
    quiet $real turbo-mode get-trl
}
while IFS= read -r line; do
    case $line in '' | '#'*) continue ;; esac
    words=${line#!}
    words=$(echo "$words" | sed "s/ALL/$cpus/")
    case $words in
    '$ '*) eval "${words#??}" ; continue ;;
    esac
    eval "$program $words" </dev/null >/tmp/out 2>/tmp/err
    code=$?
    echo "### $line"
    for stream in out err; do
        echo "[std$stream]"
        sed -e "s,/tmp/t26/intel-speed-select,PROGRAM,g" -e "s,/tmp/fb/intel-speed-select,PROGRAM,g" /tmp/$stream
    done
    echo "[rc=$code]"
    [ -e /tmp/result ] && { echo '[file]'; cat /tmp/result; rm /tmp/result; }
    case $line in '!'*) echo '[state]'; state ;; esac
done <commands
dmesg | grep -iE 'Oops|BUG:|Call Trace'
exit 0

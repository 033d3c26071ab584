#!/bin/sh
# top.sh FLYBALL SAMPLES [TURBOSTAT]: what `flyball top` does to CPUs that sleep, by the kernel's own count of interrupts between
# processors. Runs as root in a guest. For each run, of SAMPLES seconds in which it takes a sample each second, prints its name and the calls
# and rescheduling interrupts that the CPUs but 0 got, how long those slept and worked (hundredths of a second), how many
# interrupts the program itself sent to other CPUs, and how many samples it took: nothing, top with the default, with all CPUs touched, and turbostat.
cp "$1" /tmp/flyball && [ -z "$3" ] || cp "$3" /tmp/turbostat
cd /tmp || exit 1
modprobe msr 2> /dev/null
export NO_COLOR=1
# The sum over all CPUs but 0 of a row of /proc/interrupts.
row() {
    while read -r name zero rest; do
        [ "$name" = "$1:" ] || continue
        sum=0
        for count in $rest; do
            case $count in *[!0-9]*) break ;; esac
            sum=$((sum + count))
        done
        echo $sum
        return
    done < /proc/interrupts
    echo 0
}
# Ticks that the CPUs but 0 slept and worked. /proc/stat counts a sleep that goes on up to now, which cpuidle's times do not.
ticks() {
    slept=0 worked=0
    while read -r name user nice system idle iowait irq softirq rest; do
        case $name in cpu[1-9]*)
            slept=$((slept + idle + iowait))
            worked=$((worked + user + nice + system + irq + softirq)) ;;
        esac
    done < /proc/stat
    echo "$slept $worked"
}
# The functions of the kernel that send one CPU, or several, a call or a request to reschedule (arch/x86/kernel/apic/ipi.c, smp.c).
tracing=/sys/kernel/tracing
[ -e $tracing/kprobe_events ] || mount -t tracefs none $tracing 2> /dev/null
probes=
for function in native_send_call_func_single_ipi native_send_call_func_ipi native_smp_send_reschedule; do
    echo "p:flyball/$function $function to=%di:u32" >> $tracing/kprobe_events 2> /dev/null && probes="$probes $function"
done
# watch PID: follows what this process sends, and sent counts what it sent while no interrupt of its own CPU was handled (the third flag), to
# a CPU that the kernel had not woken by such an interrupt within the sample before: that one ran, and may be asked.
watch() {
    for probe in $probes; do
        echo "common_pid == $1" > $tracing/events/flyball/$probe/filter
        echo 1 > $tracing/events/flyball/$probe/enable
    done
    echo > $tracing/trace
}
sent() {
    for probe in $probes; do echo 0 > $tracing/events/flyball/$probe/enable; done
    [ -n "$probes" ] || { echo unknown; return; }
    awk '$2 ~ /^\[[0-9]+\]$/ {
        if (substr($3, 3, 1) != ".") woken[$NF] = $4 + 0
        else if (!($NF in woken) || $4 - woken[$NF] > 1.5) sent++
    } END { print sent + 0 }' $tracing/trace
}
# count NAME [COMMAND...]: while the command, which prints lines and goes on until it is ended, takes samples. Its start, in which each CPU
# is asked what its hardware can do, is over.
count() {
    name=$1 pid=
    shift
    sleep 2
    if [ $# -gt 0 ]; then
        "$@" > out 2> err &
        pid=$!
        waited=0
        while lines=$(wc -l < out); [ "$lines" -lt "$enough" ]; do
            sleep 1
            waited=$((waited + 1))
            [ $waited -lt 120 ] || { echo "not ok $name: $(cat err)"; kill $pid; return; }
        done
        watch $pid
    fi
    lines=$(wc -l < out)
    cal=$(row CAL) res=$(row RES) before=$(ticks)
    sleep "$seconds"
    cal=$(($(row CAL) - cal)) res=$(($(row RES) - res)) after=$(ticks)
    idle=$((${after% *} - ${before% *})) busy=$((${after#* } - ${before#* }))
    if [ -n "$pid" ]; then
        own=$(sent) lines=$(($(wc -l < out) - lines))
        cp $tracing/trace "trace.$name" 2> /dev/null
        kill $pid
        wait $pid
    else
        own=0 lines=0
    fi
    echo "run $name CAL $cal RES $res idle $idle busy $busy sent $own samples $((lines / cpus))"
}
# Everything on CPU 0, so that the others have nothing to do: programs, and the threads of the kernel that may move. Those of RCU and of
# memory otherwise run where they slept last, whenever a program on CPU 0 frees something.
seconds=$2
cpus=$(grep -c '^cpu[0-9]' /proc/stat)
enough=$((4 * cpus + 1))
for task in /proc/[0-9]*; do taskset -p 1 "${task#/proc/}"; done > /dev/null 2>&1
echo 1 > /sys/devices/virtual/workqueue/cpumask
: > out
count nothing
count default ./flyball top --csv
cp out default.csv
count all ./flyball top --touch all --csv
[ ! -e /tmp/turbostat ] || count turbostat ./turbostat --quiet --interval 1 --show CPU,Busy%,Bzy_MHz
# What the default showed of the CPUs but 0: how many rows slept.
echo "asleep $(grep -c ',asleep,' default.csv) of $(grep -vc '^time' default.csv)"
head -n 60 trace.default 2> /dev/null | grep -v '^#'
echo done

#!/bin/sh
# top.sh FLYBALL SAMPLES: what `flyball top` does to CPUs that sleep, by the kernel's own count of interrupts between processors.
# Runs as root in a guest. Prints for each run its name and the calls, rescheduling and other interrupts that the CPUs but 0
# got, how long those slept, and how long the run took (hundredths of a second): `sleep` alone, two samples (what a start costs),
# top with the default, and with all CPUs touched.
cp "$1" /tmp/flyball && cd /tmp || exit 1
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
# Ticks that the CPUs but 0 slept. /proc/stat counts a sleep that goes on up to now, which cpuidle's times do not.
slept() {
    sum=0
    while read -r name user nice system idle iowait rest; do
        case $name in cpu[1-9]*) sum=$((sum + idle + iowait)) ;; esac
    done < /proc/stat
    echo $sum
}
# Hundredths of a second since boot.
now() {
    read -r up rest < /proc/uptime
    echo "${up%.*}${up#*.}"
}
# count NAME COMMAND...
count() {
    name=$1
    shift
    # What earlier commands started settles.
    sleep 2
    cal=$(row CAL) res=$(row RES) idle=$(slept) began=$(now)
    "$@" > out 2> err || { echo "not ok $name: $(cat out err)"; return; }
    echo "run $name CAL $(($(row CAL) - cal)) RES $(($(row RES) - res)) idle $(($(slept) - idle)) ticks $(($(now) - began))"
}
# Everything on CPU 0, so that the others have nothing to do.
taskset -p 1 $$ > /dev/null
seconds=$2
count nothing sleep "$seconds"
count start ./flyball top --samples 2 --csv
count default ./flyball top --samples "$2" --csv
cp out default.csv
count all ./flyball top --samples "$2" --touch all --csv
# What the default showed of the CPUs but 0: how many rows slept.
echo "asleep $(grep -c ',asleep,' default.csv) of $(grep -vc '^time' default.csv)"
echo done

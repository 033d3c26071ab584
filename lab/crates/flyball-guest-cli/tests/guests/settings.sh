#!/bin/sh
# Run as root in a guest with a real cpufreq driver: flyball changes settings, and what it did is looked at from outside,
# with cat, before, during and after. Prints `ok NAME` or `not ok NAME: why`, and `done` at the end.
# $1: flyball. $2: modes of the driver to switch through, with blanks between, or none. $3: a governor for other modes.
C=/sys/devices/system/cpu
cp "$1" /tmp/flyball && F=/tmp/flyball
modes=$2
export NO_COLOR=1
failed=0

ok() { echo "ok $1"; }
bad() { echo "not ok $1: $2"; failed=1; }
# same NAME WANTED FOUND
same() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1" "wanted '$2', found '$3'"; fi; }
# has NAME TEXT PART
has() { case $2 in *"$3"*) ok "$1" ;; *) bad "$1" "no '$3' in '$2'" ;; esac; }
# A file's one line, without starting a program for it: in an emulator that is most of the time.
read1() { if read -r line < "$1"; then echo "$line"; else echo unreadable; fi; } 2> /dev/null

# `look`: every setting of the machine, one line each.
. ./look.sh

# unchanged NAME BEFORE: nothing differs from BEFORE.
unchanged() {
    now=$(look)
    if [ "$now" = "$2" ]; then ok "$1"; else
        echo "$now" > /tmp/now
        echo "$2" > /tmp/then
        bad "$1" "$(diff /tmp/then /tmp/now | tr '\n' ';')"
    fi
}

# fly NAME CODE ARGUMENT...: runs flyball, keeps its words in /tmp/out and /tmp/err, checks its exit code.
fly() {
    name=$1 code=$2
    shift 2
    $F "$@" > /tmp/out 2> /tmp/err
    rc=$?
    if [ $rc = "$code" ]; then ok "$name"; else bad "$name" "exit $rc, wanted $code: $(cat /tmp/out /tmp/err | tr '\n' ';')"; fi
}

# each NAME FILE VALUE: that file of every policy holds the value.
each() {
    wrong=
    for f in $C/cpufreq/policy*/$2; do [ "$(read1 "$f")" = "$3" ] || wrong="$wrong $f=$(read1 "$f")"; done
    same "$1" "" "$wrong"
}

governor=$(read1 $C/cpufreq/policy0/scaling_governor)
driver=$(read1 $C/cpufreq/policy0/scaling_driver)
low=$(read1 $C/cpufreq/policy0/cpuinfo_min_freq)
high=$(read1 $C/cpufreq/policy0/cpuinfo_max_freq)
other=powersave
[ "$governor" = powersave ] && other=performance
first=$(look)
echo "# $(uname -r) $driver $governor $low-$high"

fly "show" 0 show
has "show names the driver" "$(cat /tmp/out)" "$driver"
fly "get" 0 get governor -c 0
has "get says the governor" "$(cat /tmp/out)" "$governor"
unchanged "reading changes nothing" "$first"

fly "plan" 0 plan --each "governor=$other"
has "plan names each file" "$(cat /tmp/out)" "$C/cpufreq/policy3/scaling_governor"
unchanged "plan changes nothing" "$first"

fly "governor" 0 set "governor=$other"
each "governor is set" scaling_governor "$other"
fly "governor again" 0 set "governor=$other"
has "again is nothing" "$(cat /tmp/out)" "nothing to change"
fly "governor verified" 0 verify "governor=$other"
echo "$governor" > $C/cpufreq/policy2/scaling_governor
fly "drift is seen" 5 verify "governor=$other"
has "drift names the CPU" "$(cat /tmp/out)" "CPUs 2"
fly "governor restored" 0 restore
unchanged "after governor" "$first"

fly "an unknown governor" 2 set governor=bogus
has "accepted governors are named" "$(cat /tmp/err)" "powersave"
fly "a frequency outside" 2 set max-freq=99GHz
fly "a frequency without unit" 2 set max-freq=2000000
fly "min above max" 2 set min-freq=max max-freq=min
unchanged "refusals change nothing" "$first"

# Limits: half-way up, and a minimum between. Tables of acpi-cpufreq round them.
half=$(((low + high) / 2))
quarter=$((low + (high - low) / 4))
fly "limits" 0 set "max-freq=${half}kHz" "min-freq=${quarter}kHz"
max=$(read1 $C/cpufreq/policy1/scaling_max_freq)
min=$(read1 $C/cpufreq/policy1/scaling_min_freq)
if [ "$max" -le "$half" ] && [ "$max" -ge "$quarter" ] && [ "$min" -ge "$quarter" ] && [ "$min" -le "$max" ]; then
    ok "limits are set"
else bad "limits are set" "$min-$max, wanted $quarter-$half"; fi
fly "limits of one CPU" 0 set max-freq=max min-freq=min -c 1
fly "limits planned" 0 plan max-freq=max min-freq=min -c 1
has "limits are as wanted" "$(cat /tmp/out)" "nothing to change"
same "other CPUs keep theirs" "$max" "$(read1 $C/cpufreq/policy2/scaling_max_freq)"
fly "last undone" 0 restore --last
same "last undone is exact" "$max" "$(read1 $C/cpufreq/policy1/scaling_max_freq)"
fly "limits restored" 0 restore
unchanged "after limits" "$first"

if [ -e $C/cpufreq/policy0/energy_performance_preference ]; then
    fly "epp under powersave" 0 set governor=powersave epp=power
    each "epp is set" energy_performance_preference power
    fly "epp refused under performance" 2 set governor=performance epp=power
    has "the refusal names the remedy" "$(cat /tmp/err)" "governor=powersave"
    fly "performance takes epp" 0 set governor=performance
    fly "the way back" 0 set governor=powersave epp=balance_power
    each "epp is set after the governor" energy_performance_preference balance_power
    fly "epp restored" 0 restore
    unchanged "after epp" "$first"
fi

if [ -e $C/cpu0/power/energy_perf_bias ]; then
    fly "epb" 0 set epb=15 -c 1-2
    same "epb is set" "15 15" "$(read1 $C/cpu1/power/energy_perf_bias) $(read1 $C/cpu2/power/energy_perf_bias)"
    fly "epb restored" 0 restore
    unchanged "after epb" "$first"
fi

turbo=
[ -e $C/intel_pstate/no_turbo ] && turbo=$C/intel_pstate/no_turbo on=0 off=1
[ -e $C/cpufreq/boost ] && turbo=$C/cpufreq/boost on=1 off=0
if [ -n "$turbo" ] && [ "$(read1 "$turbo")" = "$on" ]; then
    fly "turbo off" 0 set turbo=off
    same "turbo is off" "$off" "$(read1 "$turbo")"
    fly "turbo off again" 0 plan turbo=off
    has "turbo off is nothing more" "$(cat /tmp/out)" "nothing to change"
    fly "turbo restored" 0 restore
    unchanged "after turbo" "$first"
fi

for mode in $modes; do
    fly "mode $mode" 0 set "driver-mode=$mode"
    same "mode is $mode" "$mode" "$(cat $C/*_pstate/status)"
    fly "mode $mode again" 0 plan "driver-mode=$mode"
    has "mode $mode is nothing more" "$(cat /tmp/out)" "nothing to change"
    g=$3
    [ "$mode" = active ] && g=performance
    fly "mode $mode with all" 0 set "driver-mode=$mode" "governor=$g" "max-freq=${half}kHz" turbo=off
    each "governor in $mode" scaling_governor "$g"
    fly "mode $mode with all, planned" 0 plan "driver-mode=$mode" "governor=$g" "max-freq=${half}kHz" turbo=off
    has "all in $mode is nothing more" "$(cat /tmp/out)" "nothing to change"
    fly "mode $mode restored" 0 restore
    unchanged "after mode $mode" "$first"
done

# Tunables of a governor go when it goes. (Where the driver has governors of its own only, there are none.)
if echo ondemand > $C/cpufreq/policy0/scaling_governor 2>/dev/null; then
    t=$(ls -d $C/cpufreq/ondemand/up_threshold $C/cpufreq/policy0/ondemand/up_threshold 2>/dev/null | head -1)
    echo 63 > "$t"
    tuned=$(look)
    fly "tunables aside" 0 set governor=performance
    fly "tunables restored" 0 restore
    unchanged "after tunables" "$tuned"
    same "the tunable is back" 63 "$(read1 "$t")"
    echo userspace > $C/cpufreq/policy0/scaling_governor 2>/dev/null && {
        echo "$quarter" > $C/cpufreq/policy0/scaling_setspeed
        tuned=$(look)
        fly "speed aside" 0 set governor=powersave
        fly "speed restored" 0 restore
        unchanged "after speed" "$tuned"
    }
    echo "$governor" > $C/cpufreq/policy0/scaling_governor
fi

# A real refusal in the middle: the last policy's limit is on a read-only mount.
t=$C/cpufreq/policy3/scaling_max_freq
mount --bind $t $t && mount -o remount,ro,bind $t
fly "a write fails" 1 set "governor=$other" "max-freq=${half}kHz" "min-freq=${quarter}kHz"
has "the failure names the file" "$(cat /tmp/err)" "$t"
has "the failure names the errno" "$(cat /tmp/err)" "EROFS"
has "the failure says what was done" "$(cat /tmp/err)" "restored"
umount $t
unchanged "after the failure" "$first"

# Offline CPUs.
echo 0 > $C/cpu1/online
offline=$(look)
fly "around an offline CPU" 0 set "governor=$other"
has "it is told" "$(cat /tmp/err)" "offline"
fly "around it restored" 0 restore
unchanged "after offline" "$offline"
fly "bring it back" 0 set online=on "governor=$other"
each "its governor too" scaling_governor "$other"
fly "offline restored" 0 restore
unchanged "after online" "$offline"
echo 1 > $C/cpu1/online
fly "take CPUs offline" 0 set online=off -c 2-3
same "they are offline" "0-1" "$(read1 $C/online)"
fly "online restored" 0 restore
unchanged "after online again" "$first"

# Another flyball holds the lock; what it wants is so already, so nothing changes.
$F run "governor=$governor" -- sh -c 'touch /tmp/held; exec sleep 1000' > /dev/null 2>&1 &
pid=$!
while ! [ -e /tmp/held ]; do sleep 0.1; done
fly "a second one is refused" 6 set "governor=$other"
kill $pid
wait $pid 2> /dev/null
unchanged "the refused one changed nothing" "$first"

# A journal of an earlier boot is not replayed.
fly "before the boot" 0 set "governor=$other"
echo 00000000-0000-0000-0000-000000000000 > /tmp/boot
mount --bind /tmp/boot /proc/sys/kernel/random/boot_id
fly "after the boot" 0 restore
has "the earlier boot is told" "$(cat /tmp/err)" "earlier boot"
each "nothing was replayed" scaling_governor "$other"
umount /proc/sys/kernel/random/boot_id
mv /run/flyball/journal.earlier-boot /run/flyball/journal
fly "the boot comes back" 0 restore
unchanged "after the boot" "$first"

# save, and apply what was saved.
fly "save" 0 save /tmp/saved.toml
fly "changed" 0 set "governor=$other" "max-freq=${half}kHz"
rm -f /run/flyball/journal
fly "apply what was saved" 0 apply /tmp/saved.toml
unchanged "saved is exact" "$first"
fly "saved holds" 0 verify /tmp/saved.toml
rm -f /run/flyball/journal

# Killed at many moments.
mode=$(echo "$modes" | cut -d' ' -f1)
caught=0
for i in 1 2 3 4 5 6; do
    if [ -n "$mode" ] && [ $((i % 2)) = 0 ]; then
        $F set "driver-mode=$mode" "governor=$3" "max-freq=${half}kHz" turbo=off > /dev/null 2>&1 &
    else
        $F set "governor=$other" "max-freq=${half}kHz" "min-freq=${quarter}kHz" turbo=off latency-limit=50us > /dev/null 2>&1 &
    fi
    pid=$!
    # From its first record on, a little later each time.
    while ! [ -s /run/flyball/journal ] && kill -0 $pid 2> /dev/null; do :; done
    sleep 0.0$((i - 1))
    kill -9 $pid 2> /dev/null && caught=$((caught + 1))
    wait $pid 2> /dev/null
    $F restore > /tmp/out 2>&1 || bad "restore after kill $i" "$(tr '\n' ';' < /tmp/out)"
    now=$(look)
    [ "$now" = "$first" ] || {
        echo "$now" > /tmp/now
        echo "$first" > /tmp/then
        bad "after kill $i" "$(diff /tmp/then /tmp/now | tr '\n' ';')"
    }
done
echo "# $caught of 6 were killed in the middle"
if [ $caught -gt 0 ]; then ok "killed in the middle"; else bad "killed in the middle" "every one was faster"; fi

# One command under settings, and its exit code.
fly "run" 7 run "governor=$other" -- sh -c "cat $C/cpufreq/policy*/scaling_governor > /tmp/seen; exit 7"
same "during run" "$other" "$(sort -u /tmp/seen)"
unchanged "after run" "$first"

# A comparison: the workload itself writes down what it ran under.
cat > /tmp/work << 'END'
C=/sys/devices/system/cpu
read -r g < $C/cpufreq/policy1/scaling_governor
m=none
for f in $C/*_pstate/status; do [ -e "$f" ] && read -r m < "$f"; done
e=none
[ -e $C/cpufreq/policy1/energy_performance_preference ] && read -r e < $C/cpufreq/policy1/energy_performance_preference
echo "$m $g $e" >> /tmp/seen
i=0
while [ $i -lt 3000 ]; do i=$((i + 1)); done
END
: > /tmp/seen
set -- --arm now --arm "other: governor=$other"
[ -n "$mode" ] && set -- "$@" --arm "mode: driver-mode=$mode governor=$g"
preference=
if [ -e $C/cpufreq/policy0/energy_performance_preference ]; then
    preference=yes
    set -- "$@" --arm "epp: governor=powersave epp=balance_power"
fi
fly "compare" 0 compare "$@" --rounds 3 --warm-up 0 --seed 7 -o /tmp/run -- sh /tmp/work
unchanged "after compare" "$first"
same "rounds under the other governor" 3 "$(grep -c " $other " /tmp/seen | sed "s/^[4-9]\$/3/")"
[ -n "$mode" ] && same "rounds in mode $mode" 3 "$(grep -c "^$mode $g" /tmp/seen)"
[ -n "$preference" ] && same "rounds under epp" 3 "$(grep -c "powersave balance_power$" /tmp/seen)"
fly "report" 0 report /tmp/run
has "the report names the arm" "$(cat /tmp/out)" "other"

# Killed in the middle of a round: the guardian restores at once, and nobody has to ask for it.
$F compare --arm now --arm "other: governor=$other max-freq=${half}kHz" --rounds 50 --seed 7 -o /tmp/killed -- sleep 0.4 \
    > /dev/null 2>&1 &
pid=$!
n=0
while [ $n -lt 3000 ]; do
    read -r now < $C/cpufreq/policy3/scaling_governor
    read -r max < $C/cpufreq/policy3/scaling_max_freq
    [ "$now" = "$other" ] && [ "$max" -le "$half" ] && break
    sleep 0.02
    n=$((n + 1))
done
same "compare is at work" "$other" "$now"
kill -9 $pid
wait $pid 2> /dev/null
n=0
while [ -e /run/flyball/journal ] && [ $n -lt 1000 ]; do sleep 0.05; n=$((n + 1)); done
unchanged "after the guardian" "$first"
fly "nothing is left to restore" 0 restore
has "which is said" "$(cat /tmp/err)" "nothing to restore"

# Interrupted: restored by flyball itself.
$F run "governor=$other" -- sleep 20 > /dev/null 2>&1 &
pid=$!
n=0
while [ $n -lt 3000 ]; do
    read -r now < $C/cpufreq/policy3/scaling_governor
    [ "$now" = "$other" ] && break
    sleep 0.02
    n=$((n + 1))
done
kill -TERM $pid
wait $pid 2> /dev/null
unchanged "after an interrupt" "$first"

unchanged "all in all" "$first"
echo done
exit $failed

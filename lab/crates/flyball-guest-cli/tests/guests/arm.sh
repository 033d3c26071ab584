#!/bin/sh
# Run as root in a guest of lab/scripts/arm-guest: flyball changes the settings of the kernel's cppc_cpufreq, and cat and the
# registers tell what came of it. Prints `ok NAME` or `not ok NAME: why`, and `done` at the end.
# $1: flyball. $2: the machine, altra or grace.
C=/sys/devices/system/cpu
P=$C/cpufreq/policy1
F=$1
export NO_COLOR=1

# same NAME WANTED FOUND
same() { if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: wanted '$2', found '$3'"; fi; }
# has NAME TEXT PART
has() { case $2 in *"$3"*) echo "ok $1" ;; *) echo "not ok $1: no '$3' in '$2'" ;; esac; }
# register OFFSET: of CPU 1.
register() { echo $(($(devmem $((0x80000100 + $1)) 32))); }
look() { for f in governor min_freq max_freq; do cat $P/scaling_$f; done; cat $P/boost $P/auto* $P/energy* $C/cpufreq/boost; }
# undone NAME: flyball restores, and nothing differs from `before`.
undone() { $F restore >/tmp/out 2>&1; same "$1: restore" 0 $?; same "$1: restored" "$before" "$(look)"; }
# sets NAME SETTING FILE VALUE OFFSET LEVEL: the file and the register hold what was asked for, and then what was there.
sets() {
    $F set "$2" >/tmp/out 2>&1
    same "$1: set" 0 $?
    same "$1: file" "$4" "$(cat "$P/$3")"
    [ -z "$5" ] || same "$1: register" "$6" "$(register "$5")"
    $F verify "$2" >/tmp/out 2>&1
    same "$1: verify" 0 $?
    undone "$1"
}

before=$(look)
same driver cppc_cpufreq "$(cat $P/scaling_driver)"
has show "$($F show)" cppc_cpufreq
sets governor governor=performance scaling_governor performance
case $2 in
altra)
    sets maximum max-freq=2.4GHz scaling_max_freq 2400000 8 240
    sets turbo turbo=on boost 1
    # 6.12 forgets the maximum with boost.
    $F set turbo=on max-freq=2.4GHz >/tmp/out 2>&1
    same "turbo and a maximum" 2400000 "$(cat $P/scaling_max_freq)"
    undone "turbo and a maximum"
    ;;
grace)
    sets maximum max-freq=2.7GHz scaling_max_freq 2700000 8 100
    has "no turbo" "$($F set turbo=on 2>&1)" "no frequency above its nominal one"
    # A refused write turns the switch (7.2): flyball does not write.
    echo 0 2>/dev/null >$C/cpufreq/boost
    has "a turned switch" "$($F set turbo=off 2>&1; $F restore 2>&1)" "no"
    ;;
esac
if [ -f $P/auto_select ]; then
    sets autonomous auto-select=on auto_select 1 40 1
    sets preference epp-value=77 energy_performance_preference_val 77 48 77
    sets window activity-window=1.2ms auto_act_window 1200 44 $((0x80 + 120))
    has "a word for a preference" "$($F set epp=power 2>&1)" epp-value
fi
if [ -f $P/perf_limited ]; then
    devmem $((0x80000120)) 32 3
    has "a limit" "$($F doctor)" "The platform limited CPUs 1"
    devmem $((0x80000120)) 32 0
fi
$F run max-freq=min -- cat $P/scaling_max_freq >/tmp/out 2>&1
same run "$(cat $P/cpuinfo_min_freq)" "$(tail -n 1 /tmp/out)"
same "after run" "$before" "$(look | sed '$d'; echo "$before" | tail -n 1)"
echo 0 >$C/cpu1/online
echo 1 >$C/cpu1/online
has why "$($F why -t 1)" "CPUs"
echo "done"

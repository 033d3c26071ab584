#!/bin/sh
# rounds.sh FLYBALL ROUNDS SEED: run as root on a machine whose settings may change. See scripts/kills.
#
# Each round starts a command that changes settings, kills it after a random time (in half of the rounds the processes that
# it started too), restores, and looks at every setting with the shell. In a quarter of the rounds the first restore
# is killed as well. In a third of the rounds the service runs, and is killed too in half of them. look.sh must be next to
# this script.
# shellcheck disable=SC2034 # look.sh uses it
C=/sys/devices/system/cpu
F=/tmp/flyball-under-test.$$
cp "$1" "$F" || exit 1
rounds=$2 random=$3
export NO_COLOR=1

# A number below $1, from a generator that the seed repeats (Park and Miller's).
next() { random=$((random * 48271 % 2147483647)); number=$((random % $1)); }
i=0
random=$((random * 7919 + 1))

# `look`: every setting that has a file.
# shellcheck source=scripts/kills.d/look.sh
. "${0%/*}/look.sh"

# Every setting that the commands below can change, a line each. Speed Select has no files: another run of flyball shows what
# the driver answers.
see() {
    look
    [ "$kinds" = 15 ] || "$F" get sst-level sst-bf sst-tf sst-cp sst-cp-priority clos clos-min clos-max clos-weight 2>&1
}

# `usleep` is in busybox, not in coreutils, whose `sleep` takes fractions.
pause() { usleep "$1" 2> /dev/null || sleep "$(printf '0.%06d' "$1")"; }

# The processes that run the binary of this script and no other.
own() {
    for exe in /proc/[0-9]*/exe; do
        [ "$(readlink "$exe" 2> /dev/null)" = "$F" ] || continue
        pid=${exe#/proc/}
        echo "${pid%/exe}"
    done
}

kinds=15
[ ! -e /dev/isst_interface ] || kinds=21

command() {
    next $kinds
    case $number in
        0) set -- set governor=performance ;;
        1) set -- set governor=powersave max-freq=2GHz ;;
        2) set -- set governor=performance min-freq=1.5GHz max-freq=2.5GHz ;;
        3) set -- set turbo=off ;;
        4) set -- set epp=power epb=15 ;;
        5) set -- set driver-mode=passive governor=schedutil ;;
        6) set -- set -c 1 governor=performance ;;
        7) set -- run governor=performance max-freq=2GHz -- sleep 0.3 ;;
        8) set -- set online=off -c 1 ;;
        9) set -- quiet --cpus 1 -- sleep 0.3 ;;
        10) set -- compare --arm now --arm 'b: governor=performance' --rounds 2 -- true ;;
        11) set -- hold add one governor=performance ;;
        12) set -- hold add two max-freq=2GHz turbo=off --priority 200 ;;
        13) set -- hold release one ;;
        14) set -- hold run ;;
        15) set -- set sst-cp=on sst-bf=on ;;
        16) set -- set sst-cp=on sst-tf=on governor=performance ;;
        17) set -- set sst-cp=on clos-max:3=1.5GHz clos=3 ;;
        18) set -- set sst-cp-priority=ordered clos-weight:1=9 turbo=off ;;
        19) set -- set sst-level=4 ;;
        20) set -- run sst-cp=on clos=2 -c 0-1 -- sleep 0.3 ;;
    esac
    # What the second, the release and the service meet.
    case $number in 12 | 13 | 14) "$F" hold add one governor=performance > /dev/null 2>&1 || absent=$((absent + 1)) ;; esac
    "$F" "$@" > /tmp/kills-out.$$ 2>&1 &
    child=$!
}

# Hundredths of a second since boot.
now() { read -r up _ < /proc/uptime; up=${up%.*}${up#*.}; }

kills=0 restores=0 services=0 absent=0 ended=0 undone=0 exact=0 kept=0 false=0
before=$(see)
[ -n "$before" ] || { echo "false: no settings here"; exit 1; }
cd /tmp || exit 1
# Delays follow what a change takes here, so that kills hit its whole length: tens of milliseconds on a processor, seconds in an
# emulator. The second one counts, because the first reads the program from storage.
for _ in 1 2; do
    now
    took=$up
    "$F" set max-freq=2GHz > /tmp/kills-out.$$ 2>&1 || { echo "false: set: $(tr '\n' ';' < /tmp/kills-out.$$)"; exit 1; }
    now
    took=$(((up - took) * 10000 + 10000))
    "$F" restore > /dev/null 2>&1
done
while [ $i -lt "$rounds" ]; do
    i=$((i + 1))
    service=
    next 3
    if [ "$number" = 0 ]; then
        "$F" hold run > /tmp/kills-service.$$ 2>&1 &
        service=$! services=$((services + 1))
        pause $took
    fi
    command
    what="case $number"
    next 5
    case $number in 0) next $((took / 10)) ;; 1 | 2) next "$took" ;; 3) next $((took * 2)) ;; 4) next $((took * 5)) ;; esac
    pause "$number"
    next 2
    everything=$number
    if kill -9 $child 2> /dev/null; then kills=$((kills + 1)); else ended=$((ended + 1)); fi
    if [ "$everything" = 1 ]; then
        for pid in $(own); do kill -9 "$pid" 2> /dev/null && kills=$((kills + 1)); done
    fi
    wait $child 2> /dev/null
    next 2
    if [ -n "$service" ] && [ "$number" = 0 ]; then
        kill -9 $service 2> /dev/null && kills=$((kills + 1))
        wait $service 2> /dev/null
        service=
    fi
    next 4
    if [ "$number" = 0 ]; then
        "$F" restore > /dev/null 2>&1 &
        child=$!
        next $((took / 2))
        pause "$number"
        kill -9 $child 2> /dev/null && restores=$((restores + 1))
        wait $child 2> /dev/null
    fi
    # A guardian that lives restores on its own: `restore` waits for its lock, and says so with 6 if that takes long.
    tries=0
    while :; do
        "$F" restore > /tmp/kills-restore.$$ 2>&1
        code=$?
        [ $code = 6 ] && [ $tries -lt 20 ] || break
        tries=$((tries + 1))
        pause 500000
    done
    seen=$(see)
    if [ -n "$service" ]; then
        kill -9 $service 2> /dev/null
        wait $service 2> /dev/null
    fi
    ! grep -q '^undone: ' /tmp/kills-restore.$$ || undone=$((undone + 1))
    if [ "$code" = 0 ] && [ "$seen" = "$before" ]; then
        exact=$((exact + 1))
    elif [ "$code" = 0 ]; then
        false=$((false + 1))
        echo "$before" > /tmp/kills-before.$$
        echo "$seen" > /tmp/kills-now.$$
        echo "false: round $i, $what: $(diff /tmp/kills-before.$$ /tmp/kills-now.$$ | head -n 6 | tr '\n' ';') $(tr '\n' ';' < /tmp/kills-restore.$$)"
        # So that one fault is not counted again in every round that follows.
        before=$seen
    else
        kept=$((kept + 1))
        echo "not restored: round $i, $what: exit $code: $(tail -n 3 /tmp/kills-restore.$$ | tr '\n' ';')"
    fi
done
rm -f "$F" /tmp/kills-*.$$
echo "sum: $rounds rounds $kills kills $restores kills-of-restore $services services $absent holds-refused $ended ended-before $undone undone-by-restore $exact exact $kept not-restored $false false"

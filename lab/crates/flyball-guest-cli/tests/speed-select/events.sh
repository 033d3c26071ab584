# Read by flyball-sst.sh in a guest that has hardware feedback: levels that somebody else changes, followed by the kernel's
# own word. The emulated firmware writes its table into the guest's memory whenever what CPUs can do has changed; the thermal
# interrupt, which the emulator's plug-in cannot raise, is one that the CPU sends to itself (APIC, self, vector 0xfa of
# arch/x86/include/asm/irq_vectors.h). What comes of it, through drivers/thermal/intel/intel_hfi.c and netlink, is the
# kernel's doing.
modprobe msr
feedback() { taskset 1 devmem 0xfee00300 32 0x000440fa; }
online_is() { [ "$(cat $sys/online)" = "$1" ]; }
# IA32_HW_FEEDBACK_CONFIG: the kernel switches feedback on when the first listener has subscribed.
listened_to() { /tmp/raw msr 0x17d1 | grep -q '1$'; }
level() {
    if [ -n "$real" ]; then $real perf-profile set-config-level -l $1; else $fly set sst-level=$1; fi >/dev/null 2>&1
}
all=$(cat $sys/online)
follows() { # NAME COMMAND...
    name=$1
    shift
    "$@" >/tmp/out 2>/tmp/err &
    watcher=$!
    eventually listened_to || bad "$name: does not subscribe"
    level 2
    # Also as long as the tool looks at no domain twice.
    sleep 2.5
    [ "$(cat $sys/online)" = "$all" ] || bad "$name: followed before the kernel said anything"
    feedback
    if eventually online_is 0-1; then ok "$name: CPUs go at the kernel's word"; else bad "$name: nothing followed the event"; fi
    level 0
    sleep 2.5
    feedback
    if eventually online_is "$all"; then ok "$name: and come back"; else bad "$name: not back"; fi
    kill -INT $watcher
    wait $watcher
    code=$?
    [ $code -eq 0 ] && ok "$name ends with 0" || bad "$name: exit $code"
}
if grep -q -w hfi /proc/cpuinfo; then
    follows 'watch by events' $fly sst watch
    rm -f /tmp/hfi-events.pid
    follows 'the drop-in by events' $start /tmp/fb/intel-speed-select --oob -n
    if [ -n "$real" ] && [ -z "$few" ]; then follows 'the unmodified tool by events' $real --oob -n; fi
else
    bad 'the guest has no hardware feedback'
fi

# Read by the scripts of this folder, in a guest: the drivers loaded, the programs where they start quickly, and the
# state of the machine as neither flyball nor the unmodified tool tells it.
# Beside them: fb (flyball), raw, and t26 (the unmodified tool with its C library), if it could be had.
for m in isst_if_common isst_if_mbox_msr isst_if_mbox_pci isst_if_mmio intel_vsec intel_vsec_tpmi isst_tpmi; do
    modprobe $m 2>/dev/null
done
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
mkdir -p /var/run /run
for thing in fb raw t26; do [ ! -e /job/$thing ] || ln -sfn /job/$thing /tmp/$thing; done
ln -sf flyball /job/fb/intel-speed-select
chmod -R a+rX /job 2>/dev/null
chmod 755 / /tmp
sys=/sys/devices/system/cpu
cpus=0-$(($(ls -d $sys/cpu[0-9]* | wc -l) - 1))
real=
[ -e /tmp/t26 ] && real="/tmp/t26/ld-linux-x86-64.so.2 --library-path /tmp/t26 /tmp/t26/intel-speed-select"
# What a program is to be started with.
start=env
mesh() { ls $sys/intel_uncore_frequency/*/m??_freq_khz 2>/dev/null; }
limits() { # They settle after the write has returned.
    last=none
    for try in 1 2 3 4 5 6 7 8 9 10; do
        now=$(cat $sys/cpu[0-9]*/cpufreq/scaling_m??_freq 2>/dev/null)
        [ "$now" = "$last" ] && [ $try -gt 2 ] && break
        last=$now
        sleep 0.05
    done
}
eventually() { # COMMAND...: within a time that is long for an emulator on a busy host
    for try in $(seq 1 150); do
        "$@" && return 0
        sleep 0.4
    done
    return 1
}
state() {
    limits
    /tmp/raw
    grep -H . $sys/online $sys/cpu[0-9]*/cpufreq/scaling_m??_freq $(mesh) /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
    for folder in $(find /sys/fs/cgroup -mindepth 1 -type d); do
        grep -H . $folder/cpuset.cpus $folder/cpuset.cpus.partition 2>/dev/null
    done
}

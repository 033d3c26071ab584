# Sourced, in guests and on served machines: `look` prints every setting that has a file, one line each. It does not use flyball,
# and it starts no program, which is most of the time in an emulator. The caller sets C.

# one FILE: the file and its one line.
one() {
    [ -e "$1" ] || return
    if read -r line < "$1"; then echo "$1 $line"; else echo "$1 unreadable"; fi
} 2> /dev/null

look() {
    for f in $C/online $C/amd_pstate/status $C/intel_pstate/status $C/intel_pstate/no_turbo \
        $C/intel_pstate/min_perf_pct $C/intel_pstate/max_perf_pct $C/intel_pstate/hwp_dynamic_boost $C/cpufreq/boost \
        $C/cpufreq/ondemand/up_threshold $C/cpufreq/schedutil/rate_limit_us $C/cpufreq/policy*/schedutil/rate_limit_us \
        $C/cpufreq/policy*/ondemand/up_threshold; do
        one "$f"
    done
    for n in scaling_driver scaling_governor energy_performance_preference scaling_min_freq scaling_max_freq boost \
        scaling_setspeed; do
        for f in $C/cpufreq/policy*/$n; do one "$f"; done
    done
    for f in $C/cpu*/power/energy_perf_bias $C/cpu*/power/pm_qos_resume_latency_us $C/cpu*/cpuidle/state*/disable; do
        one "$f"
    done
}

# In a guest: a CPU that is offline when the recording starts, comes online while it runs, and goes again.
cpu=/sys/devices/system/cpu/cpu1/online
echo 0 > $cpu
cat > work.sh <<'W'
count() { i=0; while [ $i -lt 80 ]; do i=$((i + 1)); done; }
count
echo 1 > /sys/devices/system/cpu/cpu1/online
for policy in /sys/devices/system/cpu/cpufreq/policy*; do echo schedutil > $policy/scaling_governor; done 2> /dev/null
for time in 1 2 3; do count & done
wait
echo 0 > /sys/devices/system/cpu/cpu1/online 2> /dev/null
count
W
for policy in /sys/devices/system/cpu/cpufreq/policy*; do echo schedutil > $policy/scaling_governor; done 2> /dev/null
./flyball trace record --json -o t.dat --idle --sched -- sh ./work.sh > out.json 2> err
echo "record exit $?"
cat err
echo 1 > $cpu
echo "instances: $(ls /sys/kernel/tracing/instances 2> /dev/null | wc -l)"
echo "--- summary"
cat out.json
echo "--- report"
./flyball trace report --json t.dat
echo "--- diagnosis"
./flyball trace diagnose t.dat

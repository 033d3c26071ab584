#!/bin/busybox sh
# PID 1 of a flyball guest. It makes the usual file systems, loads what the launcher asks for, runs the command that
# the launcher put into /job, says how it ended on the control line, and turns the guest off. With flyball.init=1 it hands
# PID 1 over to the root's own init, of which the second half of this file is a unit (there it is run by the root's sh).
#
# Serial lines: ttyS0 the kernel's console, ttyS1 standard output, ttyS2 standard error, ttyS3 control:
#   up UPTIME | command UPTIME | note TEXT | exit CODE UPTIME | out BYTES, followed by that many bytes of tar
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/job HOME=/root TERM=${TERM:-dumb}
say() { echo "$*" >&3; }
uptime() { cut -d' ' -f1 /proc/uptime; }
option() { sed -n "s/.*\\bflyball\\.$1=\\([^ ]*\\).*/\\1/p" /proc/cmdline; }

root=
# As a unit: all of this is there.
if [ $$ = 1 ]; then

/bin/busybox mkdir -p /bin /sbin /usr/bin /usr/sbin
/bin/busybox --install -s
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm /run /tmp
mount -t devpts pts /dev/pts
for d in /dev/shm /run /tmp; do mount -t tmpfs tmp $d; done
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
for s in 1 2 3; do stty -F /dev/ttyS$s raw -echo 2>/dev/null; done
exec 3>/dev/ttyS3
say up "$(uptime)"
ip link set lo up 2>/dev/null || ifconfig lo up 2>/dev/null

for m in $(option modules | tr , ' '); do
    case $m in
    # One that may be there: the kernel may have decided for another driver.
    \?*) modprobe "${m#?}" 2>/dev/null ;;
    *) modprobe "$m" 2>/dev/null || say note "module $m could not be loaded" ;;
    esac
done

from=$(option root)
if [ -n "$from" ]; then
    for m in virtio_pci 9pnet_virtio 9p virtio_blk crc32c_generic ext4 overlay; do modprobe "$m" 2>/dev/null; done
    mkdir -p /lower /upper /newroot
    mount -t tmpfs upper /upper; mkdir /upper/files /upper/work
    lower() {
        case $from in
        9p) mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,ro,cache=loose root /lower ;;
        *) mount -t ext4 -o ro,noload /dev/vda /lower ;;
        esac
    }
    if lower &&
        mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root /newroot; then
        root=/newroot
        # Its own init mounts the others itself.
        if [ "$(option init)" = 1 ]; then dirs=job; else dirs="proc sys dev run tmp job"; fi
        for d in $dirs; do
            mkdir -p $root/$d; mount --rbind /$d $root/$d 2>/dev/null || mount -o rbind /$d $root/$d
        done
        modules=/lib/modules/$(uname -r)
        mkdir -p $root$modules; mount -o bind $modules $root$modules 2>/dev/null
    else
        say note "the root file system could not be mounted"
        poweroff -f
    fi
fi

if [ "$(option init)" = 1 ]; then
    units=$root/etc/systemd/system
    mkdir -p $units/multi-user.target.wants
    cp /init /job/.init
    cat >$units/flyball-command.service <<UNIT
[Unit]
Description=The command of the guest
# Of the target that wants it: the boot has ended then, but for this.
After=multi-user.target

[Service]
Type=exec
Environment=TERM=$TERM
WorkingDirectory=/job
ExecStart=/bin/sh /job/.init
UNIT
    ln -s ../flyball-command.service $units/multi-user.target.wants/flyball-command.service
    exec 3>&-
    cd $root
    # As switch_root, without deleting this root's files, of which /job and the modules are mounted there.
    mount -o move . /
    exec chroot . /sbin/init --unit=multi-user.target
fi
fi

[ $$ = 1 ] || exec 3>/dev/ttyS3
cd /job
mkdir -p out
say command "$(uptime)"
if [ "$(option shell)" = 1 ]; then
    # The size of a terminal is lost when the last process closes it, so it is set by the one that then becomes the shell.
    size="rows $(option rows) cols $(option cols)"
    # Opened after setsid, so that it becomes the controlling terminal.
    open='exec <>/dev/ttyS1 >&0 2>&0; stty sane $SIZE; unset SIZE'
    if [ -n "$root" ]; then
        # By their paths: busybox takes a bare `sh` for its own.
        shell='cd /job; [ -x /bin/bash ] && exec /bin/bash -i; exec /bin/sh -i'
        SIZE=$size setsid sh -c "$open; exec chroot $root /bin/sh -c '$shell'"
    else
        SIZE=$size setsid sh -c "$open; exec sh -i"
    fi
    code=$?
else
    # Through pipes: the command is to see no terminal where the caller has none.
    mkfifo /run/flyball.out /run/flyball.err
    cat /run/flyball.out >/dev/ttyS1 &
    cat /run/flyball.err >/dev/ttyS2 &
    if [ -n "$root" ]; then
        chroot $root /bin/sh /job/.command </dev/null >/run/flyball.out 2>/run/flyball.err
    else
        sh /job/.command </dev/null >/run/flyball.out 2>/run/flyball.err
    fi
    code=$?
    # What the command left behind may hold the pipes open: a second for what is in them, no more.
    i=0
    while [ $i -lt 100 ] && [ -n "$(jobs)" ]; do sleep 0.01; jobs >/dev/null; i=$((i + 1)); done
fi
say exit $code "$(uptime)"
if [ "$(option out)" = 1 ]; then
    tar -cf /run/out.tar -C /job/out . 2>/dev/null
    say out "$(stat -c %s /run/out.tar)"
    cat /run/out.tar >&3
fi
exec 3>&-
sync
if [ $$ = 1 ]; then poweroff -f; else systemctl poweroff --force --force; fi

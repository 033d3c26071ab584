#!/bin/sh
# Runs in a guest: the script that the recordings were made with, with the unmodified tool (the folder t26) or flyball's
# drop-in (fb) as intel-speed-select.
mkdir -p /run /var/run
if [ -d fb ]; then
    ln -sf flyball fb/intel-speed-select
    chmod -R a+rX /job
    ln -s /job/fb /tmp/fb
    PATH=/tmp/fb:$PATH
fi
exec sh ./probe-sst-all.sh

#!/bin/bash
# Runs on the host beside a guest: the hardware feedback of a processor. Whenever the guest puts the address of its table
# into ask/N, a new one is written there: a time stamp, and for each of 8 CPUs a performance and an efficiency that
# are others than before. $RAM is the guest's memory, $JOB the folder that it shares.
number=1
while sleep 0.05; do
    [ -s "$JOB/ask/$number" ] || continue
    python3 - "$RAM" "$(cat "$JOB/ask/$number")" $number <<'PYTHON'
import struct
import sys

ram, address, number = sys.argv[1], int(sys.argv[2], 16) & ~0xFFF, int(sys.argv[3])
with open(ram, "r+b") as memory:
    memory.seek(address)
    memory.write(struct.pack("<QQ", number, 0x0101) + struct.pack("<BB6x", 200 - number, 100 + number) * 8)
PYTHON
    : >"$JOB/ask/$number.done"
    number=$((number + 1))
done

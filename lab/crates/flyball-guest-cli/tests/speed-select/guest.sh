#!/bin/sh
# Runs in a guest: everything, with the list of commands that is named.
#   guest.sh LIST [few]
[ -e t26 ] && sh ./side-by-side.sh $1
sh ./flyball-sst.sh $2

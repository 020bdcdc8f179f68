#!/bin/sh
# A worker that hangs: at once, or in a section of 1.5 s where `<our path>.marked` is.
[ ! -e "$0.marked" ] || echo '{"marked":1500}'
exec sleep 1000

#!/bin/sh
# A worker that strace changes: `<our path>.args` has strace's arguments, `<our path>.trace` gets what it saw.
# shellcheck disable=SC2046 # they are words
exec strace -f -qq -o "$0.trace" $(cat "$0.args") /bin/cleanslate "$@"

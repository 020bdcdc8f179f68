#!/bin/sh
# A worker that is killed at the beginning of a system call: `<our path>.args` names the call, which one, the program.
read -r call when program <"$0.args"
exec strace -f -qq -o /dev/null -e trace="$call" -e inject="$call:signal=SIGKILL:when=$when" "$program" "$@"

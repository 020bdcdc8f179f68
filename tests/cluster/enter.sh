#!/bin/bash
# enter.sh SCRATCH COMMAND…: runs a command on the node that up.sh started, as its administrator;
# kubectl, crictl and ctr are there and need no further options.
set -euo pipefail

scratch=${1:?usage: enter.sh SCRATCH COMMAND…}
shift
PATH=$("$(dirname "$0")/programs.sh"):$PATH
export PATH KUBECONFIG=/var/lib/cluster/admin.kubeconfig
export CONTAINER_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock
exec nsenter --target "$(<"$scratch/pid")" --net --mount --pid --ipc -- "$@"

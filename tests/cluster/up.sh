#!/bin/bash
# up.sh SCRATCH: a Kubernetes control plane and one real node (`node1`) in namespaces of their own.
#
# Needs root and the packages that `tests/run cluster` installs; builds what is missing. Uses no address,
# port or folder of the machine but SCRATCH, which it makes and removes. Runs until its standard input
# ends, so it cannot outlive who started it; by hand: start it, wait for "node1 is ready", work with
# enter.sh in another terminal, end it with Ctrl-D. The logs stay in target/cluster/log.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
repository=$(realpath "$here/../..")
scratch=${1:?usage: up.sh SCRATCH (a folder to be made)}
mkdir "$scratch"
scratch=$(realpath "$scratch")

finish() {
    rm -rf "$repository/target/cluster/log"
    mkdir -p "$repository/target/cluster"
    mv "$scratch/var/log" "$repository/target/cluster/log" 2>/dev/null || true
    # Cgroups have no namespace that would take them along. The kernel removes none that is in use.
    for container in "$scratch"/run/containerd/io.containerd.runtime.v2.task/k8s.io/*/; do
        rmdir /sys/fs/cgroup/{,*/}k8s.io/"$(basename "$container")" 2>/dev/null || true
    done
    rmdir /sys/fs/cgroup/{,*/}k8s.io 2>/dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

programs=$("$here/programs.sh")
# The variables with which `cargo test` runs us would make it build some crates anew.
unset OUT_DIR "${!CARGO_PKG_@}" "${!CARGO_MANIFEST_@}"
(cd "$repository" && cargo build --release --bin cleanslate --example twin)
images=$("$here/image.sh")

export SCRATCH=$scratch PROGRAMS=$programs IMAGES=$images
# When the first process in the namespaces ends, the kernel ends all others there, and the mounts with them.
unshare --net --mount --pid --ipc --fork --kill-child --propagation private "$here/node.sh"

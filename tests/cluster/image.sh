#!/bin/bash
# Builds what the node runs: the image of the top-level Dockerfile, and one of busybox for the pods' sandboxes
# and containers. Prints the archive that holds both; everything else goes to stderr.
set -euo pipefail

# podman leaves mounts behind; in a mount namespace of their own they go with this script.
[ "${OWN_MOUNTS:-}" ] || OWN_MOUNTS=1 exec unshare --mount "$0" "$@"

cd "$(dirname "$0")/../.."
base=docker.io/library/debian:bookworm-slim
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cleanslate/cluster
mkdir -p "$cache" target/cluster
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A storage of our own, so that the machine's images are not touched. No registry is asked: `--pull=never`.
podman() { command podman --root "$cache/podman" --runroot "$cache/podman-run" --runtime /usr/sbin/runc "$@" >&2; }
# Only what goes wrong is worth reading.
build() { podman build --isolation chroot --pull=never --quiet "$@" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }; }

# The Dockerfile's base image comes from a container registry, which a test machine may not reach.
if ! podman image exists "$base"; then
    echo "image.sh: making $base with debootstrap" >&2
    debootstrap --variant=minbase bookworm "$work/base" >"$work/debootstrap.log" 2>&1 ||
        { tail -20 "$work/debootstrap.log" >&2; exit 1; }
    rm -rf "$work"/base/var/{cache/apt,lib/apt/lists}
    tar -C "$work/base" -cf "$work/base.tar" .
    podman import --quiet "$work/base.tar" "$base"
fi

build --tag localhost/cleanslate:dev .

mkdir "$work/busybox"
cp /bin/busybox "$work/busybox/"
build --tag localhost/busybox:dev --file - "$work/busybox" <<'DOCKERFILE'
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
CMD ["/bin/sleep", "infinity"]
DOCKERFILE

podman image prune --force # what an earlier binary left
rm -f target/cluster/images.tar
podman save --quiet --multi-image-archive --output "$work/images.tar" localhost/cleanslate:dev localhost/busybox:dev
mv "$work/images.tar" target/cluster/images.tar
echo "$PWD/target/cluster/images.tar"

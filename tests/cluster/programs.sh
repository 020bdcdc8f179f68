#!/bin/bash
# Builds the programs of a real node with Go, from the module proxy: Kubernetes, containerd and crictl.
# Prints the folder that holds them; everything else goes to stderr. Eight minutes on two cores when
# nothing is cached, at once when that folder is there.
set -euo pipefail

kubernetes=1.37.2
containerd=2.4.2
crictl=1.37.0

cache=${XDG_CACHE_HOME:-$HOME/.cache}/cleanslate/cluster
folder=$cache/kubernetes-$kubernetes-containerd-$containerd-crictl-$crictl
if [ -d "$folder" ]; then
    echo "$folder"
    exit
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/building.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/kubernetes"
say() { echo "programs.sh: $*, $SECONDS s" >&2; }

# `k8s.io/kubernetes` cannot be installed by `go install …@version`: it requires its own libraries at
# v0.0.0, so a module of our own has to say which version that is.
cd "$work/kubernetes"
upstream=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
{
    echo "module node"
    grep '^go ' "$upstream"
    echo "require k8s.io/kubernetes v$kubernetes"
    sed -n "s/^\s*\(k8s.io\/[a-z0-9-]*\) => .*/replace \1 => \1 v0.${kubernetes#1.}/p" "$upstream"
} >go.mod
# Without these kubectl refuses the server, and the kubelet says v0.0.0.
version=k8s.io/component-base/version
IFS=. read -r major minor _ <<<"$kubernetes"
stamp="-X $version.gitVersion=v$kubernetes -X $version.gitMajor=$major -X $version.gitMinor=$minor"
for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl kube-proxy; do
    go build -mod=mod -trimpath -ldflags "-s -w $stamp" -o "$work/bin/" "k8s.io/kubernetes/cmd/$program" >&2
    say "$program $kubernetes"
done

export GOBIN=$work/bin
for program in containerd containerd-shim-runc-v2 ctr; do
    go install -trimpath -ldflags "-s -w" \
        "github.com/containerd/containerd/v2/cmd/$program@v$containerd" >&2
done
say "containerd $containerd"
go install -trimpath -ldflags "-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=$crictl" \
    "sigs.k8s.io/cri-tools/cmd/crictl@v$crictl" >&2
say "crictl $crictl"

# Another run may have been faster; its programs are the same.
mv -T "$work/bin" "$folder" 2>/dev/null || [ -d "$folder" ]
echo "$folder"

#!/bin/bash
# The inside of up.sh: starts the node's programs, in their usual places, and waits for the end of its input.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
address=10.88.0.1
server=https://$address:6443
PATH=$PROGRAMS:$PATH
say() { echo "node: $*, $SECONDS s"; }
# await SECONDS WHAT COMMAND…: until the command succeeds.
await() {
    local limit=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $limit ] || { say "gave up on $what: the logs tell why" >&2; exit 1; }
        sleep 0.2
    done
    say "$what"
}
start() {
    local name=$1
    shift
    "$@" >>"/var/log/$name.log" 2>&1 &
}

# Our id as the machine sees it, for enter.sh: /proc is still the machine's here.
read -r pid _ </proc/self/stat
echo "$pid" >"$SCRATCH/pid"
mount -t proc proc /proc
# Private versions of the folders that Kubernetes uses, so that every path is the one of a real node.
for folder in run var/lib var/log; do
    mkdir -p "$SCRATCH/$folder"
    mount --bind "$SCRATCH/$folder" "/$folder"
done
mkdir -p /run/lock /var/lib/cluster
cp -r "$here/config/." /var/lib/cluster/
cd /var/lib/cluster

# The kernel of a test machine may have no dummy interface, and the kubelet refuses a loopback address.
ip link set lo up
ip link add node0 type veth peer name node1
ip link set node1 up
ip addr add $address/24 dev node0
ip link set node0 up
ip route add default dev node0
sysctl -qw net.ipv4.ip_forward=1

"$here/pki.sh" $address $server

start etcd etcd --data-dir /var/lib/etcd --unsafe-no-fsync
start apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --advertise-address=$address \
    --tls-cert-file=apiserver.crt --tls-private-key-file=apiserver.key --client-ca-file=ca.crt \
    --kubelet-client-certificate=admin.crt --kubelet-client-key=admin.key \
    --kubelet-certificate-authority=ca.crt --kubelet-preferred-address-types=InternalIP \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=accounts.pub \
    --service-account-signing-key-file=accounts.key --service-cluster-ip-range=10.96.0.0/16 \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true
start containerd containerd --config containerd.toml

await 60 "containerd answers" ctr version
ctr --namespace k8s.io images import "$IMAGES" >>/var/log/import.log 2>&1
say "images imported"
await 60 "the API server is ready" kubectl --kubeconfig admin.kubeconfig get --raw /readyz

identity() { echo "--kubeconfig=$1.kubeconfig" "--authentication-kubeconfig=$1.kubeconfig" "--authorization-kubeconfig=$1.kubeconfig"; }
# shellcheck disable=SC2046 # the identity is three words
start controllers kube-controller-manager $(identity controllers) --leader-elect=false \
    --service-account-private-key-file=accounts.key --root-ca-file=ca.crt \
    --use-service-account-credentials=true --controllers='*,-nodeipam'
# shellcheck disable=SC2046
start scheduler kube-scheduler $(identity scheduler) --leader-elect=false
# In-cluster clients reach the API server by its service address.
start proxy kube-proxy --kubeconfig=proxy.kubeconfig --proxy-mode=nftables --hostname-override=node1 \
    --cluster-cidr=10.244.0.0/24 --conntrack-max-per-core=0 \
    --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0

# A killed kubelet comes back, as it does under systemd. V(4) tells of each call to a plugin.
keep_kubelet() {
    while true; do
        kubelet --config=kubelet.yaml --kubeconfig=node1.kubeconfig --hostname-override=node1 \
            --node-ip=$address --v=4 &
        echo $! >/run/kubelet.pid
        wait $! || true
    done
}
start kubelet keep_kubelet

ready() { kubectl --kubeconfig admin.kubeconfig get node node1 | grep -q ' Ready'; }
await 60 "node1 is ready" ready
touch "$SCRATCH/ready"
# Containers' shims become our children; bash reaps them meanwhile.
while read -r _; do :; done

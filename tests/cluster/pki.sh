#!/bin/bash
# pki.sh ADDRESS SERVER: the certificates and kubeconfigs of a cluster, in the current folder.
set -euo pipefail
exec 2>pki.log

address=$1 server=$2
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }

key ca
openssl req -x509 -new -key ca.key -out ca.crt -days 30 -subj /CN=cluster
openssl genrsa -out accounts.key 2048
openssl rsa -in accounts.key -pubout -out accounts.pub

# certificate NAME SUBJECT [ALTERNATIVE NAMES]
certificate() {
    key "$1"
    {
        echo "extendedKeyUsage=clientAuth,serverAuth"
        [ -z "${3:-}" ] || echo "subjectAltName=$3"
    } >"$1.extensions"
    openssl req -new -key "$1.key" -subj "$2" |
        openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile "$1.extensions" -out "$1.crt"
}
certificate apiserver /CN=kube-apiserver \
    "IP:$address,IP:10.96.0.1,IP:127.0.0.1,DNS:kubernetes.default.svc"
certificate node1 /O=system:nodes/CN=system:node:node1 "IP:$address,DNS:node1"
certificate admin /O=system:masters/CN=admin
certificate controllers /CN=system:kube-controller-manager
certificate scheduler /CN=system:kube-scheduler
certificate proxy /CN=system:kube-proxy

for user in node1 admin controllers scheduler proxy; do
    cat >$user.kubeconfig <<YAML
apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: "$server", certificate-authority: $PWD/ca.crt}}]
users: [{name: $user, user: {client-certificate: $PWD/$user.crt, client-key: $PWD/$user.key}}]
contexts: [{name: $user, context: {cluster: here, user: $user}}]
current-context: $user
YAML
done

#!/bin/bash
# boot.sh TEST CLEANSLATE SCRATCH [NAME]: boots a real kernel in QEMU, without KVM, and runs the program
# TEST in it, with CLEANSLATE, which it tests, beside it; of its scenarios only NAME. The console is
# standard output. SCRATCH, a folder to be made, has `host`, which the guest sees as /host: there it
# finds, from outside, its devices' memory and what QEMU says was written to their config spaces.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
usage="usage: boot.sh TEST CLEANSLATE SCRATCH [NAME]"
test=${1:?$usage} cleanslate=${2:?$usage} scratch=${3:?$usage} only=${4:-}
kernel=$("$here/kernel.sh")
mkdir "$scratch" "$scratch/host"
cd "$scratch"

# put FILE…: into the initramfs, with the libraries that they are linked with.
mkdir -p root/{bin,proc,sys,dev,modules,lib64}
put() {
    local file
    for file in "$@"; do
        cp "$file" root/bin/
        { ldd "$file" 2>/dev/null || true; } | sed -nE 's#^[^/]*(/[^ ]+).*#\1#p' | while read -r library; do
            mkdir -p "root$(dirname "$library")"
            cp -L "$library" "root$library"
        done
    done
}
put /bin/busybox /usr/bin/strace "$cleanslate" "$test"
mv "root/bin/$(basename "$test")" root/bin/kernel-test
strip root/bin/{cleanslate,kernel-test}
cp "$here/init" root/init
cp "$here/trace.sh" root/bin/

# modules FILE NAME…: kernel modules and what they depend on, in order.
version=$(basename "$kernel"/lib/modules/*)
modules() {
    local file=root/modules/$1 name module
    for name in "${@:2}"; do
        modprobe --dirname "$kernel" --set-version "$version" --show-depends "$name"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r module; do
        cp "$module" root/modules/
        echo "/modules/$(basename "$module")"
    done >"$file"
}
modules boot 9p 9pnet_virtio virtio_pci
modules nvme nvme
modules aer_inject aer_inject
(cd root && find . | cpio --create --format=newc --quiet) >initramfs
rm -r root

truncate --size 16M host/disk.mem
truncate --size 16M host/shared.mem
# memory NAME, drive NAME: what stands behind a device.
memory() { echo -object "memory-backend-file,id=$1,size=16M,mem-path=host/$1.mem,share=on"; }
drive() { echo -drive "if=none,id=$1,driver=null-co,size=67108864"; }
# port NUMBER: a root port with a bus of that number, at 00:1NUMBER.0.
port() { echo -device "pcie-root-port,id=port$1,chassis=1,slot=$1,addr=1$((${1} - 1)).0"; }

# The kernel goes when whoever watches it has gone.
# shellcheck disable=SC2046 # they are words
exec setpriv --pdeathsig KILL qemu-system-x86_64 \
    -machine q35 -accel tcg,thread=multi,tb-size=256 -cpu max -smp 2 -m 640 \
    -nodefaults -no-reboot -display none -serial stdio \
    -chardev socket,id=guest,path=monitor,server=on,wait=off -serial chardev:guest \
    -chardev socket,id=monitor,path=monitor -mon chardev=monitor,mode=control \
    -trace pci_cfg_write -D host/qemu.log \
    -kernel "$kernel"/boot/vmlinuz-* -initrd initramfs \
    -append "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on only=$only" \
    -device VGA,addr=1.0,vgamem_mb=8 \
    $(drive boot) -device nvme,addr=2.0,drive=boot,serial=boot \
    -netdev user,id=net,restrict=on -device virtio-net-pci,addr=3.0,netdev=net \
    -fsdev local,id=host,path=host,security_model=none -device virtio-9p-pci,addr=4.0,fsdev=host,mount_tag=host \
    -device edu,addr=5.0 \
    $(port 1) -device virtio-vga,id=card,bus=port1,aer=on \
    $(port 2) $(memory shared) -device ivshmem-plain,id=shared,bus=port2,memdev=shared \
    $(port 3) $(memory disk) $(drive tested) -device nvme,id=disk,bus=port3,drive=tested,serial=disk,pmrdev=disk

#!/bin/busybox sh
# The first process of the virtual machine that vm.py boots. It makes two soft-RoCE devices, runs the
# command over a copy of the host's root file system that forgets what is written, and powers off.
#
# Devices: rxe0 on veth0 with 10.99.0.1, rxe1 on veth1 with 10.99.0.2; the two interfaces are the ends of
# one cable, so `ip link` and `tc netem` act on what the devices send each other. rxe2 and rxe3 are at the
# ends of another cable, veth2 and veth3, with 10.99.1.1 and 10.99.1.2.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/sbin:/usr/bin:/sbin
root=/root

fail() {
  echo "vm: $*" >/dev/ttyS0
  poweroff -f
}

# The device of the port with a name, of those that vm.py has given to the machine.
port() {
  for found in /sys/class/virtio-ports/*; do
    [ "$(cat "$found/name")" != "$1" ] || echo "/dev/${found##*/}"
  done
}

share() { mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$3" "$1" "$2"; }

mount -t proc proc /proc
grep -q vm_probe /proc/cmdline && { echo "vm: probe passed"; poweroff -f; }
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module"; done </modules/order

share root /host ro,cache=loose || fail "no root file system"
mount -t tmpfs -o mode=755 writes /writes
mkdir /writes/upper /writes/work
mount -t overlay -o lowerdir=/host,upperdir=/writes/upper,workdir=/writes/work overlay $root
for folder in proc sys dev run; do mkdir -p $root/$folder; done
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount -t devtmpfs dev $root/dev
mkdir -p $root/dev/shm $root/dev/pts
mount -t devpts devpts $root/dev/pts
mount -t tmpfs -o mode=1777 shm $root/dev/shm
mount -t tmpfs -o mode=755 run $root/run
ln -s /proc/self/fd $root/dev/fd
ln -s fd/0 $root/dev/stdin
ln -s fd/1 $root/dev/stdout
ln -s fd/2 $root/dev/stderr
folder=$(sed -n 's/.*vm_folder=\([^ ]*\).*/\1/p' /proc/cmdline)
hostname rdma
echo "127.0.0.1 rdma" >>$root/etc/hosts

# Both addresses belong to this machine, and the kernel answers for an address of its own only when told to.
for interface in all default; do
  echo 1 >/proc/sys/net/ipv4/conf/$interface/accept_local
  echo 0 >/proc/sys/net/ipv4/conf/$interface/rp_filter
  echo 1 >/proc/sys/net/ipv4/conf/$interface/arp_ignore
  echo 0 >/proc/sys/net/ipv6/conf/$interface/accept_dad
done
PATH=$PATH chroot $root /bin/bash -e <<'END' || fail "no RDMA devices"
ip link set lo up
for i in 0 2; do
  ip link add veth$i mtu 4200 type veth peer name veth$((i + 1)) mtu 4200
done
for i in 0 1 2 3; do
  ip address add 10.99.$((i / 2)).$((i % 2 + 1))/24 dev veth$i
  ip link set veth$i up
done
for i in 0 1 2 3; do
  rdma link add rxe$i type rxe netdev veth$i
  # The kernel adds the GID of the address a little later.
  for try in {1..100}; do
    ! grep -q ffff:0a63 /sys/class/infiniband/rxe$i/ports/1/gids/1 || break
    sleep 0.05
  done
done
END

# A port can be opened once only, and the command's processes may open their outputs again: so they get a pipe.
{ chroot $root /bin/bash "$folder/command" </dev/null 2>&1; echo $? >/status; } | cat >"$(port out)"
cat /status >"$(port status)"
poweroff -f

#!/bin/busybox sh
# The guest's first and only program of its own: devices, modules, network, the job, power-off.
/bin/busybox mkdir -p /usr/bin /usr/sbin /sbin /root /run
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o size=1g tmp /tmp
for module in /lib/*.ko; do insmod "$module" || echo "insmod $module failed"; done
echo 3 > /proc/sys/kernel/printk
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
echo "@booted $(cut -d' ' -f1 /proc/uptime) $(uname -r)"
tar xf /dev/vda -C /
sh /job.sh
echo "@ended $?"
[ -e /direct ] || tar cf /dev/vdb -C /results .
sync
echo o > /proc/sysrq-trigger
sleep 5
poweroff -f

# one_host.sh FOLDER NAME ADDRESS/PREFIX CHECKOUT: becomes a host, in namespaces that are its own already; sshd is its process 1.
# FOLDER holds machine-id, sshd_config, host_key, id.pub, and an empty folder `root`.
set -e
folder=$1 name=$2 address=$3 checkout=$4
hostname "$name"

# its cable comes from outside, once this process is there to receive it
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip link set lo up
ip address add "$address" dev eth0
ip link set eth0 up

# a writable root over the machine's own; the upper layer must not lie within the lower one, hence tmpfs
mount -t tmpfs tmpfs "$folder/root"
cd "$folder/root"
mkdir upper work new
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/root/upper,workdir=$folder/root/work" new
cd new
mount -t proc proc proc
mount --rbind /dev dev
mount --make-rprivate dev
mount -t tmpfs tmpfs dev/shm # with a shared one SGLang takes two hosts for one, and hangs
mount -t sysfs sysfs sys 2>/dev/null || mount --rbind /sys sys
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir run/sshd
mkdir srv/shared
mount --bind "${folder%/*}/shared" srv/shared # one folder of all hosts, as an NFS is
case $checkout in
/tmp/* | /run/*) # hidden by the host's own; servers and models of the tests lie in it
    mkdir -p "./$checkout"
    mount --bind "$checkout" "./$checkout"
    mount -o remount,ro,bind "./$checkout"
    ;;
esac

cp "$folder/machine-id" etc/machine-id
cp "$folder/sshd_config" "$folder/host_key" "$folder/id.pub" etc/ssh/
printf '%s\n' "$name" >etc/hostname
printf '127.0.0.1 localhost\n%s %s\n' "${address%/*}" "$name" >etc/hosts
# a home without start-up files; the machine's own may be slow, and print
mkdir home/op
sed -i 's|^\(root:[^:]*:[^:]*:[^:]*:[^:]*\):.*|\1:/home/op:/bin/sh|' etc/passwd

mkdir .old
pivot_root . .old
umount -l /.old
exec /usr/sbin/sshd -D -e -f /etc/ssh/sshd_config

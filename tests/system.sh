#!/bin/sh
# Install what the tests need of the system: where root, by apt; where not, say what is missing.
set -eu
packages="openssh-server openssh-client rsync iproute2 nftables util-linux e2fsprogs xfsprogs chromium"
missing=""
for pair in sshd:openssh-server ssh:openssh-client rsync:rsync ip:iproute2 nft:nftables unshare:util-linux \
    mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs chromium:chromium; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed, so tests that need them are skipped:$missing" >&2
    exit 0
fi
apt-get update -qq
# shellcheck disable=SC2086 # a list of names
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null

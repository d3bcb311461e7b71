# Runs each case in a directory of its own on the mount and tells its verdict.
now() { cut -d' ' -f1 /proc/uptime; }
for case in /cases/*.sh; do
    name=$(basename "$case" .sh)
    mkdir -p "/mnt/work/$name"
    cd "/mnt/work/$name" || continue
    from=$(now)
    timeout 300 sh -eux -c ". /refuse.sh; . $case" > /tmp/output 2>&1
    code=$?
    took=$(awk "BEGIN { printf \"%.1f\", $(now) - $from }")
    cd /
    if [ $code = 0 ]; then
        echo "@ok $name $took $(grep '^note: ' /tmp/output | tail -n 1 | cut -c 7-)"
    else
        echo "@no $name $took exit $code: $(tail -c 500 /tmp/output | tr '\n\r' '  ')"
    fi
done
# timeout(1) leaves a watcher in the directory for a moment.
for n in 1 2 3 4 5 6 7 8; do umount /mnt && break; sleep 1; done
if grep -q ' /mnt ' /proc/mounts; then echo "@no umount 0 busy"; else echo "@ok umount 0"; fi

# With caches, the attributes of 3,000 files come with their names, not with a LOOKUP for each.
port=$(awk '$2 == "/mnt" { print $4 }' /proc/mounts | tr ',' '\n' | grep '^port=')
mkdir -p /tmp/cached
mount -t nfs -o "vers=3,proto=tcp,mountproto=tcp,$port,mount$port,nolock,addr=10.0.2.2" \
    10.0.2.2:/listed /tmp/cached
calls() { awk -v name="$1:" '$1 == name { sum += $2 } END { print sum + 0 }' /proc/self/mountstats; }
lookup=$(calls LOOKUP) getattr=$(calls GETATTR) plus=$(calls READDIRPLUS)
count=$(/usr/bin/ls -l /tmp/cached | grep -c ' entry-')
lookup=$(($(calls LOOKUP) - lookup)) getattr=$(($(calls GETATTR) - getattr))
plus=$(($(calls READDIRPLUS) - plus))
umount /tmp/cached
echo "note: $lookup LOOKUP, $getattr GETATTR, $plus READDIRPLUS"
[ "$count" = 3000 ]
[ "$lookup" -lt 30 ]

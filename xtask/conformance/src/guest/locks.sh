# A lock held by one process keeps the other out, and is gone with its holder.
: > file
flock file sleep 3 &
sleep 1
refuse flock -n file true
flock -n -s file true && exit 1
wait
flock -n file true
flock -s file sleep 2 &
sleep 1
flock -n -s file true
refuse flock -n file true
wait
flock -n file true

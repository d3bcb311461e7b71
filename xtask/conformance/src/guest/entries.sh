# A directory of 10,000 entries: each name once, also while others come and go. (busybox's own ls
# asks for the attributes of each.)
[ "$(/usr/bin/ls -f /mnt/many | grep '^entry-' | sort -u | wc -l)" = 10000 ]
(for n in $(seq 300); do : > /mnt/many/visitor-$n; rm /mnt/many/visitor-$n; done) &
/usr/bin/ls -f /mnt/many | grep '^entry-' | sort > /tmp/names
wait
[ "$(wc -l < /tmp/names)" = 10000 ]
[ "$(uniq /tmp/names | wc -l)" = 10000 ]
echo "note: 10,000 names twice"

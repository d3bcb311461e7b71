# A directory of 100,000 entries: each name once, also while others come and go. (busybox's own ls
# asks for the attributes of each.)
[ "$(/usr/bin/ls -f /mnt/many | grep '^entry-' | sort -u | wc -l)" = 100000 ]
(for n in $(seq 300); do : > /mnt/many/visitor-$n; rm /mnt/many/visitor-$n; done) &
/usr/bin/ls -f /mnt/many | grep '^entry-' | sort > /tmp/names
wait
[ "$(wc -l < /tmp/names)" = 100000 ]
[ "$(uniq /tmp/names | wc -l)" = 100000 ]
echo "note: 100,000 names twice"

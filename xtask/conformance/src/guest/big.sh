# A sparse file of more than 4 GiB: offsets do not wrap, holes cost nothing.
head -c 70000 /dev/urandom > piece
dd if=piece of=big bs=70000 seek=80000 conv=notrunc 2>/dev/null
[ "$(stat -c %s big)" = 5600070000 ]
dd if=big bs=70000 skip=80000 2>/dev/null | cmp - piece
[ "$(head -c 1000000 big | tr -d '\0' | wc -c)" = 0 ]
[ "$(stat -c %b big)" -lt 1000 ]
truncate -s 4294967297 big
[ "$(stat -c %s big)" = 4294967297 ]
head -c 8000000 /dev/urandom > /tmp/eight
cp /tmp/eight eight
cmp eight /tmp/eight
rm /tmp/eight
echo "note: 5.6 GB sparse, 8 MB compared"

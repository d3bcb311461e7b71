# Shorter, longer, and by opening.
echo 0123456789 > file
truncate -s 4 file
[ "$(cat file)" = 0123 ]
truncate -s 8 file
[ "$(od -An -c file | tr -d ' \n')" = '0123\0\0\0\0' ]
: > file
[ "$(stat -c %s file)" = 0 ]
printf abcdef > file
printf XY | dd of=file bs=1 seek=2 conv=notrunc 2>/dev/null
[ "$(cat file)" = abXYef ]
sync

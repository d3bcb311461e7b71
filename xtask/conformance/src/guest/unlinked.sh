# A file that is open outlives its name.
echo before > file
exec 3<> file
rm file
refuse [ -e file ]
echo rather-longer >&3
[ "$(stat -L -c %s /proc/self/fd/3)" = 14 ]
exec 3<&-
echo again > file
exec 5< file
rm file
echo new > file
[ "$(cat <&5)" = again ]
[ "$(cat file)" = new ]
exec 5<&-

# Mode, owner, times, and what stat says about them afterwards.
echo hello > file
chmod 6751 file
[ "$(stat -c %a file)" = 6751 ]
chown 1001:1002 file
[ "$(stat -c %u:%g file)" = 1001:1002 ]
[ "$(stat -c %a file)" = 751 ]
touch -d '2001-02-03 04:05:06' file
[ "$(stat -c %Y file)" = "$(date -d '2001-02-03 04:05:06' +%s)" ]
[ "$(stat -c %s file)" = 6 ]
[ "$(stat -c %h file)" = 1 ]
mkdir -m 1777 dir
[ "$(stat -c '%a %F' dir)" = "1777 directory" ]
[ "$(stat -c %h dir)" = 2 ]
df . | tail -n 1 | awk '{ exit !($2 > 1000 && $4 > 1000) }'
stat -f -c '%s %b %f %l' . | awk '{ exit !($1 >= 512 && $2 > 0 && $4 == 255) }'

# What a user may not do fails, by the user that asks and not by the one that mounted.
as() { user=$1; shift; su -s /bin/sh "$user" -c "$*"; }
echo secret > mine
chmod 600 mine
refuse as tests cat "$PWD/mine"
refuse as tests "echo x >> $PWD/mine"
mkdir -m 777 shared
as tests "echo theirs > $PWD/shared/file"
[ "$(stat -c %u:%g shared/file)" = 2:2 ]
as tests "chmod 640 $PWD/shared/file"
refuse as tests2 cat "$PWD/shared/file"
refuse as tests2 chmod 777 "$PWD/shared/file"
refuse as tests chown 0 "$PWD/shared/file"
chmod 1777 shared
refuse as tests2 rm -f "$PWD/shared/file"
[ -f shared/file ]
mkdir -m 700 closed
: > closed/inside
refuse as tests ls "$PWD/closed"
refuse as tests stat "$PWD/closed/inside"
as tests "rm $PWD/shared/file"

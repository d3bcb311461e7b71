# A user whom the host does not know has a group of the same number and no rights of others.
as() { su -s /bin/sh stranger -c "$*"; }
mkdir -m 777 open
as "echo hello > $PWD/open/file"
[ "$(stat -c %u:%g open/file)" = 4242:4242 ]
mkdir -m 700 closed
refuse as "echo hello > $PWD/closed/file"

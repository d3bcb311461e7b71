# Hard and symbolic links, also dangling, long and absolute ones.
echo one > file
ln file second
[ "$(stat -c %h file)" = 2 ]
[ "$(stat -c %i file)" = "$(stat -c %i second)" ]
echo two >> second
[ "$(cat file)" = "$(printf 'one\ntwo')" ]
rm file
[ "$(stat -c %h second)" = 1 ]
ln -s second soft
[ "$(cat soft)" = "$(cat second)" ]
ln -s nowhere dangling
refuse cat dangling
[ "$(readlink dangling)" = nowhere ]
ln -s /etc/passwd absolute
cmp absolute /etc/passwd
long=$(head -c 3000 /dev/zero | tr '\0' 'x')
ln -s "$long" long
[ "$(readlink long)" = "$long" ]
mkdir dir
refuse ln dir hard
refuse ln second soft

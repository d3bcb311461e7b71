# Extended attributes: set, read, list, replace, remove, and what is not there. An empty value is
# not among them: in 9P2000.L a size of 0 removes the attribute.
: > file
setfattr -n user.colour -v green file
[ "$(getfattr --only-values -n user.colour file)" = green ]
setfattr -n user.colour -v blue file
setfattr -n user.second -v 2 file
[ "$(getfattr -d file | grep -c '^user')" = 2 ]
setfattr -x user.colour file
refuse getfattr -n user.colour file
value=$(head -c 2000 /dev/zero | tr '\0' v)
setfattr -n user.large -v "$value" file
[ "$(getfattr --only-values -n user.large file)" = "$value" ]

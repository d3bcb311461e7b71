# Rename over files, over directories, into other directories, and into oneself.
echo a > a
echo b > b
mv a b
[ "$(cat b)" = a ]
refuse [ -e a ]
mkdir from to
echo c > from/c
mv from/c to/d
[ "$(cat to/d)" = c ]
mv to from/
[ "$(cat from/to/d)" = c ]
refuse mv from from/to/
mkdir empty
mv -T empty other 2>/dev/null || mv empty other
[ -d other ]
exec 3< b
mv b moved
[ "$(cat <&3)" = a ]
exec 3<&-
[ "$(cat moved)" = a ]

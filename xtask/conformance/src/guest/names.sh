# Names that are not UTF-8, that have blanks, and that are as long as names may be.
bytes=$(printf 'caf\351 \001\377')
echo bytes > "$bytes"
[ "$(cat "$bytes")" = bytes ]
[ "$(ls | head -n 1 | wc -c)" = 8 ] || [ "$(ls -f | grep -c caf)" = 1 ]
echo blank > ' a  b '
[ "$(cat ' a  b ')" = blank ]
long=$(head -c 255 /dev/zero | tr '\0' 'n')
echo long > "$long"
[ "$(cat "$long")" = long ]
refuse touch "${long}n"
echo star > '*?['
[ "$(cat '*?[')" = star ]
echo three > ...
[ "$(cat ...)" = three ]
mkdir -p a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t
echo deep > a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/file
[ "$(cat a/b/c/d/e/f/g/../g/h/i/j/k/l/m/n/o/p/q/r/s/t/file)" = deep ]

# Eight processes write and read at once; nobody gets another's bytes.
one() {
    head -c 1000000 /dev/urandom > /tmp/p$1
    cp /tmp/p$1 p$1
    cmp p$1 /tmp/p$1
    for n in $(seq 8); do echo "$1 $n" > p$1.$n; [ "$(cat p$1.$n)" = "$1 $n" ]; done
    rm /tmp/p$1
}
for who in 1 2 3 4 5 6 7 8; do (one $who; : > done$who) & done
wait
[ "$(ls -d done* | wc -l)" = 8 ]

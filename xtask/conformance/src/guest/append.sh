# Two writers that append do not overwrite each other.
for n in 1 2 3; do echo "line $n" >> log; done
[ "$(cat log)" = "$(printf 'line 1\nline 2\nline 3')" ]
(for n in $(seq 200); do echo "left  $n" >> both; done) &
for n in $(seq 200); do echo "right $n" >> both; done
wait
[ "$(wc -l < both)" = 400 ]
[ "$(grep -c '^left ' both)" = 200 ]
echo "note: 400 lines by two writers"

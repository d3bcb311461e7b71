# Pipes and devices are made and seen as such; their data is the guest's own affair.
mkfifo pipe
[ "$(stat -c %F pipe)" = fifo ]
(echo through > pipe) &
[ "$(cat pipe)" = through ]
wait
mknod null c 1 3
[ "$(stat -c '%F %t:%T' null)" = "character special file 1:3" ]
mknod block b 7 0
[ "$(stat -c '%F %t:%T' block)" = "block special file 7:0" ]
rm pipe null block

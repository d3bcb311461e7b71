# Mounts one server after the other and does the same with each. Says `@NUMBER @ok STEP` or
# `@NUMBER @no STEP WHY`.
step() {
    name=$1; shift
    timeout $limit sh -c "$1" > /tmp/output 2>&1
    code=$?
    [ $code = 0 ] && echo "@$number @ok $name" && return
    [ -s /tmp/output ] || echo "exit code $code" > /tmp/output
    echo "@$number @no $name $(tail -c 200 /tmp/output | tr '\n' ' ')"
    return 1
}
pair() {
    number=$1 limit=$3 base=/mnt$4
    made=$base/made-linux-$number moved=$base/moved-linux-$number
    step attach "mount -t 9p -o $2 10.0.2.2 /mnt" || return
    step list "count=\$(ls $base/list | grep -c ^entry-); echo \$count names; [ \$count = 200 ]"
    step read "[ \"\$(md5sum < $base/big)\" = \"\$(cat /big.md5)  -\" ]"
    step nested "[ \"\$(md5sum < $base/$(cat /nested))\" = \"\$(cat /deep.md5)  -\" ]"
    if step create ": > $made"; then
        step write "cat /written > $made"
        step back "cmp /written $made"
        step rename "mv $made $moved && [ -e $moved ] && [ ! -e $made ]"
        [ -e "$moved" ] || moved=$made
        step remove "rm $moved && [ ! -e $moved ]"
    fi
    umount /mnt || umount -l /mnt
}

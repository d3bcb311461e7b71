# Somebody changes a file on the host; the next open sees it.
echo 'from the guest' > mailbox
echo '@host append work/underneath/mailbox' > /dev/console
for n in $(seq 50); do
    grep -q 'from the host' mailbox && break
    sleep 0.2
done
[ "$(cat mailbox)" = "$(printf 'from the guest\nfrom the host')" ]

# Runs in namespaces of its own: DIR PROGRAM. Prints a line "@WORD" before each result.
set -eu
dir=$1 program=$2
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir /run/rpcbind /run/logs
cd /run

# Waits for a line that begins with this in a file, while a process runs.
wait_for() {
    until grep -q "^$1" "$2"; do
        kill -0 "$3" || { cat "$2" >&2; exit 1; }
        sleep 0.05
    done
}

serve() {
    "$program" serve "$dir" --9p none --http none --nfs "127.0.0.1:$1" --nfs-portmapper
}

# Starts a server of DIR at a port, with messages in a file, and waits until it serves.
start() {
    "$program" serve "$1" --9p none --http none --nfs "127.0.0.1:$2" --nfs-portmapper > "$3" 2>&1 &
    server=$!
    wait_for nfs "$3" $server
}

# Prints the registered programs, as words with one blank between.
registered() { rpcinfo -p 127.0.0.1 | awk '{ print $1, $2, $3, $4 }'; }

echo @none
serve 20490 2>&1 && exit 1

rpcbind -f &
portmapper=$!
until rpcinfo -p 127.0.0.1 > /dev/null 2>&1; do kill -0 $portmapper; sleep 0.05; done
start "$dir" 20490 logs/first
echo @greeting
grep 'mount -t nfs' logs/first
echo @registered
registered
echo @files
nfs-ls nfs://127.0.0.1/

echo @second
serve 20491 2>&1 && exit 1

echo @user
setpriv --reuid 65534 --regid 65534 --clear-groups \
    "$program" serve "$dir" --9p none --http none --nfs 127.0.0.1:20492 --nfs-portmapper 2>&1 && exit 1

# One that is killed leaves its registration behind.
kill -9 $server
wait $server || true
start "$dir" 20490 logs/third
echo @again
nfs-ls nfs://127.0.0.1/
kill -9 $server
wait $server || true
# The next one has another port.
start "$dir" 20494 logs/fourth
echo @moved
registered
kill $server
wait $server
echo @ended
registered

# A server at another address is found, and registrations of UDP stay.
ip address add 10.9.0.1/24 dev lo
"$program" serve "$dir" --9p none --http none --nfs 10.9.0.1:20497 --nfs-portmapper > logs/other 2>&1 &
other=$!
wait_for nfs logs/other $other
echo @address
serve 20498 2>&1 && exit 1
kill $other
wait $other
start "$dir" 20499 logs/udp
perl -e '
    use Socket;
    socket(S, PF_INET, SOCK_DGRAM, 17) && bind(S, sockaddr_in(700, INADDR_LOOPBACK)) or die $!;
    for my $mapping ([100003, 3, 17, 2049], [100005, 1, 17, 20048]) {
        my $call = pack("N14", 7, 0, 2, 100000, 2, 1, 0, 0, 0, 0, @$mapping);
        send(S, $call, 0, sockaddr_in(111, INADDR_LOOPBACK)) or die $!;
        recv(S, my $reply, 100, 0);
        die "refused" unless unpack("N", substr($reply, -4)) == 1;
    }
'
kill $server
wait $server
echo @udp
registered

"$program" volume create /run/v.volume --size 64M > /dev/null
start /run/v.volume 20495 logs/fifth
echo @volume
registered
kill $server
wait $server

echo @ipv6
"$program" serve "$dir" --9p none --http none --nfs '[::1]:20496' --nfs-portmapper 2>&1 && exit 1
"$program" serve "$dir" --9p none --http none --nfs '[::]:20496' --nfs-portmapper 2>&1 && exit 1
exit 0

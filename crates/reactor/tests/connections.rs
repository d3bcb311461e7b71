//! Connections, signals and time, on both forms.
#![allow(
    unsafe_code,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "tests of the real world"
)]

mod rig;

use base::op::{self, Done, Event, Listener, Op, OpId, Peer, ReceiveBuf, Socket, UNSENT_MAX};
use base::{Block, Buf, Error, Reactor};
use reactor::{Address, Config, Form, World};
use rig::{Rig, on_both};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

fn listen(rig: &mut Rig) -> (Listener, SocketAddr) {
    let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
    match rig.world.listen(&any).unwrap() {
        (listener, Address::Tcp(address)) => (listener, address),
        other => panic!("{other:?}"),
    }
}

fn accept(rig: &mut Rig, listener: Listener) -> (Socket, Peer) {
    match rig.ask(|id| Op::Accept { id, listener, max: 1 }) {
        Done::Accepted(Ok(mut accepted)) => {
            assert_eq!(accepted.len(), 1);
            accepted.remove(0)
        }
        other => panic!("{other:?}"),
    }
}

fn connect(rig: &mut Rig) -> (TcpStream, Socket) {
    let (listener, address) = listen(rig);
    let client = TcpStream::connect(address).unwrap();
    let (socket, _) = accept(rig, listener);
    (client, socket)
}

fn received(done: Done) -> Result<Buf, Error> {
    match done {
        Done::Received(result) => result,
        other => panic!("{other:?}"),
    }
}

fn receive(rig: &mut Rig, socket: Socket, into: Option<Buf>) -> Result<Buf, Error> {
    let into = into.map_or(ReceiveBuf::Default, ReceiveBuf::Append);
    received(rig.ask(|id| Op::Receive { id, socket, into }))
}

#[test]
fn one_accept_brings_all_that_wait_up_to_its_maximum() {
    on_both(|rig| {
        let (listener, address) = listen(rig);
        let clients: Vec<_> = (0..5).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut peers = Vec::new();
        for (max, expected) in [(3, 3), (8, 2)] {
            let done = rig.ask(|id| Op::Accept { id, listener, max });
            let Done::Accepted(Ok(accepted)) = done else { panic!("{done:?}") };
            assert_eq!(accepted.len(), expected);
            peers.extend(accepted.into_iter().map(|(_, peer)| peer));
        }
        let local = |c: &TcpStream| Peer::Network(c.local_addr().unwrap().to_string());
        assert_eq!(peers, clients.iter().map(local).collect::<Vec<_>>());
    });
}

#[test]
fn bytes_come_in_the_reactors_buffers_and_in_ones_own() {
    on_both(|rig| {
        let (mut client, socket) = connect(rig);
        // SAFETY: the descriptor stays open across the call.
        let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(socket.0.try_into().unwrap()) };
        assert!(rustix::net::sockopt::tcp_nodelay(fd).unwrap());
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        client.write_all(b"hello").unwrap();
        assert_eq!(&*receive(rig, socket, None).unwrap(), b"hello");

        let mut buf = Buf::with_room(4, 100);
        buf.extend(b"so far ");
        let id = rig.start(|id| Op::Receive { id, socket, into: ReceiveBuf::Append(buf) });
        assert!(rig.finish_within(id, Duration::from_millis(20)).is_none());
        client.write_all(b"so good").unwrap();
        let buf = received(rig.finish(id)).unwrap();
        assert_eq!((&*buf, buf.headroom()), (&b"so far so good"[..], 4));

        let id = rig.start(|id| Op::Receive { id, socket, into: ReceiveBuf::Default });
        assert!(rig.finish_within(id, Duration::from_millis(20)).is_none());
        let data = vec![7u8; 300_000];
        let writer = thread::spawn(move || {
            client.write_all(&data).unwrap();
            client
        });
        let mut total = received(rig.finish(id)).unwrap().len();
        while total < 300_000 {
            let buf = receive(rig, socket, None).unwrap();
            assert!(!buf.is_empty() && buf.iter().all(|b| *b == 7));
            total += buf.len();
        }
        drop(writer.join().unwrap());
        assert!(receive(rig, socket, None).unwrap().is_empty());
        assert!(receive(rig, socket, None).unwrap().is_empty());
        assert_eq!(
            receive(rig, socket, Some(Buf::with_room(0, 10))).unwrap_err(),
            Error::Disconnected
        );
        rig.world.submit(Op::CloseSocket { socket });
    });
}

#[test]
fn many_buffers_are_gathered_and_long_sends_are_continued() {
    on_both(|rig| {
        let (mut client, socket) = connect(rig);
        let block = Block::from_bytes(&[5; 4096], 4096);
        let piece = |i: u32| match i % 3 {
            0 => Buf::shared(block.clone(), (i % 50) as usize..(i % 700) as usize + 50),
            _ => Buf::from(vec![i as u8; (i % 700) as usize]),
        };
        // More than the kernel accepts at once.
        let data: Vec<Buf> = (0..3000).map(piece).collect();
        let expected: Vec<u8> = data.iter().flat_map(|b| b.to_vec()).collect();
        let huge = vec![9u8; 20 << 20];
        let reader = {
            let total = expected.len() + huge.len();
            thread::spawn(move || {
                let mut got = vec![0; total];
                client.read_exact(&mut got).unwrap();
                (client, got)
            })
        };
        assert!(matches!(rig.ask(|id| Op::Send { id, socket, data }), Done::Sent(Ok(()))));
        assert!(block.is_unshared());
        let data = vec![Buf::from(huge)];
        assert!(matches!(rig.ask(|id| Op::Send { id, socket, data }), Done::Sent(Ok(()))));
        let (mut client, got) = reader.join().unwrap();
        assert!(
            got[..expected.len()] == expected[..] && got[expected.len()..].iter().all(|b| *b == 9)
        );
        assert!(matches!(rig.ask(|id| Op::Send { id, socket, data: vec![] }), Done::Sent(Ok(()))));
        rig.world.submit(Op::Finish { socket });
        assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
    });
}

#[test]
fn sends_that_get_room_at_once_go_on_one_after_the_other() {
    // More than the kernel accepts at once.
    const SIZE: usize = UNSENT_MAX * 2;
    on_both(|rig| {
        let mut clients = Vec::new();
        let mut sends = Vec::new();
        for _ in 0..12 {
            let (client, socket) = connect(rig);
            client.set_nonblocking(true).unwrap();
            clients.push((client, 0));
            let data = vec![Buf::from(vec![5; SIZE])];
            sends.push((rig.start(|id| Op::Send { id, socket, data }), socket));
        }
        // All were tried, and wait.
        assert!(rig.finish_within(sends[11].0, Duration::from_millis(50)).is_none());
        assert_eq!(rig.done_count(), 0);
        let mut piece = vec![0; 1 << 20];
        while clients.iter().any(|(_, got)| *got < SIZE) {
            for (client, got) in &mut clients {
                while let Ok(count) = client.read(&mut piece) {
                    *got += count;
                    if count == 0 {
                        break;
                    }
                }
            }
            let before = rig.done_count();
            rig.wait_until(rig.world.now());
            let done = rig.done_count() - before;
            assert!(done <= 2, "{done} sends of {SIZE} bytes ended in one wait");
        }
        for (send, socket) in sends {
            assert!(matches!(rig.finish(send), Done::Sent(Ok(()))));
            rig.world.submit(Op::CloseSocket { socket });
        }
    });
}

#[test]
fn a_hangup_completes_what_is_outstanding() {
    on_both(|rig| {
        let (_client, socket) = connect(rig);
        let receive = rig.start(|id| Op::Receive { id, socket, into: ReceiveBuf::Default });
        let data = vec![Buf::from(vec![0; 50 << 20])];
        let send = rig.start(|id| Op::Send { id, socket, data });
        assert!(rig.finish_within(send, Duration::from_millis(30)).is_none());
        rig.world.submit(Op::Hangup { socket });
        assert!(matches!(rig.finish(receive), Done::Received(Err(Error::Disconnected))));
        assert!(matches!(rig.finish(send), Done::Sent(Err(Error::Disconnected))));
        rig.world.submit(Op::CloseSocket { socket });
    });
}

#[test]
fn a_send_to_nobody_fails() {
    on_both(|rig| {
        let (client, socket) = connect(rig);
        drop(client);
        let mut result = Ok(());
        for _ in 0..100 {
            let data = vec![Buf::from(vec![0; 1000])];
            let Done::Sent(sent) = rig.ask(|id| Op::Send { id, socket, data }) else { panic!() };
            result = sent;
            if result.is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(result, Err(Error::Disconnected));
    });
}

#[test]
fn a_receive_and_an_accept_can_be_cancelled() {
    on_both(|rig| {
        let (listener, address) = listen(rig);
        let accept = rig.start(|id| Op::Accept { id, listener, max: 1 });
        assert!(rig.finish_within(accept, Duration::from_millis(10)).is_none());
        rig.world.submit(Op::Cancel { id: accept });
        assert!(matches!(rig.finish(accept), Done::Accepted(Err(Error::Cancelled))));

        let mut client = TcpStream::connect(address).unwrap();
        let (socket, peer) = self::accept(rig, listener);
        assert_eq!(peer, Peer::Network(client.local_addr().unwrap().to_string()));
        let behind = ReceiveBuf::Append(Buf::with_room(0, 10));
        for into in [ReceiveBuf::Default, ReceiveBuf::UpTo(10), behind] {
            let id = rig.start(|id| Op::Receive { id, socket, into });
            rig.world.submit(Op::Cancel { id });
            assert!(matches!(rig.finish(id), Done::Received(Err(Error::Cancelled))));
        }
        client.write_all(b"x").unwrap();
        assert_eq!(&*receive(rig, socket, None).unwrap(), b"x");
    });
}

#[test]
fn a_receive_up_to_a_number_of_bytes_brings_no_more() {
    on_both(|rig| {
        let (mut client, socket) = connect(rig);
        client.write_all(b"twenty bytes and one").unwrap();
        let up_to = |rig: &mut Rig, count| {
            received(rig.ask(|id| Op::Receive { id, socket, into: ReceiveBuf::UpTo(count) }))
        };
        assert_eq!(&*up_to(rig, 10).unwrap(), b"twenty byt");
        assert_eq!(&*up_to(rig, 100).unwrap(), b"es and one");
        // Others continue in between, in the same memory.
        client.write_all(b"more").unwrap();
        assert_eq!(&*receive(rig, socket, None).unwrap(), b"more");
        let id = rig.start(|id| Op::Receive { id, socket, into: ReceiveBuf::UpTo(200_000) });
        assert!(rig.finish_within(id, Duration::from_millis(20)).is_none());
        let writer = thread::spawn(move || client.write_all(&[7; 300_000]).unwrap());
        let mut all = received(rig.finish(id)).unwrap().to_vec();
        while all.len() < 300_000 {
            let piece = up_to(rig, 200_000).unwrap();
            assert!(!piece.is_empty() && piece.len() <= 200_000);
            all.extend_from_slice(&piece);
        }
        assert!(all == [7; 300_000]);
        writer.join().unwrap();
        assert_eq!(up_to(rig, 10), Err(Error::Disconnected), "the end of the stream");
    });
}

fn connected(done: Done) -> Result<Socket, Error> {
    match done {
        Done::Connected(result) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_connects_to_others_over_the_network_and_over_unix_sockets() {
    on_both(|rig| {
        let path = rig.path("socket");
        let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp_address = tcp.local_addr().unwrap();
        let unix_address = op::Address::Unix(path.into_os_string().into_encoded_bytes());
        for to in [op::Address::Tcp(tcp_address), unix_address] {
            let socket = connected(rig.ask(|id| Op::Connect { id, to: to.clone() })).unwrap();
            let mut far: Box<dyn ReadWrite> = match to {
                op::Address::Tcp(_) => Box::new(tcp.accept().unwrap().0),
                op::Address::Unix(_) => Box::new(unix.accept().unwrap().0),
            };
            let data = vec![Buf::from(&b"ping"[..])];
            assert!(matches!(rig.ask(|id| Op::Send { id, socket, data }), Done::Sent(Ok(()))));
            let mut got = [0; 4];
            far.read_exact(&mut got).unwrap();
            far.write_all(b"pong").unwrap();
            assert_eq!((&got, &*receive(rig, socket, None).unwrap()), (b"ping", &b"pong"[..]));
            drop(far);
            assert!(receive(rig, socket, None).unwrap().is_empty());
            rig.world.submit(Op::CloseSocket { socket });
        }
    });
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

#[test]
fn connecting_finds_a_dead_peer_within_15_seconds() {
    use rustix::net::sockopt;
    on_both(|rig| {
        let (_listener, address) = listen(rig);
        let to = op::Address::Tcp(address);
        let socket = connected(rig.ask(|id| Op::Connect { id, to })).unwrap();
        // SAFETY: the descriptor stays open across the calls.
        let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(socket.0.try_into().unwrap()) };
        assert!(sockopt::tcp_nodelay(fd).unwrap() && sockopt::socket_keepalive(fd).unwrap());
        let probes = sockopt::tcp_keepintvl(fd).unwrap() * sockopt::tcp_keepcnt(fd).unwrap();
        let found = sockopt::tcp_keepidle(fd).unwrap() + probes;
        assert_eq!(found, Duration::from_secs(15));
        assert_eq!(sockopt::tcp_user_timeout(fd).unwrap(), 15_000);
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    });
}

#[test]
fn a_closed_port_refuses_connections() {
    on_both(|rig| {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let long = vec![b'x'; 300];
        let nowhere = rig.path("nowhere").into_os_string().into_encoded_bytes();
        let expected = [
            (op::Address::Tcp(gone), Error::Disconnected),
            (op::Address::Unix(nowhere), Error::NotFound),
            (op::Address::Unix(long), Error::NameTooLong),
        ];
        for (to, error) in expected {
            assert_eq!(connected(rig.ask(|id| Op::Connect { id, to })), Err(error));
        }
    });
}

#[test]
fn a_connect_that_takes_long_can_be_cancelled() {
    on_both(|rig| {
        // A listener with a full queue accepts no more connections.
        let listener = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        rustix::net::bind(&listener, &any).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let name = rustix::net::getsockname(&listener).unwrap();
        let address = SocketAddr::try_from(name).unwrap();
        let mut waiting = None;
        for _ in 0..8 {
            let to = op::Address::Tcp(address);
            let id = rig.start(|id| Op::Connect { id, to });
            match rig.finish_within(id, Duration::from_millis(50)) {
                Some(done) => assert!(connected(done).is_ok()),
                None => waiting = Some(id),
            }
        }
        let id = waiting.expect("the queue is short");
        rig.world.submit(Op::Cancel { id });
        assert_eq!(connected(rig.finish(id)), Err(Error::Cancelled));
        assert!(rig.finish_within(id, Duration::from_millis(20)).is_none());
    });
}

#[test]
fn listeners_close_for_draining() {
    on_both(|rig| {
        let (listener, address) = listen(rig);
        let id = rig.start(|id| Op::Accept { id, listener, max: 1 });
        assert!(rig.finish_within(id, Duration::from_millis(5)).is_none());
        rig.world.submit(Op::CloseListener { listener });
        assert!(matches!(rig.finish(id), Done::Accepted(Err(Error::Cancelled))));
        assert!(TcpStream::connect(address).is_err());
        let done = rig.ask(|id| Op::Accept { id, listener, max: 1 });
        assert!(matches!(done, Done::Accepted(Err(Error::Cancelled))));
    });
}

#[test]
fn unix_peers_are_known_and_stale_sockets_are_replaced() {
    on_both(|rig| {
        let path = rig.path("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let address = Address::Unix(path.clone());
        let (listener, _) = rig.world.listen(&address).unwrap();
        let mut other = World::new(rig.world.form(), &Config::default()).unwrap();
        let error = other.listen(&address).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        std::fs::write(rig.path("plain"), b"").unwrap();
        assert!(rig.world.listen(&Address::Unix(rig.path("plain"))).is_err());

        // The other listener's check of the socket was a connection.
        let (probe, _) = accept(rig, listener);
        assert!(receive(rig, probe, None).unwrap().is_empty());
        let mut client = UnixStream::connect(&path).unwrap();
        let (socket, peer) = accept(rig, listener);
        let Peer::Local(user) = peer else { panic!("{peer:?}") };
        assert_eq!(user.uid, rustix::process::geteuid().as_raw());
        client.write_all(b"x").unwrap();
        assert_eq!(&*receive(rig, socket, None).unwrap(), b"x");
        rig.world.submit(Op::CloseListener { listener });
        assert!(!path.exists());
    });
}

#[test]
fn a_wait_ends_at_its_deadline() {
    on_both(|rig| {
        for millis in [0, 1, 30] {
            let (before, span) = (Instant::now(), Duration::from_millis(millis));
            let deadline = rig.world.now() + span;
            let mut events = Vec::new();
            rig.world.wait(Some(deadline), &mut events);
            assert!(events.is_empty());
            assert!(
                rig.world.now() >= deadline && before.elapsed() < span + Duration::from_millis(200)
            );
        }
        assert!(rig.world.wall().secs > 1_600_000_000);
    });
}

#[test]
fn signals_become_events() {
    for form in [Form::Threads, Form::Uring] {
        let config = Config { signals: true, ..Config::default() };
        let mut world = World::new(form, &config).unwrap();
        for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
            // To this thread alone: the test harness has others that do not block signals.
            let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
            let (process, thread) = (process.as_raw_pid(), thread.as_raw_pid());
            // SAFETY: the call takes three numbers.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal.as_raw()) };
            let mut events: Vec<Event> = Vec::new();
            let deadline = world.now() + Duration::from_secs(5);
            world.wait(Some(deadline), &mut events);
            assert!(
                matches!(&events[..], [Event { id: OpId::UNREQUESTED, done: Done::Stop }]),
                "{events:?}"
            );
        }
    }
}

#[test]
fn more_receives_than_shared_buffers() {
    on_both(|rig| {
        let (listener, address) = listen(rig);
        let mut clients = Vec::new();
        let mut pending = Vec::new();
        for _ in 0..600 {
            clients.push(TcpStream::connect(address).unwrap());
            let (socket, _) = accept(rig, listener);
            pending.push((
                rig.start(|id| Op::Receive { id, socket, into: ReceiveBuf::Default }),
                socket,
            ));
        }
        let mut events = Vec::new();
        let soon = rig.world.now() + Duration::from_millis(5);
        rig.world.wait(Some(soon), &mut events);
        for round in 0..3u8 {
            for client in &mut clients {
                client.write_all(&vec![round; 5000]).unwrap();
            }
            for (id, socket) in &mut pending {
                let mut total = 0;
                loop {
                    let buf = received(rig.finish(*id)).unwrap();
                    assert!(buf.iter().all(|b| *b == round));
                    total += buf.len();
                    let socket = *socket;
                    *id = rig.start(|id| Op::Receive { id, socket, into: ReceiveBuf::Default });
                    if total == 5000 {
                        break;
                    }
                }
            }
        }
    });
}

#[test]
fn dropping_a_world_ends_what_is_under_way() {
    on_both(|rig| {
        let mut world = World::new(rig.world.form(), &Config::default()).unwrap();
        let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let (listener, Address::Tcp(address)) = world.listen(&any).unwrap() else { panic!() };
        let mut client = TcpStream::connect(address).unwrap();
        world.submit(Op::Accept { id: OpId(1), listener, max: 1 });
        let mut events = Vec::new();
        world.wait(None, &mut events);
        let Done::Accepted(Ok(accepted)) = &events[0].done else { panic!() };
        let (socket, _) = accepted[0];
        world.submit(Op::Accept { id: OpId(2), listener, max: 1 });
        world.submit(Op::Receive { id: OpId(3), socket, into: ReceiveBuf::UpTo(100) });
        world.submit(Op::Send { id: OpId(4), socket, data: vec![Buf::from(vec![1; 30 << 20])] });
        let soon = world.now() + Duration::from_millis(5);
        world.wait(Some(soon), &mut events);
        let before = Instant::now();
        drop(world);
        assert!(before.elapsed() < Duration::from_secs(3));
        let _ = client.read_to_end(&mut Vec::new());
        assert!(TcpStream::connect(address).is_err());
    });
}

#[test]
fn too_many_open_files_is_reported() {
    // In a process of its own, as the limit is process-wide.
    if std::env::var_os("REACTOR_TEST_LIMIT").is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "too_many_open_files_is_told"])
            .env("REACTOR_TEST_LIMIT", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    on_both(|rig| {
        let (listener, address) = listen(rig);
        let _client = TcpStream::connect(address).unwrap();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let mut hoard = Vec::new();
        let low = rustix::process::Rlimit { current: Some(64), ..limit };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, low).unwrap();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        let done = rig.ask(|id| Op::Accept { id, listener, max: 1 });
        assert!(matches!(done, Done::Accepted(Err(Error::TooManyOpen))), "{done:?}");
        hoard.clear();
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        accept(rig, listener);
        assert!(reactor::raise_open_files() >= 64);
    });
}

#[test]
fn io_uring_works_here_or_says_why_not() {
    if let Err(reason) = reactor::probe() {
        assert!(!reason.is_empty());
    }
}

//! Processor time of the reactor itself: `cargo run --release -p upcall-reactor --example reads`.
//!
//! For each form: 4 KiB reads from the page cache, 32 outstanding on one loopback connection (a
//! request is the offset, a reply a header and the data), fetches of a 1 KiB file, and walks, with
//! the CPU time of the server's thread for each.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a tool that measures the real world"
)]

use base::op::{
    ClientKey, Done, Event, File, NOBODY, Op, OpId, PathDone, PathOp, ReceiveBuf, Socket,
};
use base::{Access, Buf, Caller, Name, Reactor, User};
use reactor::{Address, Config, Form, World};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const OUTSTANDING: usize = 32;
const BLOCK: u32 = 4096;
const FILE_BLOCKS: u64 = 16 << 10;
const SPAN: Duration = Duration::from_secs(3);

fn main() {
    let dir = std::env::temp_dir().join(format!("upcall-reads-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("a/b")).unwrap();
    std::fs::write(dir.join("data"), vec![1; usize::try_from(FILE_BLOCKS).unwrap() * 4096])
        .unwrap();
    std::fs::write(dir.join("a/b/small"), vec![2; 1024]).unwrap();
    for form in [Form::Uring, Form::Threads] {
        match World::new(form, &Config::default()) {
            Ok(world) => {
                network(world, &dir);
                let user = Caller::User(Arc::new(User {
                    uid: 5000,
                    gid: 5000,
                    groups: vec![],
                    commands: false,
                }));
                writes(form, &dir, "server", Caller::Server);
                writes(form, &dir, "user", user.clone());
                paths(form, &dir, "server", Caller::Server);
                paths(form, &dir, "user", user);
            }
            Err(error) => println!("{form:?}: {error}"),
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

fn report(form: Form, what: &str, count: u64, cpu: Duration, wall: Duration, world: &World) {
    let entries = world.statistics().kernel_entries as f64 / count as f64;
    let (cpu, wall) = (cpu.as_secs_f64(), wall.as_secs_f64());
    println!(
        "{form:?} {what}: {:.0}/s, {:.2} us CPU each, {:.0} % of a core, {entries:.3} entries each",
        count as f64 / wall,
        cpu * 1e6 / count as f64,
        cpu / wall * 100.0,
    );
}

/// Incomplete requests, by connection.
struct Server {
    world: World,
    socket: Socket,
    file: File,
    partial: Vec<u8>,
    next: u64,
    answers: Vec<Buf>,
    sending: bool,
    answered: u64,
}

fn network(mut world: World, dir: &Path) {
    let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
    let (listener, Address::Tcp(address)) = world.listen(&any).unwrap() else { return };
    let client = thread::spawn(move || client(TcpStream::connect(address).unwrap()));
    world.submit(Op::Accept { id: OpId(0), listener, max: 1 });
    let mut events = Vec::new();
    world.wait(None, &mut events);
    let Some(Event { done: Done::Accepted(Ok(accepted)), .. }) = events.pop() else { return };
    let (socket, _) = accepted[0];
    let file = open(&mut world, dir, "data");
    let (partial, answers) = (Vec::new(), Vec::new());
    let mut server =
        Server { world, socket, file, partial, next: 2, answers, sending: false, answered: 0 };
    server.world.submit(Op::Receive { id: OpId(1), socket, into: ReceiveBuf::Default });
    let (cpu_before, before) = (cpu(), Instant::now());
    while server.turn(&mut events) {}
    let form = server.world.form();
    let spent = cpu() - cpu_before;
    report(form, "4 KiB reads", server.answered, spent, before.elapsed(), &server.world);
    client.join().unwrap();
}

impl Server {
    /// Runs one turn; returns `false` at the end of the connection.
    fn turn(&mut self, events: &mut Vec<Event>) -> bool {
        self.world.wait(None, events);
        for event in events.drain(..) {
            match event.done {
                Done::Received(Err(_)) | Done::Sent(Err(_)) => return false,
                Done::Received(Ok(buf)) if buf.is_empty() => return false,
                Done::Received(Ok(buf)) => {
                    let socket = self.socket;
                    self.world.submit(Op::Receive {
                        id: OpId(1),
                        socket,
                        into: ReceiveBuf::Default,
                    });
                    self.requests(&buf);
                }
                Done::Read(Ok(mut buf)) => {
                    buf.prepend(&BLOCK.to_le_bytes());
                    self.answers.push(buf);
                }
                Done::Sent(Ok(())) => self.sending = false,
                other => panic!("{other:?}"),
            }
        }
        if !self.sending && !self.answers.is_empty() {
            self.sending = true;
            self.answered += self.answers.len() as u64;
            let data = std::mem::take(&mut self.answers);
            self.world.submit(Op::Send { id: OpId(0), socket: self.socket, data });
        }
        true
    }

    fn requests(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let whole = self.partial.len() / 8 * 8;
        for request in self.partial.drain(..whole).as_slice().chunks_exact(8) {
            let offset = u64::from_le_bytes(request.try_into().unwrap());
            self.next += 1;
            let (id, file) = (OpId(self.next), self.file);
            self.world.submit(Op::Read { id, file, offset, count: BLOCK, headroom: 16 });
        }
    }
}

fn client(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut offset = 0u64;
    let mut requests = |stream: &mut TcpStream, count: usize| {
        let mut bytes = Vec::new();
        for _ in 0..count {
            offset = (offset * 5 + 1) % FILE_BLOCKS;
            bytes.extend_from_slice(&(offset * u64::from(BLOCK)).to_le_bytes());
        }
        stream.write_all(&bytes).unwrap();
    };
    requests(&mut stream, OUTSTANDING);
    let (before, mut got, mut buffer) = (Instant::now(), 0, vec![0; 256 << 10]);
    while before.elapsed() < SPAN {
        got += stream.read(&mut buffer).unwrap();
        let whole = got / (BLOCK as usize + 4);
        got %= BLOCK as usize + 4;
        requests(&mut stream, whole);
    }
}

fn open(world: &mut World, dir: &Path, name: &str) -> File {
    open_as(world, dir, name, Access::READ)
}

fn open_as(world: &mut World, dir: &Path, name: &str, access: Access) -> File {
    let root = world.open_root(dir).unwrap();
    let walk = PathOp::Walk { root, from: root, names: names(name) };
    match ask(world, Caller::Server, walk) {
        PathDone::Walked(_, Ok(file)) => {
            match ask(world, Caller::Server, PathOp::Open { file, access }) {
                PathDone::Opened(file, _) => file,
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    }
}

fn names(path: &str) -> Vec<Name> {
    path.split('/').map(|name| Name::new(name.as_bytes()).unwrap()).collect()
}

fn ask(world: &mut World, caller: Caller, op: PathOp) -> PathDone {
    world.submit(Op::Path { id: OpId(7), caller, requester: NOBODY, within: None, op });
    let mut events = Vec::new();
    world.wait(None, &mut events);
    match events.pop() {
        Some(Event { done: Done::Path(Ok(done)), .. }) => done,
        other => panic!("{other:?}"),
    }
}

/// Measures 4 KiB writes into the page cache, with as many outstanding as above.
fn writes(form: Form, dir: &Path, who: &str, caller: Caller) {
    let mut world = World::new(form, &Config::default()).unwrap();
    let access = Access { write: true, ..Access::READ };
    let file = open_as(&mut world, dir, "data", access);
    let (cpu_before, before) = (cpu(), Instant::now());
    let (count, mut begun, mut ended) = (50_000, 0u64, 0);
    let mut events = Vec::new();
    while ended < count {
        while begun < count && begun - ended < OUTSTANDING as u64 {
            let (id, caller, data) = (OpId(begun), caller.clone(), Buf::from(vec![3; 4096]));
            let offset = begun % FILE_BLOCKS * 4096;
            world.submit(Op::Write { id, caller, file, offset, data });
            begun += 1;
        }
        world.wait(None, &mut events);
        for event in events.drain(..) {
            assert!(matches!(event.done, Done::Written(Ok(4096))));
            ended += 1;
        }
    }
    let what = format!("4 KiB writes as {who}");
    report(form, &what, count, cpu() - cpu_before, before.elapsed(), &world);
}

fn paths(form: Form, dir: &Path, who: &str, caller: Caller) {
    let mut world = World::new(form, &Config::default()).unwrap();
    let root = world.open_root(dir).unwrap();
    let fetch = PathOp::Fetch { root, path: b"a/b/small".to_vec(), read_max: 65536, headroom: 256 };
    let walk = PathOp::Walk { root, from: root, names: names("a/b/small") };
    for (what, op) in [("fetch of 1 KiB", fetch), ("walk of 3 names", walk)] {
        let (cpu_before, before) = (cpu(), Instant::now());
        let count = 100_000;
        for _ in 0..count {
            if let PathDone::Walked(_, Ok(file)) = ask(&mut world, caller.clone(), op.clone()) {
                world.submit(Op::CloseFile { file, client: ClientKey::NOBODY });
            }
        }
        let what = format!("{what} as {who}");
        report(form, &what, count, cpu() - cpu_before, before.elapsed(), &world);
    }
}

//! Differential test: the same requests to a tree directly and to another one over a connection
//! must give the same replies.

use super::remote_client::RemoteClient;
use super::remote_server::{ImmediateHost, RemoteServer};
use base::op::{Detail, Entry};
use base::rng::{Rng, seeded};
use base::{Access, Buf, Error, Kind, Name, SetStat, SetTime, Stat, Time};
use tree::remote::Config;
use tree::request::{Lock, LockKind, Owner};
use tree::{Ask, Input, NodeId, OpenId, Output, Reply, RequestId};

/// Names to draw from.
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "link", "long-name-of-some-file"];

/// A node or open file on both sides: directly, and over the connection.
type Both<T> = (T, T);

/// Two trees and the references held of them.
struct Twins {
    rng: Rng,
    ground: ImmediateHost,
    remote_server: RemoteServer,
    remote_client: RemoteClient,
    nodes: Vec<Both<NodeId>>,
    opens: Vec<Both<OpenId>>,
    next: u64,
    /// Whether the connection is limited to 9P2000.
    plain: bool,
    log: Vec<String>,
}

/// Sends the same requests to both sides, and compares the replies.
///
/// # Panics
/// If they differ.
pub fn compare(seed: u64, requests: usize, plain: bool) {
    let mut rng = seeded(seed);
    let msize = [4200, 8192, 65_536, 1 << 20][rng.usize(..4)];
    let remote_server = RemoteServer::new(msize, plain);
    let remote_client = RemoteClient::new(seeded(seed ^ 1), Config { seed, ..Config::default() });
    let (nodes, opens) = (Vec::new(), Vec::new());
    let ground = ImmediateHost::new();
    let mut twins = Twins {
        rng,
        ground,
        remote_server,
        remote_client,
        nodes,
        opens,
        next: 0,
        plain,
        log: vec![format!("msize {msize}")],
    };
    let roots = (twins.ground.host.root(), twins.remote_client.remote.root());
    twins.nodes.push(roots);
    for _ in 0..requests {
        twins.once();
    }
    twins.finish();
}

impl Twins {
    fn once(&mut self) {
        let node = self.nodes[self.rng.usize(..self.nodes.len())];
        let (remote_client, remote_server) = match self.rng.u8(..12) {
            0 if self.nodes.len() > 1 => {
                let index = self.rng.usize(1..self.nodes.len());
                return self.release(index);
            }
            1 if !self.opens.is_empty() => {
                let index = self.rng.usize(..self.opens.len());
                return self.close(index);
            }
            2..=5 if !self.opens.is_empty() => {
                let open = self.opens[self.rng.usize(..self.opens.len())];
                self.open_ask(open)
            }
            _ => self.node_ask(node),
        };
        if !self.plain || is_plain(&remote_client) {
            self.ask(remote_client, remote_server);
        }
    }

    fn name(&mut self) -> Name {
        let name = match self.rng.u8(..20) {
            0 => ".",
            1 => "..",
            _ => NAMES[self.rng.usize(..NAMES.len())],
        };
        Name::new(name.as_bytes()).expect("a good name")
    }

    fn access(&mut self) -> Access {
        let (read, write) = [(true, false), (true, true), (false, true)][self.rng.usize(..3)];
        let append = write && self.rng.u8(..6) == 0;
        let truncate = write && self.rng.u8(..5) == 0;
        Access { read, write, append, truncate, sync: false }
    }

    fn both(&self, make: impl Fn(bool) -> Ask) -> Both<Ask> {
        (make(false), make(true))
    }

    fn node_ask(&mut self, node: Both<NodeId>) -> Both<Ask> {
        let other = self.nodes[self.rng.usize(..self.nodes.len())];
        let pick =
            |remote_server: bool, both: Both<NodeId>| if remote_server { both.1 } else { both.0 };
        let (name, new_name) = (self.name(), self.name());
        let (access, mode) = (self.access(), 0o600 + self.rng.u32(..0o177));
        let flag = self.rng.bool();
        let directory = [None, Some(true), Some(false)][self.rng.usize(..3)];
        let number = self.rng.u64(..20_000);
        let length = self.rng.usize(1..6);
        let names: Vec<Name> = (0..length).map(|_| self.name()).collect();
        let value = vec![b'v'; if flag { 3 } else { self.rng.usize(..9000) }];
        let attr = [b"user.a".to_vec(), b"user.b".to_vec()][self.rng.usize(..2)].clone();
        let kind = [Kind::File, Kind::Fifo, Kind::CharDevice][self.rng.usize(..3)];
        let read_max = self.rng.u32(1..9000);
        let verb = self.rng.u8(..26);
        self.both(|remote_server| {
            let (node, other) = (pick(remote_server, node), pick(remote_server, other));
            let (name, new_name, names) = (name.clone(), new_name.clone(), names.clone());
            match verb {
                0..=4 => Ask::Walk { from: node, names },
                5 => Ask::Stat { node },
                6 => Ask::SetStat { node, open: None, set: set_stat(flag, number, mode) },
                7 => Ask::Open { node, access },
                8..=10 => Ask::Create { dir: node, name, access, exclusive: flag, mode, gid: None },
                11 | 12 => Ask::MakeDir { dir: node, name, mode: mode | 0o111, gid: None },
                13 => {
                    let target = if flag { b"a/b".to_vec() } else { b"../c".to_vec() };
                    Ask::Symlink { dir: node, name, target, gid: None }
                }
                14 => Ask::MakeNode { dir: node, name, kind, mode, device: 0x0103, gid: None },
                15 => Ask::ReadLink { node },
                16 => Ask::Link { node, dir: other, name },
                17 => Ask::Rename { from: node, name, to: other, new_name, replace: flag },
                18 => Ask::Remove { dir: node, name, directory },
                19 => Ask::RenameNode { node, to: Some(other), new_name, replace: flag },
                20 => Ask::RemoveNode { node },
                21 if flag => Ask::GetAttr { node, name: attr.clone() },
                21 => Ask::ListAttrs { node },
                22 if flag => Ask::SetAttr {
                    node,
                    name: attr.clone(),
                    value: value.clone(),
                    create: [None, Some(true), Some(false)][number as usize % 3],
                },
                22 => Ask::RemoveAttr { node, name: attr.clone() },
                23 => Ask::StatFs { node },
                _ => {
                    let path = names.into_iter().filter(Name::plain).collect();
                    Ask::Fetch { root: None, path, read_max, headroom: 100 }
                }
            }
        })
    }

    fn open_ask(&mut self, open: Both<OpenId>) -> Both<Ask> {
        let offset = self.rng.u64(..30_000);
        let count = self.rng.u32(..20_000);
        let length = self.rng.usize(..15_000);
        let start = self.rng.u64(..10);
        let fill = self.rng.u8(..);
        let kind = [LockKind::Shared, LockKind::Exclusive, LockKind::None][self.rng.usize(..3)];
        let process = self.rng.u32(..3);
        let with_stat = self.rng.bool();
        let verb = self.rng.u8(..7);
        let owner = Owner { client: b"c".to_vec(), process };
        let lock = Lock::new(kind, start, 3, owner).expect("a small range");
        self.both(|remote_server| {
            let open = if remote_server { open.1 } else { open.0 };
            let lock = lock.clone();
            match verb {
                0 | 1 => Ask::Read { open, offset: offset % 20_000, count, headroom: 11 },
                2 | 3 => Ask::Write { open, offset, data: Buf::from(vec![fill; length]) },
                4 => {
                    let detail = if with_stat { Detail::Stat } else { Detail::Name };
                    Ask::List { open, cookie: 0, bytes_max: 4000, detail }
                }
                5 if with_stat => Ask::Sync { open, data_only: false },
                5 => Ask::GetLock { open, lock },
                _ => Ask::Lock { open, lock, wait: false },
            }
        })
    }

    fn ask(&mut self, direct: Ask, remote: Ask) {
        let text = format!("{direct:?}");
        self.log.push(text.chars().take(200).collect());
        self.next += 1;
        self.ground.clock += 1;
        self.remote_server.ground.clock = self.ground.clock;
        let id = RequestId(self.next);
        let mut replies = self.ground.step(Input::Ask(id, RemoteClient::request(direct)));
        let Some(Output::Reply(_, expected)) = replies.pop() else {
            panic!("no answer: {:?}", self.log.last());
        };
        let got = self.ask_server(remote);
        let (shown, seen) = (self.show(&expected), self.show(&got));
        let both_refuse = self.plain && expected.is_err() && got.is_err();
        if shown != seen && !both_refuse && !is_allowed(&text, &expected, &got) {
            let last = self.log.len().saturating_sub(12);
            let outputs = &self.remote_server.outputs;
            panic!("{:#?}\n{outputs:#?}\nexpected {shown}\n     got {seen}", &self.log[last..]);
        }
        self.keep(expected, got);
    }

    /// Sends a request through the mounted server. The rest of a short write is sent again, as
    /// clients do.
    fn ask_server(&mut self, remote: Ask) -> Result<Reply, Error> {
        let mut rest = remote.clone();
        let mut total = 0;
        loop {
            let reply = self
                .remote_client
                .ask(&mut self.remote_server, RemoteClient::request(rest.clone()));
            let (Ask::Write { offset, data, .. }, Ok(Reply::Written(count))) = (&mut rest, &reply)
            else {
                return reply;
            };
            (total, *offset) = (total + count, *offset + u64::from(*count));
            data.consume(*count as usize);
            if data.is_empty() || *count == 0 {
                return Ok(Reply::Written(total));
            }
        }
    }

    /// Keeps references handed out by both sides, and releases those of only one.
    fn keep(&mut self, direct: Result<Reply, Error>, remote: Result<Reply, Error>) {
        match (handles(direct), handles(remote)) {
            ((Some(one), open), (Some(other), second)) => {
                self.nodes.push((one, other));
                self.opens.extend(open.zip(second));
            }
            ((None, Some(one)), (None, Some(other))) => self.opens.push((one, other)),
            ((None, None), (None, None)) => {}
            (one, other) => panic!("{one:?} is not {other:?}"),
        }
        if self.nodes.len() > 40 {
            self.release(1);
        }
        if self.opens.len() > 20 {
            self.close(0);
        }
    }

    fn show(&self, reply: &Result<Reply, Error>) -> String {
        match reply {
            Ok(Reply::Entries(entries)) if self.plain => {
                let entry = |entry: &Entry| format!("{} {}", entry.inode, entry.name);
                let entries: Vec<String> = entries.iter().map(entry).collect();
                format!("Entries {entries:?}")
            }
            // Modes are narrowed (open(5)).
            Ok(Reply::Fetched(_, data, open)) if self.plain => {
                format!("Fetched {} {}", sum(data), open.is_some())
            }
            reply => show(reply),
        }
    }

    fn release(&mut self, index: usize) {
        let (direct, remote) = self.nodes.swap_remove(index);
        self.ground.step(Input::Release(direct));
        self.remote_client.step(&mut self.remote_server, Input::Release(remote));
    }

    fn close(&mut self, index: usize) {
        let (direct, remote) = self.opens.swap_remove(index);
        self.ground.step(Input::Close(direct));
        self.remote_client.step(&mut self.remote_server, Input::Close(remote));
    }

    fn finish(mut self) {
        while self.nodes.len() > 1 {
            self.release(1);
        }
        while !self.opens.is_empty() {
            self.close(0);
        }
        let counts = self.remote_client.remote.counts();
        assert_eq!((counts.nodes, counts.opens, counts.calls), (0, 0, (0, 0)), "{counts:?}");
        assert_eq!(counts.fids, 1, "only the root's fid is left: {counts:?}");
        assert_eq!(self.ground.disk.open_count(), 1);
        if self.plain {
            return;
        }
        let left = self.ground.disk.difference(&self.remote_server.ground.disk, 1);
        assert_eq!(left, None, "the disks differ");
    }
}

/// Returns whether 9P2000 can express a request with the same meaning.
fn is_plain(ask: &Ask) -> bool {
    match ask {
        Ask::Open { access, .. } => !access.append,
        Ask::Create { access, .. } => !access.append,
        Ask::Walk { .. }
        | Ask::Stat { .. }
        | Ask::SetStat { .. }
        | Ask::MakeDir { .. }
        | Ask::Remove { .. }
        | Ask::RemoveNode { .. }
        | Ask::Read { .. }
        | Ask::Write { .. }
        | Ask::Sync { .. }
        | Ask::List { .. }
        | Ask::Fetch { .. } => true,
        _ => false,
    }
}

/// Returns whether two errors may differ: sessions reject some requests before the tree does, and
/// the orders of the checks for existing and missing entries differ.
fn is_allowed(ask: &str, direct: &Result<Reply, Error>, remote: &Result<Reply, Error>) -> bool {
    match (direct, remote) {
        (Err(Error::Invalid), Err(Error::IsDirectory)) => true,
        (Err(_), Err(_)) => ask.contains("replace: false"),
        _ => false,
    }
}

fn set_stat(size: bool, number: u64, mode: u32) -> SetStat {
    let modified = Some(SetTime::At(Time::from_secs(number.cast_signed())));
    match size {
        true => SetStat { size: Some(number), ..SetStat::default() },
        false => SetStat { mode: Some(mode), modified, ..SetStat::default() },
    }
}

fn handles(reply: Result<Reply, Error>) -> (Option<NodeId>, Option<OpenId>) {
    match reply {
        Ok(Reply::Walked(_, node)) => (node, None),
        Ok(Reply::Opened(open, _)) => (None, Some(open)),
        Ok(Reply::Created(node, open, _)) => (Some(node), Some(open)),
        Ok(Reply::Fetched(_, _, open)) => (None, open),
        _ => (None, None),
    }
}

/// Formats a reply without the parts specific to each side.
fn show(reply: &Result<Reply, Error>) -> String {
    let brief = |stat: &Stat| format!("{}:{:?}", number(stat), coarse(stat.kind));
    let entry = |entry: &Entry| {
        let stat = entry.stat.as_ref().map(full);
        format!("{} {} {:?} {} {stat:?}", entry.cookie, entry.inode, entry.kind, entry.name)
    };
    match reply {
        Err(error) => format!("{error:?}"),
        Ok(Reply::Walked(stats, node)) => {
            let stats: Vec<String> = stats.iter().map(brief).collect();
            format!("Walked {stats:?} {}", node.is_some())
        }
        Ok(Reply::Stat(stat)) => format!("Stat {}", brief(stat)),
        Ok(Reply::Opened(_, stat)) => format!("Opened {} {}", brief(stat), size(stat)),
        Ok(Reply::Created(_, _, stat)) => format!("Created {}", brief(stat)),
        Ok(Reply::Fetched(stat, data, open)) => {
            format!("Fetched {} {} {}", full(stat), sum(data), open.is_some())
        }
        Ok(Reply::Data(data)) => format!("Data {}", sum(data)),
        Ok(Reply::Pieces(pieces)) => {
            let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            format!("Data {}", sum(&whole))
        }
        Ok(Reply::Entries(entries)) => {
            format!("Entries {:?}", entries.iter().map(entry).collect::<Vec<_>>())
        }
        Ok(Reply::Bytes(bytes)) => format!("Bytes {}", sum(bytes)),
        Ok(Reply::StatFs(stat)) => format!("StatFs {} {}", stat.blocks, stat.name_max),
        Ok(other) => format!("{other:?}").chars().take(200).collect(),
    }
}

/// Returns the size of a plain file; zero for others.
fn size(stat: &Stat) -> u64 {
    if stat.kind == Kind::File { stat.size } else { 0 }
}

/// Returns the part of the kind that a qid contains.
fn coarse(kind: Kind) -> Kind {
    match kind {
        Kind::Directory | Kind::Symlink => kind,
        _ => Kind::File,
    }
}

/// Returns the inode number; a remote tree has a number of its own for its root.
fn number(stat: &Stat) -> u64 {
    if stat.inode == u64::MAX { 1 } else { stat.inode }
}

fn full(stat: &Stat) -> String {
    format!("{:?}", Stat { device: 0, inode: number(stat), ..stat.clone() })
}

fn sum(bytes: &[u8]) -> String {
    format!("{} bytes, {:x}", bytes.len(), crate::trace::hash(0, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered_as_by_the_tree_itself() {
        for seed in 0..40 {
            compare(seed, 400, false);
        }
    }

    #[test]
    fn so_it_is_in_9p2000_as_far_as_it_goes() {
        for seed in 0..40 {
            compare(seed, 400, true);
        }
    }
}

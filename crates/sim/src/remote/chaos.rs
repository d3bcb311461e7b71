//! Connections that break anywhere, unavailable servers, and lying servers: every request gets one
//! reply, nothing is leaked, and nothing panics.

use super::remote_client::RemoteClient;
use super::remote_server::RemoteServer;
use base::op::Detail;
use base::rng::{Rng, seeded};
use base::{Access, Buf, Name, SetStat};
use std::collections::BTreeSet;
use std::time::Duration;
use tree::remote::Config;
use tree::request::{Lock, LockKind, Owner};
use tree::{Ask, Input, NodeId, OpenId, Reply, RequestId};

/// Held references, and outstanding requests.
struct Chaos {
    rng: Rng,
    remote_server: RemoteServer,
    remote_client: RemoteClient,
    nodes: Vec<NodeId>,
    opens: Vec<OpenId>,
    waiting: BTreeSet<RequestId>,
}

/// Runs one case: a server that may lie, and a connection that may break.
pub fn case(rng: &mut Rng) {
    let liar = rng.bool();
    run(rng.u64(..), liar, 60);
}

/// Runs this number of turns.
///
/// # Panics
/// If a request gets no reply, or two, or anything is leaked.
pub fn run(seed: u64, liar: bool, turns: usize) {
    let mut rng = seeded(seed);
    let msize = [4200, 8192, 65_536][rng.usize(..3)];
    let mut remote_server = RemoteServer::new(msize, rng.u8(..4) == 0);
    remote_server.liar = liar.then(|| seeded(seed ^ 2));
    let timeout = Duration::from_millis(rng.u64(1..4000));
    let config = Config { seed, timeout, calls_max: rng.usize(1..20), ..Config::default() };
    let mut remote_client = RemoteClient::new(seeded(seed ^ 1), config);
    remote_client.lazy = rng.bool();
    let nodes = vec![remote_client.remote.root()];
    let (opens, waiting) = (Vec::new(), BTreeSet::new());
    let mut chaos = Chaos { rng, remote_server, remote_client, nodes, opens, waiting };
    for _ in 0..turns {
        chaos.turn();
    }
    chaos.finish();
}

impl Chaos {
    fn turn(&mut self) {
        match self.rng.u8(..20) {
            0 => self.remote_client.break_off(&mut self.remote_server),
            1 => self.remote_client.breaks_after = Some(self.rng.usize(1..2000)),
            2 => self.remote_client.reachable = !self.remote_client.reachable,
            3 => self.remote_client.reachable = true,
            4 | 5 => self.remote_client.pass(&mut self.remote_server),
            6 if !self.waiting.is_empty() => {
                let index = self.rng.usize(..self.waiting.len());
                let id = *self.waiting.iter().nth(index).expect("within");
                self.remote_client.step(&mut self.remote_server, Input::Cancel(id));
            }
            7 if self.nodes.len() > 1 => {
                let index = self.rng.usize(1..self.nodes.len());
                let node = self.nodes.swap_remove(index);
                self.remote_client.step(&mut self.remote_server, Input::Release(node));
            }
            8 if !self.opens.is_empty() => {
                let index = self.rng.usize(..self.opens.len());
                let open = self.opens.swap_remove(index);
                self.remote_client.step(&mut self.remote_server, Input::Close(open));
            }
            9..=11 => self.remote_client.deliver_all(&mut self.remote_server),
            _ => {
                let ask = self.ask();
                self.waiting.insert(
                    self.remote_client.start(&mut self.remote_server, RemoteClient::request(ask)),
                );
            }
        }
        self.collect();
    }

    fn collect(&mut self) {
        for id in self.waiting.clone() {
            let Some(reply) = self.remote_client.answer(id) else { continue };
            self.waiting.remove(&id);
            match reply {
                Ok(Reply::Walked(_, Some(node))) => self.nodes.push(node),
                Ok(Reply::Opened(open, _) | Reply::Fetched(_, _, Some(open))) => {
                    self.opens.push(open);
                }
                Ok(Reply::Created(node, open, _)) => {
                    self.nodes.push(node);
                    self.opens.push(open);
                }
                _ => {}
            }
        }
    }

    fn name(&mut self) -> Name {
        let name = ["a", "b", "c", "..", "."][self.rng.usize(..5)];
        Name::new(name.as_bytes()).expect("a good name")
    }

    fn ask(&mut self) -> Ask {
        let node = self.nodes[self.rng.usize(..self.nodes.len())];
        let other = self.nodes[self.rng.usize(..self.nodes.len())];
        let (name, new_name) = (self.name(), self.name());
        let (number, flag) = (self.rng.u32(..20_000), self.rng.bool());
        let write = self.rng.bool();
        let access = Access { read: true, write, ..Access::default() };
        if let Some(open) = self.opens.last().copied()
            && self.rng.bool()
        {
            let owner = Owner { client: b"c".to_vec(), process: number % 3 };
            let lock = Lock::new(LockKind::Exclusive, 0, 1, owner).expect("small");
            return match self.rng.u8(..6) {
                0 | 1 => Ask::Read { open, offset: 0, count: number, headroom: 5 },
                2 => Ask::Write { open, offset: 3, data: Buf::from(vec![7; number as usize]) },
                3 => {
                    let detail = if flag { Detail::Stat } else { Detail::Name };
                    Ask::List { open, cookie: 0, bytes_max: number, detail }
                }
                4 => Ask::Lock { open, lock, wait: flag },
                _ => Ask::Sync { open, data_only: flag },
            };
        }
        match self.rng.u8(..14) {
            0..=2 => Ask::Walk { from: node, names: vec![name, new_name] },
            3 => Ask::Stat { node },
            4 => Ask::SetStat {
                node,
                open: None,
                set: SetStat { mode: Some(0o755), ..SetStat::default() },
            },
            5 => Ask::Open { node, access },
            6 | 7 => {
                Ask::Create { dir: node, name, access, exclusive: flag, mode: 0o644, gid: None }
            }
            8 | 9 => Ask::MakeDir { dir: node, name, mode: 0o755, gid: None },
            10 => Ask::Rename { from: node, name, to: other, new_name, replace: flag },
            11 => Ask::Remove { dir: node, name, directory: None },
            12 if flag => Ask::ListAttrs { node },
            12 => {
                Ask::SetAttr { node, name: b"user.a".to_vec(), value: vec![1; 300], create: None }
            }
            _ => {
                let path = [name, new_name].into_iter().filter(Name::plain).collect();
                Ask::Fetch { root: None, path, read_max: 1000, headroom: 0 }
            }
        }
    }

    /// Ends the server for good: every request gets a reply, and all references are released.
    fn finish(mut self) {
        self.remote_client.reachable = false;
        self.remote_client.break_off(&mut self.remote_server);
        for _ in 0..200 {
            self.remote_client.pass(&mut self.remote_server);
            self.collect();
        }
        assert!(self.waiting.is_empty(), "no answer: {:?}", self.remote_client.remote.counts());
        assert_eq!(self.remote_client.outstanding(), 0);
        for node in self.nodes.split_off(1) {
            self.remote_client.step(&mut self.remote_server, Input::Release(node));
        }
        for open in std::mem::take(&mut self.opens) {
            self.remote_client.step(&mut self.remote_server, Input::Close(open));
        }
        let counts = self.remote_client.remote.counts();
        assert_eq!((counts.nodes, counts.opens, counts.calls), (0, 0, (0, 0)), "{counts:?}");
        assert!(counts.pending.is_empty(), "{counts:?}");
        self.remote_client.close(&mut self.remote_server);
        assert!(self.remote_client.remote.is_closed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Error;

    fn ok(remote_client: &mut RemoteClient, remote_server: &mut RemoteServer, ask: Ask) -> Reply {
        remote_client.ask(remote_server, RemoteClient::request(ask)).expect("it is there")
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a good name")
    }

    #[test]
    fn every_request_is_answered_once_whatever_breaks() {
        for seed in 0..300 {
            run(seed, false, 150);
        }
    }

    #[test]
    fn a_server_that_lies_does_no_harm() {
        for seed in 0..300 {
            run(seed, true, 150);
        }
    }

    /// Files and open files are found again on the next connection; locks and unsynced writes are
    /// not assumed to survive.
    #[test]
    fn references_outlive_the_connection() {
        for plain in [false, true] {
            let mut remote_server = RemoteServer::new(8192, plain);
            let mut remote_client = RemoteClient::new(seeded(1), Config::default());
            let root = remote_client.remote.root();
            let (mode, gid, exclusive) = (0o644, None, true);
            ok(
                &mut remote_client,
                &mut remote_server,
                Ask::MakeDir { dir: root, name: name("d"), mode: 0o755, gid },
            );
            let walked = ok(
                &mut remote_client,
                &mut remote_server,
                Ask::Walk { from: root, names: vec![name("d")] },
            );
            let Reply::Walked(_, Some(dir)) = walked else { panic!("{walked:?}") };
            let access = Access { read: true, write: true, ..Access::default() };
            let ask = Ask::Create { dir, name: name("f"), access, exclusive, mode, gid };
            let created = ok(&mut remote_client, &mut remote_server, ask);
            let Reply::Created(node, open, _) = created else { panic!("{created:?}") };
            let data = Buf::from(&b"contents"[..]);
            ok(&mut remote_client, &mut remote_server, Ask::Write { open, offset: 0, data });
            remote_client.break_off(&mut remote_server);

            let read = Ask::Read { open, offset: 3, count: 100, headroom: 0 };
            let Reply::Data(data) = ok(&mut remote_client, &mut remote_server, read.clone()) else {
                panic!()
            };
            assert_eq!(&*data, b"tents");
            let sync = RemoteClient::request(Ask::Sync { open, data_only: false });
            assert_eq!(
                remote_client.ask(&mut remote_server, sync.clone()).err(),
                Some(Error::Disconnected)
            );
            assert!(remote_client.ask(&mut remote_server, sync).is_ok());
            assert!(matches!(
                ok(&mut remote_client, &mut remote_server, Ask::Stat { node }),
                Reply::Stat(_)
            ));

            // Renamed by this client, it is found under its new name; removed, it is stale.
            let (from, to, new_name) = (dir, dir, name("g"));
            let ask = Ask::Rename { from, name: name("f"), to, new_name, replace: true };
            ok(&mut remote_client, &mut remote_server, ask);
            remote_client.break_off(&mut remote_server);
            assert!(matches!(
                ok(&mut remote_client, &mut remote_server, Ask::Stat { node }),
                Reply::Stat(_)
            ));
            ok(
                &mut remote_client,
                &mut remote_server,
                Ask::Remove { dir, name: name("g"), directory: None },
            );
            remote_client.break_off(&mut remote_server);
            for ask in [Ask::Stat { node }, read] {
                assert_eq!(
                    remote_client.ask(&mut remote_server, RemoteClient::request(ask)).err(),
                    Some(Error::Stale)
                );
            }
        }
    }

    #[test]
    fn locks_do_not_outlive_the_connection() {
        let mut remote_server = RemoteServer::new(8192, false);
        let mut remote_client = RemoteClient::new(seeded(1), Config::default());
        let node = remote_client.remote.root();
        let opened =
            ok(&mut remote_client, &mut remote_server, Ask::Open { node, access: Access::READ });
        let Reply::Opened(open, _) = opened else { panic!("{opened:?}") };
        let owner = Owner { client: b"c".to_vec(), process: 1 };
        let lock = Lock::new(LockKind::Shared, 0, 0, owner).expect("all of it");
        let ask = Ask::Lock { open, lock, wait: false };
        assert!(matches!(ok(&mut remote_client, &mut remote_server, ask.clone()), Reply::Locked));
        remote_client.break_off(&mut remote_server);
        assert_eq!(
            remote_client.ask(&mut remote_server, RemoteClient::request(ask)).err(),
            Some(Error::Stale)
        );
    }

    /// Requests wait for a server that was available lately, and for no other.
    #[test]
    fn requests_wait_for_a_while() {
        let mut remote_server = RemoteServer::new(8192, false);
        let mut remote_client = RemoteClient::new(seeded(1), Config::default());
        let stat = RemoteClient::request(Ask::Stat { node: remote_client.remote.root() });
        assert!(remote_client.ask(&mut remote_server, stat.clone()).is_ok());
        remote_client.reachable = false;
        remote_client.break_off(&mut remote_server);
        let before = remote_client.now;
        assert_eq!(
            remote_client.ask(&mut remote_server, stat.clone()).err(),
            Some(Error::Disconnected)
        );
        assert!(remote_client.now.since(before) >= Duration::from_secs(5));
        let before = remote_client.now;
        assert_eq!(
            remote_client.ask(&mut remote_server, stat.clone()).err(),
            Some(Error::Disconnected)
        );
        assert_eq!(remote_client.now, before, "it was not there lately");
        remote_client.reachable = true;
        for _ in 0..20 {
            remote_client.pass(&mut remote_server);
        }
        assert!(remote_client.ask(&mut remote_server, stat).is_ok());
    }
}

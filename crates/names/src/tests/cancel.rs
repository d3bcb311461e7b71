//! Requests that overlap and are cancelled at every step: each has one reply, and in the end every
//! node and open file has been released exactly once.

use super::*;
use base::op::Detail;
use fastrand::Rng;

/// Requests to trees that reply in any order.
struct Schedule {
    lab: Lab,
    rng: Rng,
    /// Requests without a reply.
    pending: Vec<RequestId>,
    nodes: Vec<NodeId>,
    unions: Vec<OpenId>,
    /// Number of files created, for their names.
    made: u32,
}

/// Directories, unions, mounts on mounts, and links into all of them.
const TREES: [&[&str]; 4] = [
    &["u/own", "d/deep/file", "to_file>d/deep/file", "to_union>u", "to_mount>m/x", "loop>loop"],
    &["x/y", "x/link>../own", "own"],
    &["both/here", "b"],
    &["both/there", "c"],
];

const PATHS: [&str; 12] = [
    "u",
    "u/both",
    "u/own",
    "d/deep/file",
    "to_file",
    "to_union",
    "to_union/b",
    "to_mount/y",
    "m/x/link",
    "m/x/../own",
    "none/at/all",
    "loop",
];

impl Schedule {
    fn new(seed: u64) -> Schedule {
        let mut lab = Lab::new(&TREES);
        lab.mount("/m", 1, Order::Replace).unwrap_err();
        lab.mount("/d/deep", 1, Order::Before).unwrap();
        lab.mount("/u", 2, Order::After).unwrap();
        lab.mount("/u", 3, Order::After).unwrap();
        lab.slow = true;
        let rng = Rng::with_seed(seed);
        let (pending, nodes, unions) = (Vec::new(), Vec::new(), Vec::new());
        Schedule { lab, rng, pending, nodes, unions, made: 0 }
    }

    fn path(&mut self) -> Vec<Name> {
        parts(PATHS[self.rng.usize(..PATHS.len())])
    }

    /// Returns a node that is held, or the root.
    fn node(&mut self) -> NodeId {
        let at = self.rng.usize(..=self.nodes.len());
        self.nodes.get(at).copied().unwrap_or(self.lab.names.root())
    }

    fn name(&mut self) -> Name {
        let names = ["u", "both", "b", "own", "d"];
        Name::new(names[self.rng.usize(..names.len())].as_bytes()).unwrap()
    }

    fn request(&mut self) -> Ask {
        match self.rng.u8(..8) {
            0..3 => {
                let path = self.path();
                Ask::Fetch { root: None, path, read_max: 4, headroom: 0 }
            }
            3 | 4 => Ask::Walk { from: self.lab.names.root(), names: self.path() },
            5 => Ask::Open {
                node: self.node(),
                access: base::Access { read: true, ..base::Access::default() },
            },
            6 if !self.unions.is_empty() => {
                let open = self.unions[self.rng.usize(..self.unions.len())];
                match self.rng.bool() {
                    true => Ask::List { open, cookie: 0, bytes_max: 60, detail: Detail::Name },
                    false => Ask::Sync { open, data_only: false },
                }
            }
            _ if self.rng.bool() => {
                Ask::Remove { dir: self.lab.names.root(), name: self.name(), directory: None }
            }
            _ => {
                self.made += 1;
                let name = Name::new(format!("new{}", self.made).as_bytes()).unwrap();
                Ask::MakeDir { dir: self.lab.names.root(), name, mode: 0o755, gid: None }
            }
        }
    }

    fn step(&mut self) {
        match self.rng.u8(..10) {
            0..3 => {
                let ask = self.request();
                let id = self.lab.begin(ask);
                self.pending.push(id);
            }
            3 | 4 if !self.pending.is_empty() => {
                let id = self.pending[self.rng.usize(..self.pending.len())];
                self.lab.step(Input::Cancel(id));
            }
            5 if !self.nodes.is_empty() => {
                let node = self.nodes.swap_remove(self.rng.usize(..self.nodes.len()));
                self.lab.step(Input::Release(node));
            }
            _ => self.answer(),
        }
        self.collect();
    }

    /// Delivers the reply of one of the trees, or its cancellation.
    fn answer(&mut self) {
        if self.lab.wanted.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.lab.wanted.len());
        self.lab.wanted.swap(0, at);
        let (_, TreeInput::Ask(id, _)) = &self.lab.wanted[0] else { panic!("a request") };
        let id = *id;
        if self.lab.names.cancelled.contains(&id) && self.rng.bool() {
            self.lab.wanted.pop_front();
            self.lab.step(Input::Answered(id, Err(Error::Cancelled)));
        } else {
            self.lab.answer_one();
        }
    }

    /// Takes replies; holds or releases what they return.
    fn collect(&mut self) {
        for (id, reply) in std::mem::take(&mut self.lab.replies) {
            let at = self.pending.iter().position(|known| *known == id).expect("one reply each");
            self.pending.swap_remove(at);
            match reply {
                Ok(Reply::Walked(_, node)) => self.nodes.extend(node),
                Ok(Reply::Opened(open, _) | Reply::Fetched(_, _, Some(open))) => {
                    if open.tree() == NAMES {
                        self.unions.push(open);
                    } else {
                        self.lab.step(Input::Close(open));
                    }
                }
                Ok(
                    Reply::Fetched(_, _, None) | Reply::Entries(_) | Reply::Stat(_) | Reply::Done,
                )
                | Err(_) => {}
                Ok(other) => panic!("{other:?}"),
            }
        }
    }

    /// Ends all pending requests and releases everything held.
    fn end(mut self) {
        while !self.pending.is_empty() {
            self.answer();
            self.collect();
        }
        for node in std::mem::take(&mut self.nodes) {
            self.lab.step(Input::Release(node));
        }
        for open in std::mem::take(&mut self.unions) {
            self.lab.step(Input::Close(open));
        }
        self.lab.check_held();
        assert!(self.lab.fakes.iter().all(Fake::has_no_opens));
        assert!(self.lab.names.cancelled.is_empty() && self.lab.names.tasks.is_empty());
        assert!(self.lab.names.held.is_empty() && self.lab.names.queued.is_empty());
    }
}

#[test]
fn every_node_is_given_back_once_whatever_is_cancelled_and_when() {
    for seed in 0..3000 {
        let mut schedule = Schedule::new(seed);
        (0..80).for_each(|_| schedule.step());
        schedule.end();
    }
}

//! Canaries: errors planted on purpose, which the simulation must detect.
//!
//! Each sits between the node and the world and does something that a faulty node could have done:
//! swapping two results, losing a byte, a write, a file. A checker that detects none of them checks
//! nothing.

use crate::params::Params;
use crate::run::{attempt, run_with};
use crate::trace::Show;
use crate::world::World;
use base::op::{Done, Event, Op, OpId};
use base::{Buf, Instant, Reactor, Time};
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

/// A planted error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A read returns the bytes of the previous one.
    MixReads,
    /// A read loses its last byte.
    DropByte,
    /// A write is acknowledged but not performed.
    LoseWrite,
    /// Of two concurrent writes to one file, the later one writes zeros in its second half.
    TearWrite,
    /// A file is never closed.
    LeakFile,
    /// A file is closed twice.
    CloseTwice,
    /// A reply is sent twice.
    SayTwice,
}

impl Mistake {
    /// All planted errors.
    pub const ALL: [Mistake; 7] = [
        Mistake::MixReads,
        Mistake::DropByte,
        Mistake::LoseWrite,
        Mistake::TearWrite,
        Mistake::LeakFile,
        Mistake::CloseTwice,
        Mistake::SayTwice,
    ];
}

/// One of this number of occasions is affected.
const RARITY: u32 = 7;

/// A world that plants errors.
#[derive(Debug)]
struct Saboteur {
    world: World,
    mistake: Mistake,
    occasions: u32,
    /// Emptied writes, and their original lengths.
    emptied: BTreeMap<OpId, u32>,
    /// Files with writes in flight, by operation.
    writing: BTreeMap<OpId, u64>,
    /// Result of the last read.
    last: Buf,
}

impl Saboteur {
    fn occasion(&mut self, mistake: Mistake) -> bool {
        self.occasions += u32::from(self.mistake == mistake);
        self.mistake == mistake && self.occasions.is_multiple_of(RARITY)
    }
}

impl AsMut<World> for Saboteur {
    fn as_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl Reactor for Saboteur {
    fn now(&self) -> Instant {
        self.world.now()
    }

    fn wall(&self) -> Time {
        self.world.wall()
    }

    fn spent(&self) -> Duration {
        self.world.spent()
    }

    fn submit(&mut self, op: Op) {
        match op {
            Op::Write { id, caller, file, offset, data }
                if !data.is_empty() && self.occasion(Mistake::LoseWrite) =>
            {
                self.emptied.insert(id, u32::try_from(data.len()).expect("one message"));
                self.world.submit(Op::Write { id, caller, file, offset, data: Buf::default() });
            }
            Op::Write { id, caller, file, offset, data } => {
                let inode = self.world.env.disk.inode_of(file);
                let meets = self.writing.values().any(|other| *other == inode) && data.len() > 1;
                self.writing.insert(id, inode);
                // Few writes overlap, so all of those are affected.
                let data = match meets && self.mistake == Mistake::TearWrite {
                    true => zero_half(&data),
                    false => data,
                };
                self.world.submit(Op::Write { id, caller, file, offset, data });
            }
            Op::CloseFile { .. } if self.occasion(Mistake::LeakFile) => {}
            Op::CloseFile { file, client } if self.occasion(Mistake::CloseTwice) => {
                self.world.submit(Op::CloseFile { file, client });
                self.world.submit(Op::CloseFile { file, client });
            }
            Op::Send { id, socket, mut data } if self.occasion(Mistake::SayTwice) => {
                data.extend(data.last().cloned());
                self.world.submit(Op::Send { id, socket, data });
            }
            op => self.world.submit(op),
        }
    }

    fn wait(&mut self, deadline: Option<Instant>, events: &mut Vec<Event>) {
        self.world.wait(deadline, events);
        for event in events {
            self.writing.remove(&event.id);
            match &mut event.done {
                Done::Written(Ok(count)) => {
                    *count = self.emptied.remove(&event.id).unwrap_or(*count);
                }
                Done::Read(Ok(buf)) if !buf.is_empty() => {
                    let length = buf.len();
                    if self.occasion(Mistake::DropByte) {
                        buf.truncate(length - 1);
                    }
                    let before = mem::replace(&mut self.last, buf.clone());
                    if self.occasion(Mistake::MixReads) && before.headroom() == buf.headroom() {
                        *buf = before;
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the same data with zeros in its second half.
fn zero_half(data: &Buf) -> Buf {
    let mut bytes = data.to_vec();
    let half = bytes.len() / 2;
    bytes[half..].fill(0);
    Buf::from(bytes)
}

/// Searches for a planted error; returns the number of seeds it took and the failure found.
pub fn hunt(mistake: Mistake, seeds: u64) -> Option<(u64, String)> {
    for seed in 1..=seeds {
        let params = Params::calm(seed);
        let (emptied, writing, last) = (BTreeMap::new(), BTreeMap::new(), Buf::default());
        let wrap = |world| Saboteur { world, mistake, occasions: 0, emptied, writing, last };
        if let Err(found) = attempt(|| run_with(params, Show::Hash, wrap)) {
            return Some((seed, found));
        }
    }
    None
}

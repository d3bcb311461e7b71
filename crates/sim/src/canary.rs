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
use std::ops::Range;
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
    /// The limit of a quota is enforced when more bytes are used than it says.
    LaxQuota,
    /// The limit of a quota is enforced when fewer bytes are used than it says.
    TightQuota,
    /// The usage of a quota is reported with a file too many.
    Miscount,
    /// A volume grows by less than is acknowledged.
    SmallGrowth,
    /// A growth is acknowledged before its superblock is durable.
    LostGrowth,
}

impl Mistake {
    /// All planted errors.
    pub const ALL: [Mistake; 12] = [
        Mistake::MixReads,
        Mistake::DropByte,
        Mistake::LoseWrite,
        Mistake::TearWrite,
        Mistake::LeakFile,
        Mistake::CloseTwice,
        Mistake::SayTwice,
        Mistake::LaxQuota,
        Mistake::TightQuota,
        Mistake::Miscount,
        Mistake::SmallGrowth,
        Mistake::LostGrowth,
    ];

    /// Returns whether it changes messages about quotas or sizes.
    fn is_of_quotas(self) -> bool {
        matches!(
            self,
            Mistake::LaxQuota | Mistake::TightQuota | Mistake::Miscount | Mistake::SmallGrowth
        )
    }

    /// Returns the parameters of a run in which it can show.
    fn params(self, seed: u64) -> Params {
        let params = Params::calm(seed);
        match self {
            Mistake::MixReads
            | Mistake::DropByte
            | Mistake::LoseWrite
            | Mistake::TearWrite
            | Mistake::LeakFile
            | Mistake::CloseTwice
            | Mistake::SayTwice => params,
            Mistake::LaxQuota | Mistake::TightQuota | Mistake::Miscount => params.with_quotas(0),
            Mistake::SmallGrowth => params.with_quotas(0),
            Mistake::LostGrowth => params.with_quotas(4),
        }
    }
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
    /// Limits as set, by the ones enforced instead.
    limits: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Whether the last attribute that was created is the quota of a user: its limits are seen only
    /// where they are enforced.
    is_of_user: bool,
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
            Op::Send { id, socket, mut data } if self.mistake.is_of_quotas() => {
                data.iter_mut().for_each(|buf| self.change_reply(buf));
                self.world.submit(Op::Send { id, socket, data });
            }
            Op::WriteBlocks { id, file, offset, blocks, .. }
                if self.mistake == Mistake::LostGrowth && offset < store::HEAD_BYTES as u64 =>
            {
                self.world.submit(Op::WriteBlocks { id, file, offset, blocks, durable: false });
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
                Done::Received(Ok(buf)) => self.change_request(buf),
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

/// Type of the message that begins to set an attribute.
const XATTRCREATE: u8 = 32;

/// Attributes of quotas, and of those of users.
const ATTRIBUTE: &[u8] = b"trusted.upcall.quota";
const USER: &[u8] = b"trusted.upcall.quota.user.";
/// Words before the numbers that are changed.
const LIMIT: &[u8] = b"max_bytes=";
const FILES: &[u8] = b"used_inodes=";
const GROW: &[u8] = b"grow volume:/srv.volume ";

impl Saboteur {
    /// Changes a limit or a size on its way to the node.
    fn change_request(&mut self, buf: &mut Buf) {
        if find(buf, ATTRIBUTE).is_some() {
            // A message that arrives in pieces stays unchanged.
            self.is_of_user = buf.get(4) == Some(&XATTRCREATE) && find(buf, USER).is_some();
        }
        let word = if self.mistake == Mistake::SmallGrowth { GROW } else { LIMIT };
        let Some(number) = number_behind(buf, word) else { return };
        let is_of_user = mem::take(&mut self.is_of_user);
        let digits = buf[number.clone()].to_vec();
        let text = str::from_utf8(&digits).expect("digits");
        let value: u64 = text.parse().expect("a number");
        let other = match self.mistake {
            Mistake::LaxQuota if is_of_user => value + 40_959,
            Mistake::TightQuota if is_of_user => value.saturating_sub(40_959),
            Mistake::SmallGrowth => value - 4096,
            _others => return,
        };
        let other = other.to_string().into_bytes();
        if other.len() != digits.len() {
            return;
        }
        buf[number].copy_from_slice(&other);
        self.limits.insert(other, digits);
    }

    /// Changes a usage on its way from the node, and hides changed limits.
    fn change_reply(&mut self, buf: &mut Buf) {
        if let Some(number) = number_behind(buf, LIMIT)
            && let Some(digits) = self.limits.get(&buf[number.clone()])
        {
            buf[number].copy_from_slice(digits);
        }
        if self.mistake == Mistake::Miscount
            && let Some(number) = number_behind(buf, FILES)
            && let Some(digit) = buf[number].last_mut().filter(|digit| **digit < b'9')
        {
            *digit += 1;
        }
    }
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|window| window == word)
}

/// Returns the place of the digits behind a word.
fn number_behind(bytes: &[u8], word: &[u8]) -> Option<Range<usize>> {
    let start = find(bytes, word)? + word.len();
    let count = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then_some(start..start + count)
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
        let params = mistake.params(seed);
        let (emptied, writing, last) = (BTreeMap::new(), BTreeMap::new(), Buf::default());
        let (limits, is_of_user, occasions) = (BTreeMap::new(), false, 0);
        let wrap = |world| Saboteur {
            world,
            mistake,
            occasions,
            emptied,
            writing,
            last,
            limits,
            is_of_user,
        };
        if let Err(found) = attempt(|| run_with(params, Show::Hash, wrap)) {
            return Some((seed, found));
        }
    }
    None
}

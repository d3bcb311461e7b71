//! Directories: entries, and on request their attributes.

use super::message::{Message, walk};
use super::step::{Next, Outcome, Stats, Step, send};
use super::{Remote, words};
use crate::request::{Ask, NodeId, OpenId, Reply};
use base::op::Entry;
use base::{Error, Kind, Name};
use session::Dialect;
use wire::ninep::{IO_HEADER_SIZE, Rmessage, Tmessage, dirents};

/// Maximum number of entries whose attributes are requested at once.
const STATS_MAX: usize = 32;
/// Maximum number of replies with nothing but `.` and `..`.
const ROUNDS_MAX: u32 = 8;
/// Minimum size of a request and, with attributes, its maximum, bytes.
const BYTES_MIN: u32 = 512;
const BYTES_WITH_STAT: u32 = 16 << 10;

impl Remote {
    pub(super) fn start_list(&mut self, slot: usize) -> Outcome {
        let Ask::List { open, cookie, bytes_max, .. } = self.pending[slot].ask else {
            unreachable!("only lists come here")
        };
        match self.dialect() {
            Dialect::Linux => self.list_from(slot, open, cookie, 0),
            Dialect::Plan9 => self.list_plan9(open, cookie, bytes_max),
        }
    }

    fn list_from(&mut self, slot: usize, open: OpenId, offset: u64, round: u32) -> Outcome {
        let Ask::List { bytes_max, detail, .. } = self.pending[slot].ask else {
            unreachable!("only lists come here")
        };
        let most = if detail.has_stat() { bytes_max.min(BYTES_WITH_STAT) } else { bytes_max };
        let count = most.max(BYTES_MIN).min(self.calls.session().msize() - IO_HEADER_SIZE);
        let message = Tmessage::Readdir { fid: self.open_fid(open), offset, count };
        send(Step::Entries(round), &message)
    }

    pub(super) fn entries_answered(
        &mut self,
        slot: usize,
        round: u32,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let Ask::List { open, detail, .. } = self.pending[slot].ask else {
            unreachable!("only lists come here")
        };
        let data = match answer? {
            Rmessage::Readdir { data } => data.0,
            Rmessage::Read { data } => return self.plan9_entries(slot, round, data.0),
            _ => return self.wrong(),
        };
        let Ok(raw) = dirents(data) else {
            self.connection.blame("a directory that cannot be understood");
            return Err(Error::Io);
        };
        let entries: Vec<Entry> = raw
            .iter()
            .filter_map(|(qid, cookie, kind, name)| {
                let name = Name::new(name).ok().filter(Name::plain)?;
                let kind = Kind::ALL.into_iter().find(|known| known.dirent_type() == *kind);
                let kind = kind.unwrap_or(words::kind(*qid));
                Some(Entry {
                    cookie: *cookie,
                    inode: qid.path,
                    device: None,
                    kind,
                    name,
                    stat: None,
                    handle: None,
                })
            })
            .collect();
        match raw.last() {
            Some(_) if entries.is_empty() && round >= ROUNDS_MAX => Err(Error::Io),
            Some((_, cookie, ..)) if entries.is_empty() => {
                self.list_from(slot, open, *cookie, round + 1)
            }
            _ if detail.has_stat() && !entries.is_empty() => Ok(self.start_stats(slot, entries)),
            _ => Ok(Next::Reply(Reply::Entries(entries))),
        }
    }

    fn start_stats(&mut self, slot: usize, entries: Vec<Entry>) -> Next {
        let fids = entries.iter().map(|_| None).collect();
        let mut stats = Stats { entries, fids, next: 0 };
        let mut messages = Vec::new();
        while messages.len() < STATS_MAX
            && let Some(message) = self.next_stat(slot, &mut stats)
        {
            messages.push(message);
        }
        Next::More(Step::Stats(stats), messages)
    }

    /// Requests the next entry's attributes.
    fn next_stat(&mut self, slot: usize, stats: &mut Stats) -> Option<(u32, Message)> {
        let entry = stats.entries.get(stats.next)?;
        let Ask::List { open, .. } = self.pending[slot].ask else { return None };
        let dir = NodeId::new(self.index, self.opens[open.local()].inode);
        let from = self.fid_of(dir, self.pending[slot].user).ok()?;
        let fid = self.new_fid(slot);
        let message = Message::new(&walk(from, fid, std::slice::from_ref(&entry.name)));
        stats.fids[stats.next] = Some(fid);
        stats.next += 1;
        Some((u32::try_from(stats.next - 1).expect("entries of one message"), message))
    }

    pub(super) fn stats_answered(
        &mut self,
        slot: usize,
        mut stats: Stats,
        part: u32,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let index = part as usize;
        let fid = stats.fids[index].expect("it was looked for");
        let mut messages = Vec::new();
        match answer {
            Ok(Rmessage::Walk { qids }) if qids.as_slice().len() == 1 => {
                self.pending[slot].bound(fid);
                messages.push((part, Message::new(&words::stat(Dialect::Linux, fid))));
            }
            answer => {
                if let Ok(message) = answer {
                    stats.entries[index].stat = self.stat_of(message);
                }
                self.give_back(slot, fid);
                messages.extend(self.next_stat(slot, &mut stats));
            }
        }
        if messages.is_empty() && self.pending[slot].outstanding == 0 {
            return Ok(Next::Reply(Reply::Entries(stats.entries)));
        }
        Ok(Next::More(Step::Stats(stats), messages))
    }

    /// Frees a fid owned by a pending request.
    pub(super) fn give_back(&mut self, slot: usize, fid: u32) {
        let bound = self.pending[slot].fids.contains(&(fid, true));
        self.pending[slot].keep_fid(fid);
        if bound {
            self.clunk(fid);
        } else {
            self.calls.free_fid(fid);
        }
    }
}

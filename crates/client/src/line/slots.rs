//! Allocation and state of tags and fids.

use crate::message::Message;
use std::thread::Thread;

/// Number of usable tags; `NOTAG` is the next value.
const TAGS_MAX: usize = 0xffff;

/// Error replies of 9P2000.L and of 9P2000.
const RLERROR: u8 = 7;
const RERROR: u8 = 107;

pub(super) fn is_error(code: u8) -> bool {
    [RLERROR, RERROR].contains(&code)
}

/// State of a tag.
#[derive(Debug)]
pub(super) enum Slot {
    /// Unused, or its reply was taken.
    Free,
    /// Waiting for the reply, perhaps with a sleeping thread.
    Waiting {
        expects: u8,
        /// Fid that a successful reply creates.
        makes: Option<u32>,
        sleeper: Option<Thread>,
    },
    /// Reply not yet taken.
    Arrived { message: Message, makes: Option<u32> },
    /// Abandoned: waiting for the reply to its flush.
    Abandoned { expects: u8, makes: Option<u32> },
    /// Flush of another tag.
    Flushing { of: u16, expects: u8 },
    /// Clunk without a waiting thread.
    Forgotten { fid: u32, expects: u8 },
}

impl Slot {
    pub(super) fn waiting(code: u8, makes: Option<u32>) -> Slot {
        Slot::Waiting { expects: code + 1, makes, sleeper: None }
    }
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    /// By tag.
    slots: Vec<Slot>,
    free: Vec<u16>,
    fids: u32,
    free_fids: Vec<u32>,
}

impl Slots {
    pub(super) fn new_fid(&mut self) -> Option<u32> {
        self.free_fids.pop().or_else(|| {
            let fid = self.fids;
            self.fids = fid.checked_add(1)?;
            (fid != wire::ninep::NO_FID).then_some(fid)
        })
    }

    pub(super) fn free_fid(&mut self, fid: u32) {
        assert!(fid < self.fids, "a fid is given back that was given out");
        self.free_fids.push(fid);
    }

    /// Allocates a tag for a slot.
    pub(super) fn claim(&mut self, slot: Slot) -> Option<u16> {
        assert!(!matches!(slot, Slot::Free), "a tag is claimed for something");
        if let Some(tag) = self.free.pop() {
            assert!(matches!(self.slots[usize::from(tag)], Slot::Free), "what is free is free");
            self.slots[usize::from(tag)] = slot;
            return Some(tag);
        }
        let tag =
            u16::try_from(self.slots.len()).ok().filter(|tag| usize::from(*tag) < TAGS_MAX)?;
        self.slots.push(slot);
        Some(tag)
    }

    pub(super) fn release(&mut self, tag: u16) -> Slot {
        assert!(!matches!(self.slots[usize::from(tag)], Slot::Free), "a tag is released once");
        self.free.push(tag);
        std::mem::replace(&mut self.slots[usize::from(tag)], Slot::Free)
    }

    /// Registers the calling thread, which is about to sleep until the reply or a wake-up.
    pub(super) fn sleep(&mut self, tag: u16, thread: Thread) {
        if let Slot::Waiting { sleeper, .. } = &mut self.slots[usize::from(tag)] {
            // After a wake-up for another reason, it sleeps again.
            let before = sleeper.replace(thread);
            let same =
                before.is_none_or(|it| sleeper.as_ref().is_some_and(|now| now.id() == it.id()));
            assert!(same, "one thread waits for a reply");
        }
    }

    fn sleepers(&mut self) -> impl Iterator<Item = Thread> + '_ {
        self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Waiting { sleeper, .. } => sleeper.take(),
            Slot::Free
            | Slot::Arrived { .. }
            | Slot::Abandoned { .. }
            | Slot::Flushing { .. }
            | Slot::Forgotten { .. } => None,
        })
    }

    pub(super) fn wake_all(&mut self) {
        self.sleepers().for_each(|thread| thread.unpark());
    }

    pub(super) fn wake_one(&mut self) {
        if let Some(thread) = self.sleepers().next() {
            thread.unpark();
        }
    }

    pub(super) fn has_arrived(&self, tag: u16) -> bool {
        matches!(self.slots[usize::from(tag)], Slot::Arrived { .. })
    }

    /// Takes the reply if it has arrived; the tag stays allocated until it is discarded.
    pub(super) fn take_arrived(&mut self, tag: u16) -> Option<Message> {
        if !self.has_arrived(tag) {
            return None;
        }
        let taken = std::mem::replace(&mut self.slots[usize::from(tag)], Slot::Free);
        let Slot::Arrived { message, .. } = taken else { unreachable!("it was looked at") };
        Some(message)
    }

    /// Discards a request with its reply: `None` without a reply, else the fid to clunk.
    pub(super) fn discard_arrived(&mut self, tag: u16) -> Option<Option<u32>> {
        match &self.slots[usize::from(tag)] {
            // The reply was taken.
            Slot::Free => {
                self.free.push(tag);
                Some(None)
            }
            Slot::Arrived { message, makes } => {
                let makes = makes.filter(|_| !is_error(message.code()));
                self.release(tag);
                Some(makes)
            }
            Slot::Waiting { .. }
            | Slot::Abandoned { .. }
            | Slot::Flushing { .. }
            | Slot::Forgotten { .. } => None,
        }
    }

    /// Marks a request as abandoned.
    pub(super) fn abandon(&mut self, tag: u16) {
        let slot = &mut self.slots[usize::from(tag)];
        if let Slot::Waiting { expects, makes, .. } = *slot {
            *slot = Slot::Abandoned { expects, makes };
        }
    }

    /// Delivers a message to its request. Returns a fid to clunk.
    ///
    /// # Errors
    /// A description of the protocol violation.
    pub(super) fn deliver(&mut self, message: Message) -> Result<Option<u32>, String> {
        let (tag, code) = (message.tag(), message.code());
        let unknown = || format!("a reply with the unused tag {tag}");
        let slot = self.slots.get_mut(usize::from(tag)).ok_or_else(unknown)?;
        let expected = match slot {
            Slot::Free | Slot::Arrived { .. } => return Err(unknown()),
            Slot::Waiting { expects, .. }
            | Slot::Abandoned { expects, .. }
            | Slot::Flushing { expects, .. }
            | Slot::Forgotten { expects, .. } => *expects,
        };
        if code != expected && !is_error(code) {
            return Err(format!("a reply of type {code}, where {expected} is due"));
        }
        match slot {
            Slot::Waiting { makes, sleeper, .. } => {
                let (makes, sleeper) = (*makes, sleeper.take());
                *slot = Slot::Arrived { message, makes };
                sleeper.iter().for_each(Thread::unpark);
                Ok(None)
            }
            Slot::Abandoned { makes, .. } => {
                let made = makes.take();
                if let (Some(fid), true) = (made, is_error(code)) {
                    self.free_fids.push(fid);
                }
                Ok(made.filter(|_| !is_error(code)))
            }
            Slot::Flushing { of, .. } => {
                let of = *of;
                self.release(tag);
                if let Slot::Abandoned { makes: Some(fid), .. } = self.release(of) {
                    self.free_fids.push(fid);
                }
                Ok(None)
            }
            Slot::Forgotten { fid, .. } => {
                let fid = *fid;
                self.free_fids.push(fid);
                self.release(tag);
                Ok(None)
            }
            Slot::Free | Slot::Arrived { .. } => unreachable!("looked at above"),
        }
    }
}

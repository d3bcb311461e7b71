//! Which tags and fids are in use, and what for.

use crate::message::Message;
use std::thread::Thread;

/// Tags below this are used; `NOTAG` is the one above.
const TAGS_MAX: usize = 0xffff;

/// The error of 9P2000.L and that of 9P2000.
const RLERROR: u8 = 7;
const RERROR: u8 = 107;

pub(super) fn is_error(code: u8) -> bool {
    [RLERROR, RERROR].contains(&code)
}

/// What a tag is used for.
#[derive(Debug)]
pub(super) enum Slot {
    /// Nothing.
    Free,
    /// A request whose reply is waited for, perhaps by a thread that sleeps.
    Waiting {
        expects: u8,
        /// A fid that the server knows if it answers with success.
        makes: Option<u32>,
        sleeper: Option<Thread>,
    },
    /// A reply that nobody has taken yet.
    Arrived { message: Message, makes: Option<u32> },
    /// A request whose reply nobody wants: until its flush is answered.
    Abandoned { expects: u8, makes: Option<u32> },
    /// A flush of another tag.
    Flushing { of: u16, expects: u8 },
    /// A clunk that nobody waits for.
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

    /// A tag for this.
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

    /// The calling thread is going to sleep until the reply is there, or it is woken.
    pub(super) fn sleep(&mut self, tag: u16, thread: Thread) {
        if let Slot::Waiting { sleeper, .. } = &mut self.slots[usize::from(tag)] {
            // It sleeps again if it was woken for something else.
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

    /// Takes the reply if it is there; the tag stays the caller's until it is abandoned.
    pub(super) fn take_arrived(&mut self, tag: u16) -> Option<Message> {
        if !self.has_arrived(tag) {
            return None;
        }
        let taken = std::mem::replace(&mut self.slots[usize::from(tag)], Slot::Free);
        let Slot::Arrived { message, .. } = taken else { unreachable!("it was looked at") };
        Some(message)
    }

    /// Ends what has its reply: `None` if it has none yet, else the fid to be given back.
    pub(super) fn discard_arrived(&mut self, tag: u16) -> Option<Option<u32>> {
        match &self.slots[usize::from(tag)] {
            // Its reply was taken.
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

    /// Nobody waits for the reply any more.
    pub(super) fn abandon(&mut self, tag: u16) {
        let slot = &mut self.slots[usize::from(tag)];
        if let Slot::Waiting { expects, makes, .. } = *slot {
            *slot = Slot::Abandoned { expects, makes };
        }
    }

    /// Gives a message to whom it is for; a fid that has to be given back.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn deliver(&mut self, message: Message) -> Result<Option<u32>, String> {
        let (tag, code) = (message.tag(), message.code());
        let unknown = || format!("a reply with tag {tag}, which nothing was asked with");
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

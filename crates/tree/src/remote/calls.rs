//! The calls: messages that were sent and whose answers have not come, by tag.
//!
//! At most so many are outstanding at once; what comes beyond stands in line. A call that is
//! flushed keeps its tag until the server has answered the flush, and an answer that comes before
//! that counts (flush(5)).
//!
#![doc = include_str!("calls/states.md")]

#[cfg(test)]
mod tests;

use super::seek::Target;
use base::Buf;
use slab::Slab;
use std::collections::VecDeque;
use wire::ninep::{Rmessage, Tmessage};

const LERROR: u8 = 7;
const ERROR: u8 = 107;
const CLUNK: u8 = 120;
const REMOVE: u8 = 122;

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// An errand, and which of the messages that it has sent at once.
    Errand(usize, u32),
    /// A fid on its way.
    Seek(Target),
    /// Nobody, but the number of this fid is free afterwards.
    Clunk(u32),
}

/// A whole message without its tag, and data to be sent right behind it.
#[derive(Clone, Debug)]
pub(super) struct Message {
    head: Vec<u8>,
    data: Option<Buf>,
}

impl Message {
    pub(super) fn new(message: &Tmessage<'_>) -> Message {
        let mut head = Vec::new();
        message.encode(0, &mut head);
        Message { head, data: None }
    }

    /// A `Twrite` whose data stay where they are.
    pub(super) fn write(fid: u32, offset: u64, data: Buf) -> Message {
        let head = wire::ninep::write_header(fid, offset, data.len());
        Message { head, data: Some(data) }
    }

    /// The type byte.
    pub(super) fn code(&self) -> u8 {
        self.head[4]
    }

    fn send(mut self, tag: usize, out: &mut Vec<Buf>) {
        let tag = u16::try_from(tag).expect("far fewer calls than tags");
        self.head[5..7].copy_from_slice(&tag.to_le_bytes());
        out.push(Buf::from(self.head));
        out.extend(self.data.filter(|data| !data.is_empty()));
    }
}

/// What a tag stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for an answer of this type.
    Sent(Owner, u8),
    /// Waits for its answer or for that of the flush.
    Flushed(Owner, u8),
    /// Was answered, and waits for the answer of the flush.
    Late,
    /// Waits for the answer to the flush of this tag.
    Flush(usize),
}

/// What an answer was to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// To a call of this owner's.
    To(Owner),
    /// The server will not answer a call of this owner's that was flushed.
    Never(Owner),
    /// To a flush that came too late.
    Late,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Calls {
    tags: Slab<State>,
    /// Calls that are no flushes.
    sent: usize,
    sent_max: usize,
    waiting: VecDeque<(Owner, Message)>,
}

impl Calls {
    /// Room for so many at once.
    pub(super) fn new(sent_max: usize) -> Calls {
        let sent_max = sent_max.clamp(1, 16_384);
        Calls { tags: Slab::new(), sent: 0, sent_max, waiting: VecDeque::new() }
    }

    /// How many are outstanding, and how many stand in line.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.sent, self.waiting.len())
    }

    /// Sends a message, now or when it is its turn.
    pub(super) fn begin(&mut self, owner: Owner, message: Message, out: &mut Vec<Buf>) {
        self.waiting.push_back((owner, message));
        self.go_on(out);
    }

    fn go_on(&mut self, out: &mut Vec<Buf>) {
        while self.sent < self.sent_max
            && let Some((owner, message)) = self.waiting.pop_front()
        {
            self.sent += 1;
            let tag = self.tags.insert(State::Sent(owner, message.code() + 1));
            message.send(tag, out);
        }
    }

    /// Takes the first message out of the line that does not give a fid back.
    pub(super) fn give_up_first(&mut self) -> Option<Owner> {
        let keeps_fid =
            |(_, message): &(Owner, Message)| ![CLUNK, REMOVE].contains(&message.code());
        let first = self.waiting.iter().position(keeps_fid)?;
        self.waiting.remove(first).map(|(owner, _)| owner)
    }

    /// An answer has come.
    ///
    /// # Errors
    /// It answers nothing, or is not of the right type.
    pub(super) fn answered(
        &mut self,
        tag: u16,
        message: &Rmessage<'_>,
        out: &mut Vec<Buf>,
    ) -> Result<Answer, &'static str> {
        let (tag, code) = (usize::from(tag), message.code());
        let state = *self.tags.get(tag).ok_or("an answer to nothing that was asked")?;
        let fits = |expected: u8| code == expected || code == LERROR || code == ERROR;
        let answer = match state {
            State::Sent(_, expected) | State::Flushed(_, expected) if !fits(expected) => {
                return Err("an answer of the wrong type");
            }
            State::Sent(owner, _) => {
                self.tags.remove(tag);
                self.sent -= 1;
                Answer::To(owner)
            }
            State::Flushed(owner, _) => {
                self.tags[tag] = State::Late;
                Answer::To(owner)
            }
            State::Late => return Err("two answers to one message"),
            State::Flush(flushed) => {
                if !fits(109) {
                    return Err("an answer of the wrong type");
                }
                self.tags.remove(tag);
                self.sent -= 1;
                match self.tags.remove(flushed) {
                    State::Flushed(owner, _) => Answer::Never(owner),
                    State::Late => Answer::Late,
                    other @ (State::Sent(..) | State::Flush(_)) => {
                        unreachable!("{other:?} was flushed")
                    }
                }
            }
        };
        self.go_on(out);
        Ok(answer)
    }

    /// Asks the server to stop whatever an errand waits for. How many messages were not even sent.
    pub(super) fn flush(&mut self, errand: usize, out: &mut Vec<Buf>) -> u32 {
        let of = |owner: &Owner| matches!(owner, Owner::Errand(index, _) if *index == errand);
        let before = self.waiting.len();
        self.waiting.retain(|(owner, _)| !of(owner));
        let dropped = before - self.waiting.len();
        let mut flushed = Vec::new();
        for (tag, state) in &mut self.tags {
            if let State::Sent(owner, code) = *state
                && of(&owner)
            {
                *state = State::Flushed(owner, code);
                flushed.push(tag);
            }
        }
        for tag in flushed {
            let flush = self.tags.insert(State::Flush(tag));
            let oldtag = u16::try_from(tag).expect("far fewer calls than tags");
            Message::new(&Tmessage::Flush { oldtag }).send(flush, out);
        }
        u32::try_from(dropped).expect("few messages for an errand")
    }

    /// The connection is lost: nothing will be answered.
    pub(super) fn forget(&mut self) {
        *self = Calls::new(self.sent_max);
    }

    pub(super) fn check(&self) {
        let flushes = |state: &State| matches!(state, State::Flush(_));
        let given_up = |state: &State| matches!(state, State::Flushed(..) | State::Late);
        let count = |which: &dyn Fn(&State) -> bool| {
            self.tags.iter().filter(|(_, state)| which(state)).count()
        };
        assert_eq!(count(&flushes), count(&given_up), "each flush is of one call");
        assert_eq!(self.sent, self.tags.len() - count(&flushes));
        assert!(self.sent <= self.sent_max && (self.waiting.is_empty() || self.sent > 0));
        for (_, state) in &self.tags {
            if let State::Flush(flushed) = state {
                assert!(
                    self.tags.get(*flushed).is_some_and(given_up),
                    "a flush is of what is given up"
                );
            }
        }
    }
}

//! Outputs of the link, and the bytes of its connection.

use super::inodes::ROOT;
use super::link;
use super::message::{Owner, Target};
use super::news::LinkState;
use super::recovery::Waiter;
use super::{MSIZE_MIN, Remote, words};
use crate::request::{NodeId, Output};
use base::op::{Op, OpId};
use base::{Automaton, Buf, Caller, Error};
use session::{Agreement, Answer, message_size};
use wire::ninep::Rmessage;

/// Local numbers of the three operations that can be in flight.
const CONNECT: usize = 0;
const RECEIVE: usize = 1;
const SEND: usize = 2;

impl Remote {
    /// Steps the link and performs its outputs.
    pub(super) fn notify_link(&mut self, input: link::Input, out: &mut Vec<Output>) {
        let mut requested = Vec::new();
        self.link.step(self.now, input, &mut requested);
        for output in requested {
            self.perform(output, out);
        }
        self.rest(out);
    }

    fn perform(&mut self, output: link::Output, out: &mut Vec<Output>) {
        let id = self.op_id(CONNECT);
        match output {
            link::Output::Connect => {
                out.push(Output::Do(Op::Connect { id, to: self.server.next_address() }));
            }
            link::Output::Cancel => out.push(Output::Do(Op::Cancel { id })),
            link::Output::Offer(_, dialect) => {
                self.calls.offer(dialect, MSIZE_MIN..=self.config.msize);
                self.receive(out);
            }
            link::Output::Attach(dialect) => {
                assert_eq!(dialect, self.dialect(), "the link knows the dialect");
                let user = self.user_of(&Caller::Server);
                self.recovery(Target::BoundFid(ROOT, user), Waiter::Link, out);
            }
            link::Output::Up => {
                self.server.connected();
                self.outage.up();
                let session = self.calls.session();
                self.notify_link_state(LinkState::Up(session.dialect(), session.msize()));
                self.resume_queued(out);
            }
            link::Output::Lost(why) => self.lost(why, out),
            link::Output::Hangup(socket) => out.push(Output::Do(Op::Hangup { socket })),
            link::Output::Release(socket) => out.push(Output::Do(Op::CloseSocket { socket })),
        }
    }

    /// Notifies the link when no operation is in flight on a socket that it has shut down.
    fn rest(&mut self, out: &mut Vec<Output>) {
        let is_waiting =
            matches!(self.link.state(), link::State::Parting { .. } | link::State::Leaving { .. });
        if is_waiting && self.connection.is_idle() {
            self.notify_link(link::Input::Idle, out);
        }
    }

    pub(super) fn attached(&mut self, out: &mut Vec<Output>) {
        self.notify_link(link::Input::Attached, out);
    }

    /// Ends the connection after a protocol error.
    pub(super) fn settle(&mut self, out: &mut Vec<Output>) {
        if let Some(why) = self.connection.take_blame() {
            self.notify_link(link::Input::Broken(why), out);
        }
        self.begin_waiting(out);
    }

    /// Handles the loss of the connection for everything in flight on it.
    fn lost(&mut self, why: &'static str, out: &mut Vec<Output>) {
        self.outage.lost(self.now);
        self.notify_link_state(LinkState::Down(why));
        self.inodes.lose_fids();
        self.calls.close();
        self.connection.lose();
        self.drop_recoveries();
        self.requeue(out);
    }

    /// Sends the queued messages.
    pub(super) fn send(&mut self, out: &mut Vec<Output>) {
        let can_send = self.calls.has_unsent() && !self.connection.is_sending();
        let Some(socket) = self.link.socket().filter(|_| can_send) else { return };
        self.connection.begin_send();
        let (id, data) = (self.op_id(SEND), self.calls.take_unsent());
        out.push(Output::Do(Op::Send { id, socket, data }));
    }

    pub(super) fn sent(&mut self, sent: Result<(), Error>, out: &mut Vec<Output>) {
        self.connection.end_send();
        if sent.is_err() {
            self.notify_link(link::Input::Broken("the connection broke"), out);
        }
        self.rest(out);
    }

    fn receive(&mut self, out: &mut Vec<Output>) {
        let Some(into) = self.connection.begin_receive() else { return };
        let (id, socket) = (self.op_id(RECEIVE), self.link.socket());
        let socket = socket.expect("an open connection has a socket");
        out.push(Output::Do(Op::Receive { id, socket, into }));
    }

    pub(super) fn received(&mut self, received: Result<Buf, Error>, out: &mut Vec<Output>) {
        self.connection.end_receive();
        if !self.link.is_open() {
            return self.rest(out);
        }
        match received {
            Err(_) => return self.notify_link(link::Input::Broken("the connection broke"), out),
            Ok(bytes) if bytes.is_empty() => {
                return self.notify_link(link::Input::Broken("the server hung up"), out);
            }
            Ok(bytes) => self.take_messages(bytes, out),
        }
        if self.link.is_open() {
            self.receive(out);
        } else {
            self.rest(out);
        }
    }

    /// Processes the complete messages of the received bytes.
    fn take_messages(&mut self, received: Buf, out: &mut Vec<Output>) {
        let mut input = self.connection.take_input(received);
        let epoch = self.inodes.epoch();
        loop {
            match message_size(&input, self.calls.session().size_max()) {
                Ok(Some(size)) if input.len() >= size => {
                    self.take_message(&input[..size], out);
                    input.consume(size);
                }
                Ok(_) => break,
                Err(violation) => self.connection.blame(violation.text()),
            }
            let is_blamed = self.connection.is_blamed();
            self.settle(out);
            if is_blamed || self.inodes.epoch() != epoch {
                return;
            }
        }
        self.connection.keep_input(input);
    }

    fn take_message(&mut self, bytes: &[u8], out: &mut Vec<Output>) {
        let (answer, message) = match self.calls.receive(bytes) {
            Ok(received) => received,
            Err(violation) => return self.connection.blame(violation.text()),
        };
        let result = match message {
            Rmessage::Lerror { ecode } => Err(words::error_of_errno(ecode)),
            Rmessage::Error { ename } => Err(words::error_of_sentence(ename)),
            ref other => Ok(other),
        };
        match answer {
            Answer::Reply(Owner::Pending(slot, part)) => self.answered(slot, part, result, out),
            Answer::Reply(Owner::Recovery(target)) => self.recovered(target, result, out),
            Answer::Never(Owner::Pending(slot, _)) => self.never(slot, out),
            Answer::Never(Owner::Recovery(_)) => unreachable!("recoveries are not flushed"),
            Answer::Version(Agreement::Agreed(dialect, _)) => {
                self.notify_link(link::Input::Agreed(dialect), out);
            }
            Answer::Version(Agreement::Unknown) => self.notify_link(link::Input::Unknown, out),
            Answer::Version(Agreement::Refused) => self.notify_link(link::Input::Refused, out),
            Answer::Done => {}
        }
    }

    /// Returns the id of an operation by its local number.
    fn op_id(&self, local: usize) -> OpId {
        OpId(NodeId::new(self.index, self.config.first_op + local).0)
    }
}

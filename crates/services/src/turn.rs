//! Work of a replica in one turn of its server: a bounded number of units, the rest later.
//!
//! There are five kinds of work: unfinished steps of the replica, peer messages of peers, lines of
//! clients, snapshots, and texts to be read. Each turn starts with another kind. Open files take
//! turns with their lines, and one with expensive lines waits until the others have caused as much
//! work.

use crate::hosted::Hosted;
use crate::op_session::QUESTION;
use crate::opened::{Job, Opened};
use crate::peer_message::{BEGIN, CHUNK_MAX};
use base::{Automaton as _, Buf, Error, Instant};
use replica::data::Kind;
use replica::data::sheet::FORMULAS_MAX;
use replica::service;
use replica::work::{self, Meter, PIECE_MAX};
use std::mem;
use tree::flat::part;
use tree::{Output, Reply, RequestId};

/// Work units of an open file before others have their turn.
const QUANTUM: i64 = 2048;

/// Bytes of a snapshot encoded at a time.
const PIECE: usize = 64 << 10;

/// Number of kinds of work.
const KINDS: u32 = 5;

impl Hosted {
    /// Performs the work of a turn.
    pub(crate) fn work(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.kind = (self.kind + 1) % KINDS;
        let first = self.kind;
        for kind in (0..KINDS).map(|number| (first + number) % KINDS) {
            match kind {
                0 if self.replica.deadline().is_some_and(|at| at <= now) => {
                    self.step_replica(now, service::Input::Tick, out);
                }
                1 => self.take_all_peer_messages(now, out),
                2 => self.take_lines(now, out),
                3 => self.write_snapshots(out),
                4 => self.show_texts(now, out),
                _nothing => {}
            }
        }
    }

    /// Reports whether work is left.
    pub(crate) fn has_work(&self) -> bool {
        let takes = !self.turns.is_empty() && !self.replica.is_behind();
        let writes = self.writing.is_some() && self.journal.room() > 0 || self.has_join_snapshots();
        takes || writes || !self.jobs.is_empty() || !self.writers.is_empty()
    }

    /// Ends a turn, and renews the work allowance.
    pub(crate) fn end_turn(&mut self) {
        self.worked = mem::replace(&mut self.meter, Meter::new(self.limits.work)).spent();
        self.worked_ever += self.worked;
    }

    pub(crate) fn check_work(&self) {
        let most = self.limits.work + PIECE_MAX;
        assert!(self.worked <= most, "{} units in one turn: {most} are allowed", self.worked);
    }

    /// Queues the peer messages written to an open file.
    pub(crate) fn queue_peer_messages(&mut self, open: usize) {
        if let Some(Opened::PeerAcceptor(acceptor)) = self.opens.get_mut(open) {
            self.next_turn += 1;
            acceptor.turn = Some(self.next_turn);
            self.writers.insert(self.next_turn, open);
        }
    }

    /// Processes queued peer messages in order.
    fn take_all_peer_messages(&mut self, now: Instant, out: &mut Vec<Output>) {
        while self.meter.has_left()
            && let Some((turn, open)) = self.writers.pop_first()
        {
            if !self.take_peer_messages(now, open, out) {
                self.writers.insert(turn, open);
            } else if let Some(Opened::PeerAcceptor(acceptor)) = self.opens.get_mut(open)
                && acceptor.turn == Some(turn)
            {
                acceptor.turn = None;
            }
        }
    }

    /// Queues a text to be opened.
    pub(crate) fn queue_text(&mut self, job: Job) {
        self.next_turn += 1;
        self.jobs.insert(self.next_turn, job);
        self.showing.insert(job.id, self.next_turn);
    }

    /// Drops the queued text of a request. Returns whether there was one.
    pub(crate) fn drop_text(&mut self, id: RequestId) -> bool {
        let Some(turn) = self.showing.remove(&id) else { return false };
        self.jobs.remove(&turn);
        true
    }

    fn show_texts(&mut self, now: Instant, out: &mut Vec<Output>) {
        while self.meter.has_left()
            && let Some((turn, job)) = self.jobs.pop_first()
        {
            let Job { id, file, first } = job;
            let Some(text) = self.show(file) else {
                self.jobs.insert(turn, job);
                return;
            };
            self.showing.remove(&id);
            let reply = match first {
                Some(first) => self.fetch(now, (id, file), text, first, out),
                None => {
                    let stat = base::Stat { size: text.len() as u64, ..self.stat(file) };
                    let opened = self.open_text(now, id, text, out);
                    opened.map(|open| Reply::Opened(open, stat))
                }
            };
            out.push(Output::Reply(id, reply));
        }
    }

    /// Formats a text, if enough work is left.
    fn show(&mut self, file: usize) -> Option<Vec<u8>> {
        let text = self.text(file)?;
        self.meter.spend(1 + work::of_bytes(text.len()));
        Some(text)
    }

    fn fetch(
        &mut self,
        now: Instant,
        (id, file): (RequestId, usize),
        text: Vec<u8>,
        (read_max, room): (u32, u32),
        out: &mut Vec<Output>,
    ) -> Result<Reply, Error> {
        let stat = base::Stat { size: text.len() as u64, ..self.stat(file) };
        let first: Buf = part(&text, 0, read_max, room);
        let rest = text.len() > first.len();
        let open = rest.then(|| self.open_text(now, id, text, out)).transpose()?;
        Ok(Reply::Fetched(stat, first, open))
    }

    /// Queues an open file with processable lines.
    pub(crate) fn take_turn(&mut self, open: usize) {
        if let Some(Opened::Ops(op_session, _)) = self.opens.get_mut(open)
            && op_session.turn.is_none()
            && op_session.can_go_on()
        {
            self.next_turn += 1;
            op_session.turn = Some(self.next_turn);
            self.turns.insert(self.next_turn, open);
        }
    }

    /// Processes lines of open files in turn. Only one request at a time waits at the replica.
    fn take_lines(&mut self, now: Instant, out: &mut Vec<Output>) {
        while self.meter.has_left()
            && !self.replica.is_behind()
            && let Some((_, open)) = self.turns.pop_first()
        {
            let Some(Opened::Ops(op_session, _)) = self.opens.get_mut(open) else { continue };
            self.meter.spend(1);
            (op_session.turn, op_session.credit) = (None, op_session.credit + QUANTUM);
            self.take_lines_of(now, open, out);
            let Some(Opened::Ops(op_session, _)) = self.opens.get_mut(open) else { continue };
            if !op_session.can_go_on() {
                op_session.credit = op_session.credit.min(0);
            }
            self.answer_reads(open, out);
        }
    }

    fn take_lines_of(&mut self, now: Instant, open: usize, out: &mut Vec<Output>) {
        while self.meter.has_left() && !self.replica.is_behind() {
            let Some(Opened::Ops(op_session, _)) = self.opens.get_mut(open) else { return };
            if op_session.credit <= 0 || !op_session.can_go_on() {
                return;
            }
            if !self.make_room(now, open, QUESTION, out) {
                return self.give_up(now, open, out);
            }
            let Some(Opened::Ops(op_session, _)) = self.opens.get_mut(open) else { return };
            let Some(line) = op_session.next_line() else { return };
            let before = self.meter.spent();
            self.meter.spend(self.work_of(&line));
            self.request(now, open, &line, out);
            if let Some(Opened::Ops(op_session, _)) = self.opens.get_mut(open) {
                op_session.credit -= (self.meter.spent() - before).cast_signed();
            }
        }
    }

    /// Returns the work to parse a line. Potential formulas are parsed byte by byte.
    fn work_of(&self, line: &[u8]) -> u64 {
        let parsed = match self.settings.kind {
            Kind::Sheet => line.len().min(FORMULAS_MAX),
            Kind::Counter | Kind::Text | Kind::Register | Kind::Map | Kind::Set | Kind::Log => 0,
        };
        1 + work::of_bytes(line.len()) + parsed as u64
    }

    /// Encodes more of the snapshots in progress: of the journal, and for new members.
    fn write_snapshots(&mut self, out: &mut Vec<Output>) {
        if let Some(mut writing) = self.writing.take() {
            let mut ends = !self.journal.is_fed();
            while !ends && self.meter.has_left() && self.journal.room() > 0 {
                let (most, mut some) = (self.journal.room().min(PIECE), Vec::new());
                ends = self.replica.write(&mut writing, most, &mut self.meter, &mut some);
                self.journal.feed(&some, ends);
            }
            match ends {
                true => self.replica.end_writing(writing),
                false => self.writing = Some(writing),
            }
        }
        for open in self.join_snapshots.clone() {
            self.write_join_snapshot(open, out);
        }
    }

    fn has_join_snapshots(&self) -> bool {
        self.join_snapshots
            .iter()
            .any(|open| matches!(&self.opens[*open], Opened::PeerAcceptor(it) if it.wants_more()))
    }

    /// Encodes more of a join snapshot.
    fn write_join_snapshot(&mut self, open: usize, out: &mut Vec<Output>) {
        while self.meter.has_left()
            && let Some(Opened::PeerAcceptor(acceptor)) = self.opens.get_mut(open)
            && acceptor.wants_more()
        {
            let mut some = if acceptor.is_begun() { Vec::new() } else { vec![BEGIN] };
            let writing = acceptor.join_snapshot.as_mut().expect("more is wanted of it");
            let ends = self.replica.write(writing, CHUNK_MAX / 2, &mut self.meter, &mut some);
            let mut parts = some.chunks(CHUNK_MAX).peekable();
            while let Some(part) = parts.next() {
                acceptor.add(part, ends && parts.peek().is_none());
            }
            if ends {
                let writing = acceptor.join_snapshot.take().expect("it was written");
                self.replica.end_writing(*writing);
                self.join_snapshots.remove(&open);
            }
        }
        if let Some(Opened::PeerAcceptor(acceptor)) = self.opens.get_mut(open)
            && let Some(read) = acceptor.waiting_read()
            && acceptor.answer_read(out)
        {
            self.reading.remove(&read);
        }
        self.count(open);
    }
}

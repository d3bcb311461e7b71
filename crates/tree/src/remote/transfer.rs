//! Reads and writes, split into messages that are all sent at once.

use super::message::Message;
use super::step::{Gather, Next, Outcome, Step, send};
use super::{Remote, words};
use crate::request::{Ask, Reply};
use base::{Buf, Error, Stat};
use wire::ninep::{IO_HEADER_SIZE, Rmessage, Tmessage};

/// Minimum piece size, bytes; a smaller `iounit` of the server is ignored.
const PIECE_MIN: u32 = 512;

impl Remote {
    /// Returns the maximum data size of a message, bytes.
    pub(super) fn piece_max(&self, iounit: u32) -> u32 {
        assert!(self.calls.session().msize() > IO_HEADER_SIZE, "less is not agreed");
        let fits = self.calls.session().msize() - IO_HEADER_SIZE;
        if iounit < PIECE_MIN { fits } else { fits.min(iounit) }
    }

    /// Returns the messages that read `count` bytes.
    pub(super) fn read(
        &self,
        fid: u32,
        iounit: u32,
        offset: u64,
        count: u32,
        headroom: u32,
    ) -> Next {
        let most = self.piece_max(iounit);
        let starts = (0..count.max(1)).step_by(most as usize);
        let requested: Vec<u32> = starts.map(|start| most.min(count - start)).collect();
        let mut at = offset;
        let mut messages = Vec::new();
        for count in &requested {
            messages.push(Message::new(&Tmessage::Read { fid, offset: at, count: *count }));
            at = at.saturating_add((*count).into());
        }
        let got = requested.iter().map(|_| None).collect();
        Next::Send(Step::Reading(Gather { requested, got, headroom, iounit }), messages)
    }

    pub(super) fn start_transfer(&mut self, slot: usize) -> Outcome {
        match &mut self.pending[slot].ask {
            Ask::Read { open, offset, count, headroom } => {
                let (open, offset, count, headroom) = (*open, *offset, *count, *headroom);
                let iounit = self.opens[open.local()].iounit;
                Ok(self.read(self.open_fid(open), iounit, offset, count, headroom))
            }
            Ask::Write { open, offset, data } => {
                let (open, offset, data) = (*open, *offset, std::mem::take(data));
                Ok(self.write(open.local(), offset, data))
            }
            other => unreachable!("{other:?} is no transfer"),
        }
    }

    fn write(&mut self, open: usize, offset: u64, mut data: Buf) -> Next {
        let it = &self.opens[open];
        let (fid, iounit, appends) = (it.fid, it.iounit, it.access.append);
        let most = self.piece_max(iounit) as usize;
        if appends && data.len() > most {
            // The server may process appends in any order, each at the end of the file at that
            // time. Only one message is sent; the rest is reported as not written.
            data.truncate(most);
        }
        let (mut messages, mut parts, mut at) = (Vec::new(), Vec::new(), offset);
        loop {
            let piece = if data.len() > most { Buf::from(&data[..most]) } else { data.clone() };
            let count = piece.len();
            parts.push((u32::try_from(count).expect("less than a message"), None));
            messages.push(Message::write(fid, at, piece));
            if count == data.len() {
                return Next::Send(Step::Writing(parts), messages);
            }
            data.consume(count);
            at = at.saturating_add(count as u64);
        }
    }

    /// Sends an fsync of either dialect.
    ///
    /// # Errors
    /// `Disconnected`, once, if writes may have been lost with a connection.
    pub(super) fn sync(&mut self, slot: usize, message: &Tmessage<'_>) -> Outcome {
        let client = self.pending[slot].request.requester();
        let Ask::Sync { open, data_only } = self.pending[slot].ask else {
            unreachable!("the caller has seen it")
        };
        self.expect_kept(open, client)?;
        // In 9P2000 it is one message for both.
        let data_only = data_only && matches!(message, Tmessage::Fsync { .. });
        let covered = self.writes(open).covered(data_only);
        send(Step::Syncing(covered), message)
    }

    /// Handles the reply to an fsync.
    pub(super) fn synced(
        &mut self,
        slot: usize,
        covered: u64,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let (Ask::Sync { open, .. }, _) = (&self.pending[slot].ask, answer?) else {
            unreachable!("only an fsync is sent as one");
        };
        let open = *open;
        self.writes(open).synced(covered);
        Ok(Next::Reply(Reply::Done))
    }

    pub(super) fn read_answered(
        &mut self,
        slot: usize,
        mut gather: Gather,
        part: u32,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let part = part as usize;
        assert!(gather.got[part].is_none(), "a piece is answered once");
        let piece = match answer {
            Ok(Rmessage::Read { data }) if data.0.len() > gather.requested[part] as usize => {
                self.connection.blame("more data than requested");
                Err(Error::Io)
            }
            Ok(Rmessage::Read { data }) => {
                let headroom = if part == 0 { gather.headroom as usize } else { 0 };
                let mut buf = Buf::with_room(headroom, data.0.len());
                buf.extend(data.0);
                Ok(buf)
            }
            Ok(_) => Err(Error::Io),
            Err(error) => Err(error),
        };
        gather.got[part] = Some(piece);
        if self.pending[slot].outstanding > 0 {
            return Ok(Next::More(Step::Reading(gather), Vec::new()));
        }
        let iounit = gather.iounit;
        let data = gather.join()?;
        Ok(match &self.pending[slot].ask {
            Ask::Read { .. } => Next::Reply(Reply::Data(data)),
            Ask::Fetch { .. } => self.fetch_read(slot, iounit, data),
            _attribute => Next::Reply(Reply::Bytes(data.to_vec())),
        })
    }

    pub(super) fn write_answered(
        &mut self,
        slot: usize,
        mut parts: Vec<(u32, Option<u32>)>,
        part: u32,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let part = part as usize;
        assert!(parts[part].1.is_none(), "a piece is answered once");
        match answer {
            Ok(Rmessage::Write { count }) if *count > parts[part].0 => {
                self.connection.blame("more was written than was sent");
                parts[part].1 = Some(0);
            }
            Ok(Rmessage::Write { count }) => parts[part].1 = Some(*count),
            // Nothing of this piece; earlier pieces may be written.
            Ok(_) => parts[part].1 = Some(0),
            Err(error) => {
                parts[part].1 = Some(0);
                if part == 0 {
                    self.pending[slot].failed = Some(error);
                }
            }
        }
        if self.pending[slot].outstanding > 0 {
            return Ok(Next::More(Step::Writing(parts), Vec::new()));
        }
        if let Some(error) = self.pending[slot].failed {
            return Err(error);
        }
        let mut total = 0;
        for (wanted, written) in parts {
            // A flushed piece may be written or not.
            let written = written.ok_or(Error::Cancelled)?;
            total += written;
            if written < wanted {
                break;
            }
        }
        match self.pending[slot].ask {
            Ask::Write { .. } => Ok(Next::Reply(Reply::Written(total))),
            _ => self.attr_written(slot, total),
        }
    }

    /// Returns the attributes of a reply in either dialect; `None` for another message.
    pub(super) fn stat_of(&self, message: &Rmessage<'_>) -> Option<Stat> {
        match message {
            Rmessage::Stat { stat } => Some(words::stat_of_wire(stat, self.config.device)),
            other => words::stat_of_getattr(other, self.config.device).map(|(_, stat)| stat),
        }
    }

    /// Handles the reply to an open.
    pub(super) fn opened(
        &mut self,
        slot: usize,
        fid: u32,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let iounit = match answer? {
            Rmessage::Lopen { iounit, .. }
            | Rmessage::Open { iounit, .. }
            | Rmessage::Lcreate { iounit, .. }
            | Rmessage::Create { iounit, .. } => *iounit,
            _ => return self.wrong(),
        };
        if let Ask::Fetch { .. } = self.pending[slot].ask {
            return self.fetch_opened(slot, fid, iounit);
        }
        let message = words::stat(self.dialect(), fid);
        send(Step::Regard(fid, iounit), &message)
    }

    /// Handles the attributes of a file opened or created, and hands it out.
    pub(super) fn regarded(
        &mut self,
        slot: usize,
        fid: u32,
        iounit: u32,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let message = answer?;
        let Some(stat) = self.stat_of(message) else { return self.wrong() };
        let qid = match message {
            Rmessage::Stat { stat } => stat.qid,
            Rmessage::Getattr { qid, .. } => *qid,
            _ => return self.wrong(),
        };
        match self.pending[slot].ask.clone() {
            Ask::Open { node, access } => {
                self.learn(node, qid);
                let inode = node.local();
                self.inodes.pin(inode);
                let open = self.open_of(slot, inode, &stat, fid, iounit, access);
                Ok(Next::Reply(Reply::Opened(open, stat)))
            }
            Ask::Create { dir, name, access, .. } => {
                let inode = self.inodes.enter(dir.local(), &name, qid);
                // One pin for the node, one for the open file.
                self.inodes.pin(inode);
                let node = crate::request::NodeId::new(self.index, inode);
                let open = self.open_of(slot, inode, &stat, fid, iounit, access);
                self.inodes.note_created(inode, self.pending[slot].user, open.local());
                Ok(Next::Reply(Reply::Created(node, open, stat)))
            }
            _other => Err(Error::Io),
        }
    }

    fn open_of(
        &mut self,
        slot: usize,
        inode: usize,
        stat: &Stat,
        fid: u32,
        iounit: u32,
        access: base::Access,
    ) -> crate::request::OpenId {
        self.pending[slot].keep_fid(fid);
        let open = super::open::Open::new(inode, stat.kind, self.pending[slot].user, access);
        let open = super::open::Open { fid, epoch: self.inodes.epoch(), iounit, ..open };
        self.add_open(open)
    }
}

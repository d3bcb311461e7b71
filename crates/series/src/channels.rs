//! Channels between the parts of a service: TCP on loopback, one connection for each pair.
//!
//! A message is its length in four bytes, followed by its bytes. Received messages are queued until
//! taken, as in the queue of the paper's message passing library.

use crate::latch::{Latch, timeout};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Instant;

/// Bytes in one read.
const PIECE: usize = 16 << 10;

/// Size of the length field, in bytes.
const LENGTH: usize = 4;

/// One end of a connection.
#[derive(Debug)]
struct Channel {
    stream: TcpStream,
    incoming: Vec<u8>,
    /// Bytes of `incoming` already taken.
    taken: usize,
    /// Bytes not yet accepted by the kernel.
    outgoing: Vec<u8>,
}

impl Channel {
    fn new(stream: TcpStream) -> io::Result<Channel> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Channel { stream, incoming: Vec::new(), taken: 0, outgoing: Vec::new() })
    }

    /// Returns the next message, if it is complete.
    fn next(&mut self) -> Option<&[u8]> {
        let rest = &self.incoming[self.taken..];
        let length = u32::from_le_bytes(*rest.first_chunk()?);
        let end = LENGTH + usize::try_from(length).expect("it was one");
        let message = rest.get(LENGTH..end)?;
        self.taken += end;
        Some(message)
    }

    fn collect(&mut self) -> io::Result<()> {
        self.incoming.drain(..self.taken);
        self.taken = 0;
        let before = self.incoming.len();
        self.incoming.resize(before + PIECE, 0);
        let read = match self.stream.read(&mut self.incoming[before..]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            other => other,
        };
        self.incoming.truncate(before + *read.as_ref().unwrap_or(&0));
        read.map(|_| ())
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Channels of one part.
#[derive(Debug)]
pub(crate) struct Channels {
    /// By peer; `None` for the part itself.
    channels: Vec<Option<Channel>>,
}

impl Channels {
    /// Connects each pair of `parts` parts.
    pub(crate) fn mesh(parts: usize) -> io::Result<Vec<Channels>> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let empty = || Channels { channels: (0..parts).map(|_| None).collect() };
        let mut posts: Vec<Channels> = (0..parts).map(|_| empty()).collect();
        for one in 0..parts {
            for other in 0..one {
                let near = TcpStream::connect(address)?;
                let (far, _) = listener.accept()?;
                posts[one].channels[other] = Some(Channel::new(near)?);
                posts[other].channels[one] = Some(Channel::new(far)?);
            }
        }
        Ok(posts)
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, to: usize, message: &[u8]) -> io::Result<()> {
        let channel = self.channels[to].as_mut().expect("nobody talks to itself");
        let length = u32::try_from(message.len()).expect("a message is shorter");
        channel.outgoing.extend_from_slice(&length.to_le_bytes());
        channel.outgoing.extend_from_slice(message);
        channel.flush()
    }

    /// Takes the next message of this part.
    pub(crate) fn next(&mut self, from: usize) -> Option<&[u8]> {
        self.channels[from].as_mut()?.next()
    }

    /// Receives available data without waiting.
    pub(crate) fn collect(&mut self) -> io::Result<()> {
        self.poll(None, Timespec { tv_sec: 0, tv_nsec: 0 })
    }

    /// Waits for data, the latch or a deadline, and receives.
    pub(crate) fn wait(&mut self, latch: &Latch, until: Option<Instant>) -> io::Result<()> {
        self.poll(Some(latch), timeout(until))
    }

    fn poll(&mut self, latch: Option<&Latch>, timeout: Timespec) -> io::Result<()> {
        let interest = |channel: &Channel| match channel.outgoing.is_empty() {
            true => PollFlags::IN,
            false => PollFlags::IN | PollFlags::OUT,
        };
        let channels = || self.channels.iter().flatten();
        let polled = channels().map(|each| PollFd::new(&each.stream, interest(each)));
        let latch = latch.map(|latch| PollFd::from_borrowed_fd(latch.as_fd(), PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = polled.chain(latch).collect();
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        for (channel, happened) in self.channels.iter_mut().flatten().zip(happened) {
            if happened.contains(PollFlags::OUT) {
                channel.flush()?;
            }
            if happened.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                channel.collect()?;
            }
        }
        Ok(())
    }
}

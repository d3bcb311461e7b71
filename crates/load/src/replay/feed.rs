//! Read-ahead of a trace on a separate thread.

use crate::trace::Error;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Records in a piece, and below the number of pieces read ahead.
const PIECE: usize = 1024;
const PIECES: usize = 256;

/// Read error, once it is known.
type Trouble = Arc<Mutex<Option<Error>>>;

/// Reader of a trace.
#[derive(Debug)]
pub struct Feed {
    trouble: Trouble,
    thread: thread::JoinHandle<()>,
}

impl Feed {
    /// Returns the reason why the trace was not read to its end.
    pub fn trouble(self) -> Option<String> {
        let reported = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A reader that still runs was only stopped.
        let panicked = self.thread.is_finished() && self.thread.join().is_err();
        reported
            .map(|error| error.to_string())
            .or_else(|| panicked.then(|| "its reader has panicked".to_string()))
    }
}

/// Records read ahead.
pub(super) struct Supply<T> {
    pieces: Receiver<Vec<T>>,
    here: VecDeque<T>,
    over: bool,
}

impl<T> Supply<T> {
    /// Returns the next record, if it has been read.
    pub(super) fn take(&mut self) -> Option<T> {
        if self.here.is_empty() {
            match self.pieces.try_recv() {
                Ok(piece) => self.here = piece.into(),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.over = true,
            }
        }
        self.here.pop_front()
    }

    /// Reports whether all records are consumed.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

/// Starts the reader. Returns when the first piece, or everything, has been read.
pub(super) fn start<T, I>(records: I) -> (Supply<T>, Feed)
where
    T: Send + 'static,
    I: Iterator<Item = Result<T, Error>> + Send + 'static,
{
    let (sender, pieces) = sync_channel(PIECES);
    let trouble = Trouble::default();
    let reported = trouble.clone();
    let (ready, wait) = sync_channel(1);
    #[allow(clippy::disallowed_methods, reason = "a file is read while others watch the clock")]
    let thread = thread::spawn(move || {
        // Signals are meant for the caller's threads; on this one they would end the process.
        reactor::hold_signals();
        if let Err(error) = read(records, &sender, &ready) {
            *reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    });
    // The reader ends by itself if there is nothing to wait for.
    let _ = wait.recv();
    (Supply { pieces, here: VecDeque::new(), over: false }, Feed { trouble, thread })
}

fn read<T>(
    records: impl Iterator<Item = Result<T, Error>>,
    sender: &SyncSender<Vec<T>>,
    ready: &SyncSender<()>,
) -> Result<(), Error> {
    let mut piece = Vec::with_capacity(PIECE);
    let mut pieces = 0;
    for record in records {
        match record {
            Ok(record) => piece.push(record),
            Err(error) => {
                // Without a receiver the run is over.
                let _ = sender.send(piece);
                return Err(error);
            }
        }
        if piece.len() == PIECE {
            if sender.send(std::mem::replace(&mut piece, Vec::with_capacity(PIECE))).is_err() {
                return Ok(());
            }
            pieces += 1;
            if pieces == PIECES / 2 {
                let _ = ready.try_send(());
            }
        }
    }
    let _ = sender.send(piece);
    Ok(())
}

//! Reading a trace ahead, by a thread of its own.

use crate::trace::Error;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Records of one piece, and how many pieces are read ahead.
const PIECE: usize = 1024;
const PIECES: usize = 256;

/// What went wrong, if something did, once it is known.
type Trouble = Arc<Mutex<Option<Error>>>;

/// The reading of a trace.
#[derive(Debug)]
pub struct Feed {
    trouble: Trouble,
    thread: thread::JoinHandle<()>,
}

impl Feed {
    /// Why the trace was not read to its end, in words.
    pub fn trouble(self) -> Option<String> {
        let told = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        // One that still reads has only been stopped.
        let panicked = self.thread.is_finished() && self.thread.join().is_err();
        told.map(|error| error.to_string())
            .or_else(|| panicked.then(|| "its reader has panicked".to_string()))
    }
}

/// What has been read.
pub(super) struct Supply<T> {
    pieces: Receiver<Vec<T>>,
    here: VecDeque<T>,
    over: bool,
}

impl<T> Supply<T> {
    /// The next record, if it has been read.
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

    /// Whether all of it has been taken.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

/// Begins to read; the first pieces are there when this returns, or all there is.
pub(super) fn start<T, I>(records: I) -> (Supply<T>, Feed)
where
    T: Send + 'static,
    I: Iterator<Item = Result<T, Error>> + Send + 'static,
{
    let (sender, pieces) = sync_channel(PIECES);
    let trouble = Trouble::default();
    let told = trouble.clone();
    let (ready, wait) = sync_channel(1);
    #[allow(clippy::disallowed_methods, reason = "a file is read while others watch the clock")]
    let thread = thread::spawn(move || {
        // A signal is for whoever made the run; this thread would end the process.
        reactor::hold_signals();
        if let Err(error) = read(records, &sender, &ready) {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    });
    // It ends by itself when there is nothing to wait for.
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
                // If nobody takes it any more, the run is over.
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

//! Messages for the operator, and the access log.

use super::{LOG_MESSAGES_MAX, Node};
use base::op::Peer;
pub use front::{Account, Entry};

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something was lost, or does not work any more.
    Error,
    /// A condition may need attention.
    Warn,
    /// A change.
    Info,
}

/// A message for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMessage {
    /// Severity.
    pub level: Level,
    /// Component of the server.
    pub target: &'static str,
    /// The message.
    pub text: String,
}

/// A finished HTTP request, with its client.
#[derive(Debug)]
pub struct Access {
    /// The client.
    pub peer: Peer,
    /// The request with its response.
    pub account: Account,
}

/// Receiver of messages and of the access log. It must not block.
pub trait Log {
    /// Takes a message for the operator.
    fn message(&mut self, message: LogMessage);
    /// Takes an entry of the access log.
    fn access(&mut self, access: Access);
    /// Called once, when the node begins to end.
    fn ending(&mut self) {}
}

/// Drops everything.
impl Log for () {
    fn message(&mut self, _: LogMessage) {}
    fn access(&mut self, _: Access) {}
}

impl Node {
    /// Takes the next message for the operator.
    pub fn next_log_message(&mut self) -> Option<LogMessage> {
        self.log_messages.pop_front()
    }

    /// Adds a message for the operator.
    pub(crate) fn add_log_message(&mut self, message: LogMessage) {
        if self.log_messages.len() == LOG_MESSAGES_MAX {
            self.log_messages.pop_front();
        }
        self.log_messages.push_back(message);
    }

    /// Adds a request to the access log, if there is one.
    pub(crate) fn log_access(&mut self, slot: usize, account: Account) {
        if account.entry.is_some() {
            let peer = self.connections[slot].peer().clone();
            self.accesses.push(Access { peer, account });
        }
    }

    /// Writes everything queued to the log.
    pub(crate) fn write_log(&mut self, log: &mut dyn Log) {
        while let Some(message) = self.next_log_message() {
            log.message(message);
        }
        self.accesses.drain(..).for_each(|access| log.access(access));
    }
}

//! Credentials of users for writes through the ring.

use super::ring::Ring;
use crate::host::Host;
use crate::identity::IdentityPart;
use base::{Caller, Error, User};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Maximum number of registered users; the one registered first is removed first.
const USERS_MAX: usize = 64;

/// Registered credentials by user. Operations in flight keep theirs after the removal.
pub(super) struct Personalities {
    known: VecDeque<(Arc<User>, u16)>,
    /// The server's own: the thread may have a user's identity when it submits operations.
    server: u16,
}

impl Personalities {
    /// Registers the server's own credentials, which the current thread must have.
    pub(super) fn new(ring: &Ring) -> io::Result<Personalities> {
        Ok(Personalities {
            known: VecDeque::new(),
            server: ring.submitter().register_personality()?,
        })
    }

    /// Returns the number of the server's own credentials.
    pub(super) fn server(&self) -> u16 {
        self.server
    }

    /// Returns the number of `user`'s credentials.
    ///
    /// # Errors
    /// If the process may not act for this user, or the kernel accepts no more credentials.
    pub(super) fn of(
        &mut self,
        user: &Arc<User>,
        ring: &mut Ring,
        host: &Host,
    ) -> Result<u16, Error> {
        let same = |known: &Arc<User>| Arc::ptr_eq(known, user) || known == user;
        if let Some((_, number)) = self.known.iter().find(|(known, _)| same(known)) {
            return Ok(*number);
        }
        if self.known.len() == USERS_MAX {
            // Operations queued with these credentials must be submitted before the removal.
            if !ring.flush() {
                return Err(Error::WouldBlock);
            }
            let (_, oldest) = self.known.pop_front().expect("some are known");
            ring.submitter().unregister_personality(oldest).map_err(|_| Error::NotPermitted)?;
        }
        // The kernel registers the identity of the current thread.
        host.own.assume(&Caller::User(Arc::clone(user)), None, IdentityPart::Changing)?;
        let number = ring.submitter().register_personality();
        let number = number.map_err(|_| Error::NotPermitted)?;
        assert!(self.known.len() < USERS_MAX, "few are remembered");
        self.known.push_back((Arc::clone(user), number));
        Ok(number)
    }
}

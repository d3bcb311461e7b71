//! Identities that clients claim (AUTH_SYS).

use crate::{Identity, Squash};
use base::{Caller, User};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::rpc::{self, Credential, Outcome};

/// Identity that a call claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// None: anonymous.
    None,
    /// User, group and supplementary groups.
    Sys(u32, u32, Vec<u32>),
    /// A flavour that the server does not have.
    Other,
}

impl From<&Credential<'_>> for Claim {
    fn from(credential: &Credential<'_>) -> Claim {
        match credential {
            Credential::None => Claim::None,
            Credential::Sys(sys) => Claim::Sys(sys.uid, sys.gid, sys.gids.clone()),
            Credential::Other(_) => Claim::Other,
        }
    }
}

/// User and group of anonymous clients.
const NOBODY: u32 = 65_534;

/// Maximum number of identities remembered.
const USERS_MAX: usize = 64;

/// The identities seen lately: the same one is the same allocation, which makes changing to it
/// cheap.
#[derive(Debug, Default)]
pub(super) struct Users {
    known: BTreeMap<(u32, u32, Vec<u32>), Caller>,
}

impl Users {
    /// Returns the identity that a call is performed as.
    ///
    /// # Errors
    /// The server does not have the flavour of authentication.
    pub(super) fn caller(
        &mut self,
        identity: &Identity,
        squash: Squash,
        claim: Claim,
    ) -> Result<Caller, Outcome> {
        let (uid, gid, groups) = match (identity, claim) {
            (_, Claim::Other) => return Err(Outcome::Refused(rpc::TOO_WEAK)),
            (Identity::Fixed(caller), _) => return Ok(caller.clone()),
            (Identity::Claimed(_), Claim::None) => (NOBODY, NOBODY, Vec::new()),
            (Identity::Claimed(_), Claim::Sys(uid, gid, groups)) => squash.of(uid, gid, groups),
        };
        if self.known.len() >= USERS_MAX {
            self.known.clear();
        }
        let caller =
            self.known.entry((uid, gid, groups)).or_insert_with_key(|(uid, gid, groups)| {
                let groups = groups.clone();
                Caller::User(Arc::new(User { uid: *uid, gid: *gid, groups, commands: false }))
            });
        Ok(caller.clone())
    }
}

impl Squash {
    fn of(self, uid: u32, gid: u32, groups: Vec<u32>) -> (u32, u32, Vec<u32>) {
        let group = |gid: u32| if gid == 0 { NOBODY } else { gid };
        match self {
            // An id of all ones means "unchanged" to the kernel.
            _any if uid == u32::MAX || gid == u32::MAX => (NOBODY, NOBODY, Vec::new()),
            Squash::All => (NOBODY, NOBODY, Vec::new()),
            Squash::Root if uid == 0 => (NOBODY, NOBODY, Vec::new()),
            Squash::Root => (uid, group(gid), groups.into_iter().map(group).collect()),
            Squash::None => (uid, gid, groups),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(squash: Squash, uid: u32, gid: u32, groups: &[u32]) -> (u32, u32, Vec<u32>) {
        let claim = Claim::Sys(uid, gid, groups.to_vec());
        match Users::default().caller(&Identity::Claimed(None), squash, claim) {
            Ok(Caller::User(user)) => (user.uid, user.gid, user.groups.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn root_is_squashed_unless_it_is_allowed() {
        let nobody = (NOBODY, NOBODY, Vec::new());
        assert_eq!(shown(Squash::Root, 0, 0, &[0]), nobody);
        assert_eq!(shown(Squash::Root, 5, 0, &[0, 7]), (5, NOBODY, vec![NOBODY, 7]));
        assert_eq!(shown(Squash::None, 0, 0, &[0]), (0, 0, vec![0]));
        assert_eq!(shown(Squash::All, 5, 6, &[7]), nobody);
        assert_eq!(shown(Squash::None, u32::MAX, 6, &[]), nobody);
    }

    #[test]
    fn unknown_flavours_are_refused_and_fixed_identities_ignore_claims() {
        let fixed = Identity::Fixed(Caller::Server);
        let mut users = Users::default();
        let claim = Claim::Sys(5, 6, Vec::new());
        assert_eq!(users.caller(&fixed, Squash::Root, claim), Ok(Caller::Server));
        let refused = Err(Outcome::Refused(rpc::TOO_WEAK));
        assert_eq!(users.caller(&fixed, Squash::Root, Claim::Other), refused);
    }
}

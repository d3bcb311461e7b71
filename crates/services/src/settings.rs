//! What a replica's volume says of it: which service it is of, who it is, who the others are.

use replica::data::Kind;
use replica::service::ReplicaId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The version of all that is kept in a replica's volume.
pub const VERSION: u32 = 3;

/// That of a service whose members may be removed because they are silent: servers that know only
/// [`VERSION`] cannot read what the others send then, and must not run one of its replicas.
pub const VERSION_REMOVING: u32 = 4;

/// What a replica knows of itself before it has done anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The version that a server must know: [`version`].
    pub version: u32,
    /// Which service it is: tokens name it, so that those of another one are known as such.
    pub id: u32,
    /// The name of the service: its directory.
    pub service: String,
    /// The type of the data.
    pub kind: Kind,
    /// Which of the members this replica is.
    pub me: ReplicaId,
    /// All that there were at first, each with the address of the 9P port of its server. Of a
    /// replica that is none of them: whom it asks to become one, and itself.
    pub members: BTreeMap<ReplicaId, String>,
    /// Whether it is none of the first members.
    pub joins: bool,
    /// Time for which a member must be silent to be removed by all others; it never is, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove_after: Option<Duration>,
    /// What all of them know, and nobody else.
    pub secret: Secret,
}

/// The version of the settings of a service with this time of silence.
pub fn version(remove_after: Option<Duration>) -> u32 {
    if remove_after.is_some() { VERSION_REMOVING } else { VERSION }
}

impl Settings {
    /// Whether this server knows the version.
    pub fn is_known(&self) -> bool {
        matches!(self.version, VERSION | VERSION_REMOVING)
    }
}

/// Shortest time after which a silent member is removed: it is seen to be silent before.
pub const REMOVE_AFTER_MIN: Duration = Duration::from_secs(10);

/// What only the replicas of a service know. It is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The longest name of a service, bytes.
pub const NAME_MAX: usize = 64;

/// Whether a service may have this name: it becomes a directory, and a part of a URL.
///
/// # Errors
/// What is wrong with it, and what to do.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with('.');
    match fits && name.chars().all(plain) {
        true => Ok(()),
        false => Err(format!(
            "'{name}' cannot be the name of a service: use letters, digits, '-', '_' and '.', at \
             most {NAME_MAX} of them, and no '.' in front"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::lab::settings;

    /// Servers that know only version 3 refuse what they could not take part in, and run the rest.
    #[test]
    fn the_version_says_what_a_server_must_know() {
        let most = Some(REMOVE_AFTER_MIN);
        assert_eq!((version(None), version(most)), (3, 4));
        for (number, is_known) in [(2, false), (3, true), (4, true), (5, false)] {
            let settings = Settings { version: number, ..settings() };
            assert_eq!(settings.is_known(), is_known, "version {number}");
        }
    }
}

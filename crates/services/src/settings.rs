//! Settings in a replica's volume: its service, its identity and its peers.

use replica::data::Kind;
use replica::service::ReplicaId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Format version of a replica's volume.
pub const VERSION: u32 = 3;

/// Format version of a service that may remove unresponsive members: servers that know only
/// [`VERSION`] cannot parse the votes of the others, and must not run one of its replicas.
pub const VERSION_REMOVING: u32 = 4;

/// Initial settings of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Format version that a server must support: [`version`].
    pub version: u32,
    /// Identifier of the service; tokens contain it, so that foreign ones are detected.
    pub id: u32,
    /// Name of the service, and of its directory.
    pub service: String,
    /// Data type.
    pub kind: Kind,
    /// Identifier of this replica.
    pub me: ReplicaId,
    /// Initial members, each with the 9P address of its server. Of a replica that joins later: the
    /// members that it asks, and itself.
    pub members: BTreeMap<ReplicaId, String>,
    /// Whether it joins later.
    pub joins: bool,
    /// Time of silence after which all others remove a member; `None` disables removal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove_after: Option<Duration>,
    /// Secret shared by the replicas.
    pub secret: Secret,
}

/// Returns the format version of a service with this removal timeout.
pub fn version(remove_after: Option<Duration>) -> u32 {
    if remove_after.is_some() { VERSION_REMOVING } else { VERSION }
}

impl Settings {
    /// Reports whether this server supports the format version.
    pub fn is_known(&self) -> bool {
        matches!(self.version, VERSION | VERSION_REMOVING)
    }
}

/// Minimum removal timeout: silence has to be detected before.
pub const REMOVE_AFTER_MIN: Duration = Duration::from_secs(10);

/// Secret shared by the replicas of a service. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Maximum length of a service name, in bytes.
pub const NAME_MAX: usize = 64;

/// Checks a service name, which becomes a directory and a part of a URL.
///
/// # Errors
/// An explanation, and a valid alternative.
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

    /// Servers that support only version 3 refuse the services that they could not take part in.
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

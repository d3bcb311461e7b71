//! Dialects, and the negotiation of one (version(5)).

use crate::Violation;
use std::ops::RangeInclusive;
use wire::ninep::{NO_FID, Rmessage, Tmessage};

/// Negotiated protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// 9P2000, the original of Plan 9.
    Plan9,
    /// 9P2000.L, the variant of Linux.
    Linux,
}

impl Dialect {
    /// Returns its name in `Tversion`.
    pub fn version(self) -> &'static str {
        match self {
            Dialect::Plan9 => "9P2000",
            Dialect::Linux => "9P2000.L",
        }
    }
}

/// Returns the message that attaches `fid` to a tree for a user, without authentication. Only
/// 9P2000.L has numbers of users.
pub fn attach<'a>(
    dialect: Dialect,
    fid: u32,
    (uname, uid): (&'a [u8], u32),
    aname: &'a [u8],
) -> Tmessage<'a> {
    let uid = (dialect == Dialect::Linux).then_some(uid);
    Tmessage::Attach { fid, afid: NO_FID, uname, aname, uid }
}

/// Result of a version message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The server accepted this dialect, with this message size, bytes.
    Agreed(Dialect, u32),
    /// The server does not know the offered version.
    Unknown,
    /// The server replied with an error.
    Refused,
}

/// Returns the agreement of a reply to a version message. A server accepts the offered dialect, or
/// 9P2000 as its base.
pub(crate) fn agreement(
    offered: Dialect,
    sizes: &RangeInclusive<u32>,
    reply: &Rmessage<'_>,
) -> Result<Agreement, Violation> {
    const RVERSION: u8 = 101;
    let Rmessage::Version { msize, version } = *reply else {
        return match reply.code() {
            code if crate::is_error(code) => Ok(Agreement::Refused),
            code => Err(Violation::Type(code, RVERSION)),
        };
    };
    match [offered, Dialect::Plan9].into_iter().find(|known| known.version().as_bytes() == version)
    {
        None => Ok(Agreement::Unknown),
        Some(dialect) if sizes.contains(&msize) => Ok(Agreement::Agreed(dialect, msize)),
        Some(_) => Err(Violation::Msize(msize, *sizes.end())),
    }
}

//! Tables of a workload file, and their contents.

mod check;

use super::drawn::{Comes, Kinds, Places, Sizes, Thinks};
use super::values::{Bytes, Count, Rate, Time};
use crate::Kind;
use crate::workload::pace::{Lifetime, Pace};
use crate::workload::specweb::{FileSet, Year};
use crate::workload::{Arrival, Mix, OffsetDistribution, Size, postmark, users::Think};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;

/// Whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(default)]
    pub(super) run: RunTable,
    #[serde(default)]
    pub(super) stream: Vec<Spanned<StreamTable>>,
    #[serde(default)]
    pub(super) users: Vec<Spanned<UsersTable>>,
    #[serde(default)]
    pub(super) sessions: Vec<Spanned<SessionsTable>>,
    #[serde(default)]
    pub(super) transactions: Vec<Spanned<TransactionsTable>>,
    #[serde(default)]
    pub(super) spc1: Vec<Spanned<Spc1Table>>,
    #[serde(default)]
    pub(super) postmark: Vec<Spanned<PostMarkTable>>,
    #[serde(default)]
    pub(super) specweb: Vec<Spanned<SpecWebTable>>,
    #[serde(default)]
    pub(super) replay: Vec<Spanned<ReplayTable>>,
}

/// Table `[run]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunTable {
    pub(super) name: Option<String>,
    pub(super) seconds: Option<Time>,
    #[serde(default)]
    pub(super) warm_up: Time,
    #[serde(default)]
    pub(super) seed: u64,
    pub(super) target: Option<String>,
    pub(super) policy: Option<String>,
    pub(super) late: Option<String>,
}

/// Common fields of all parts.
pub(super) struct Common {
    pub(super) name: Option<String>,
    pub(super) begin: Duration,
    pub(super) seconds: Option<Duration>,
    pub(super) count: Option<u64>,
    pub(super) seed: Option<u64>,
}

/// Table that defines a part of the load.
pub(super) trait Table {
    /// Table name.
    const KIND: &'static str;

    /// Returns the common fields.
    fn common(&self) -> Common;

    /// Validates the table and returns its contents.
    fn what(self) -> Result<What, String>;
}

/// Defines tables with the common fields and their own ones.
macro_rules! tables {
    ($($name:ident = $kind:literal { $($(#[$attribute:meta])* $field:ident: $type:ty,)* })*) => {$(
        /// Table of this name.
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            name: Option<String>,
            #[serde(default)]
            begin: Time,
            seconds: Option<Time>,
            count: Option<Count>,
            seed: Option<u64>,
            $($(#[$attribute])* $field: $type,)*
        }

        impl Table for $name {
            const KIND: &'static str = $kind;

            fn common(&self) -> Common {
                Common {
                    name: self.name.clone(),
                    begin: self.begin.0,
                    seconds: self.seconds.map(|seconds| seconds.0),
                    count: self.count.map(|count| count.0),
                    seed: self.seed,
                }
            }

            fn what(self) -> Result<What, String> {
                Checked::checked(self)
            }
        }
    )*};
}

/// Defines tables with the common fields, those of a mix, and their own ones.
macro_rules! mixes {
    ($($name:ident = $kind:literal { $($(#[$attribute:meta])* $field:ident: $type:ty,)* })*) => {$(
        tables! {
            $name = $kind {
                kinds: Option<Kinds>,
                size: Option<Sizes>,
                place: Option<Places>,
                align: Option<Bytes>,
                files: Option<u32>,
                #[serde(default)]
                from: Bytes,
                span: Option<Bytes>,
                $($(#[$attribute])* $field: $type,)*
            }
        }

        impl $name {
            /// Returns the mix; without a span, it uses the rest of the target.
            fn mix(&self) -> Result<Mix, String> {
                let (kinds, size) = (self.kinds.clone(), self.size.clone());
                Ok(Mix {
                    kinds: kinds.map_or(vec![(Kind::Read, 1.0)], |kinds| kinds.0),
                    place: self.place.clone().map_or(OffsetDistribution::Uniform, |place| place.0),
                    size: size.map_or(Size::Fixed(4096), |size| size.0),
                    begin: self.from.0,
                    span: self.span.map_or(0, |span| span.0),
                    align: self.align.map_or(0, |align| align.0),
                    files: check::files(self.files)?,
                })
            }
        }
    )*};
}

mixes! {
    StreamTable = "stream" {
        rate: Rate,
        #[serde(default)]
        arrival: Comes,
    }
    UsersTable = "users" {
        users: u32,
        #[serde(default)]
        think: Thinks,
    }
    SessionsTable = "sessions" {
        rate: Rate,
        #[serde(default)]
        arrival: Comes,
        each: u32,
        #[serde(default)]
        think: Thinks,
    }
}

tables! {
    TransactionsTable = "transactions" {
        branches: u32,
        terminals: Option<u32>,
        think: Option<Thinks>,
        rate: Option<Rate>,
        arrival: Option<Comes>,
        #[serde(default)]
        from: Bytes,
        span: Option<Bytes>,
    }
    Spc1Table = "spc1" {
        bsus: u32,
        #[serde(default)]
        from: Bytes,
        span: Option<Bytes>,
    }
    PostMarkTable = "postmark" {
        files: Option<u32>,
        transactions: Option<Count>,
        min: Option<Bytes>,
        max: Option<Bytes>,
        block: Option<Bytes>,
        reads: Option<u32>,
        creates: Option<u32>,
        users: Option<u32>,
    }
    SpecWebTable = "specweb" {
        year: u32,
        load: Option<f64>,
        directories: Option<u32>,
        connections: Option<u32>,
        think: Option<Thinks>,
        rate: Option<Rate>,
        arrival: Option<Comes>,
    }
    ReplayTable = "replay" {
        trace: PathBuf,
        #[serde(default = "one")]
        speed: f64,
        #[serde(default)]
        way: ReplayMode,
        depth: Option<u32>,
    }
}

fn one() -> f64 {
    1.0
}

/// Replay mode of a trace; see [`crate::replay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayMode {
    /// At its times.
    #[default]
    Timed,
    /// As fast as possible.
    Fast,
    /// With the queue depth of the trace.
    Loaded,
    /// Each I/O after its predecessors.
    Dependent,
}

/// Trace to replay, to be opened by the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Name in the file.
    pub name: String,
    /// Path of the trace.
    pub trace: PathBuf,
    /// Speed factor.
    pub speed: f64,
    /// Replay mode.
    pub way: ReplayMode,
    /// Queue depth, for the fastest replay.
    pub depth: u32,
    /// Start, end, and maximum I/Os.
    pub life: Lifetime,
}

/// Contents of a part, validated except for the target's size. A span of 0 is the rest of the
/// target.
#[derive(Clone, Debug)]
pub(super) enum What {
    Stream { arrival: Arrival, mix: Mix },
    Users { users: u32, think: Think, mix: Mix },
    Sessions { arrival: Arrival, each: u32, think: Think, mix: Mix },
    Transactions { branches: u32, pace: Pace, from: u64, span: u64 },
    Spc1 { bsus: u32, from: u64, span: u64 },
    PostMark(postmark::Setup),
    SpecWeb { year: Year, set: FileSet, pace: Pace },
    Replay { trace: PathBuf, speed: f64, way: ReplayMode, depth: u32 },
}

/// Specific part of [`Table::what`].
trait Checked {
    fn checked(self) -> Result<What, String>;
}

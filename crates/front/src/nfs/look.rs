//! Procedures about one file that need no open file: attributes, rights, links, file systems.

use super::call::{Context, Next, Procedure, optional};
use super::translate;
use base::{Error, Stat};
use tree::{Ask, Reply};
use wire::nfs::{After, Handle, Results, SetAttributes, Status, Timestamp, Wcc};

/// GETATTR, ACCESS, FSINFO and PATHCONF: what the attributes of a file tell.
#[derive(Debug)]
pub(super) struct AttributeQuery {
    handle: Handle,
    what: QueryKind,
}

/// The procedure.
#[derive(Debug)]
enum QueryKind {
    Attributes,
    /// With the rights that the client asks for.
    Access(u32),
    FsInfo,
    PathConf,
}

/// Properties of FSINFO: hard links, symbolic links, one PATHCONF for all files, times can be set.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;

/// Maximum number of hard links, as far as the protocol goes; trees have their own.
const LINKS_MAX: u32 = 32_000;

/// Multiple in which sizes of reads and writes are preferred, bytes.
const MULTIPLE: u32 = 4096;

impl AttributeQuery {
    pub(super) fn attributes(handle: Handle) -> AttributeQuery {
        AttributeQuery { handle, what: QueryKind::Attributes }
    }

    pub(super) fn access(handle: Handle, wanted: u32) -> AttributeQuery {
        AttributeQuery { handle, what: QueryKind::Access(wanted) }
    }

    pub(super) fn fs_info(handle: Handle) -> AttributeQuery {
        AttributeQuery { handle, what: QueryKind::FsInfo }
    }

    pub(super) fn path_conf(handle: Handle) -> AttributeQuery {
        AttributeQuery { handle, what: QueryKind::PathConf }
    }

    fn results<'a>(&self, stat: &Stat, context: &mut Context<'_>) -> Results<'a> {
        let (attributes, _) = context.see(stat);
        let size = context.export.limits.msize;
        match self.what {
            QueryKind::Attributes => {
                Results::GetAttr { attributes: attributes.expect("just made") }
            }
            QueryKind::Access(wanted) => {
                let access = wanted & translate::rights(context.caller, stat);
                Results::Access { attributes, access }
            }
            QueryKind::FsInfo => Results::FsInfo {
                attributes,
                rtmax: size,
                rtpref: size,
                rtmult: MULTIPLE,
                wtmax: size,
                wtpref: size,
                wtmult: MULTIPLE,
                dtpref: size.min(64 << 10),
                maxfilesize: i64::MAX as u64,
                time_delta: Timestamp { seconds: 0, nanoseconds: 1 },
                properties: PROPERTIES,
            },
            QueryKind::PathConf => Results::PathConf {
                attributes,
                linkmax: LINKS_MAX,
                name_max: u32::try_from(base::NAME_MAX).expect("names are short"),
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            },
        }
    }
}

impl Procedure for AttributeQuery {
    fn handles(&self) -> [Option<Handle>; 2] {
        [Some(self.handle), None]
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        Next::Ask(Ask::Stat { node: context.node() })
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        match reply {
            // Its last name was removed: only this reference keeps it.
            Ok(Reply::Stat(stat)) if stat.links == 0 => Next::Fail(Error::Stale),
            Ok(Reply::Stat(stat)) => {
                self.results(&stat, context).put(context.body);
                Next::Reply
            }
            Ok(other) => unreachable!("{other:?} is no attributes"),
            Err(error) => Next::Fail(error),
        }
    }

    fn failure(&self) -> After {
        match self.what {
            QueryKind::Attributes => After::Nothing,
            QueryKind::Access(_) | QueryKind::FsInfo | QueryKind::PathConf => {
                After::Attributes(None)
            }
        }
    }
}

/// READLINK.
#[derive(Debug)]
pub(super) struct ReadLink(pub(super) Handle);

impl Procedure for ReadLink {
    fn handles(&self) -> [Option<Handle>; 2] {
        [Some(self.0), None]
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        Next::Ask(Ask::ReadLink { node: context.node() })
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        match reply {
            Ok(Reply::Bytes(target)) => {
                Results::ReadLink { attributes: None, data: &target }.put(context.body);
                Next::Reply
            }
            Ok(other) => unreachable!("{other:?} is no target"),
            Err(error) => Next::Fail(error),
        }
    }

    fn failure(&self) -> After {
        After::Attributes(None)
    }
}

/// FSSTAT.
#[derive(Debug)]
pub(super) struct FsStat(pub(super) Handle);

impl Procedure for FsStat {
    fn handles(&self) -> [Option<Handle>; 2] {
        [Some(self.0), None]
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        Next::Ask(Ask::StatFs { node: context.node() })
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        let stat = match reply {
            Ok(Reply::StatFs(stat)) => stat,
            Ok(other) => unreachable!("{other:?} is no usage"),
            Err(error) => return Next::Fail(error),
        };
        let bytes = |blocks: u64| blocks.saturating_mul(stat.block_size.into());
        Results::FsStat {
            attributes: None,
            tbytes: bytes(stat.blocks),
            fbytes: bytes(stat.blocks_free),
            abytes: bytes(stat.blocks_available),
            tfiles: stat.files,
            ffiles: stat.files_free,
            afiles: stat.files_free,
            invarsec: 0,
        }
        .put(context.body);
        Next::Reply
    }

    fn failure(&self) -> After {
        After::Attributes(None)
    }
}

/// SETATTR.
#[derive(Debug)]
pub(super) struct SetAttr {
    handle: Handle,
    set: SetAttributes,
    guard: Option<Timestamp>,
    state: Setting,
}

/// State of a SETATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Waiting for the attributes that the guard is compared with.
    Guard,
    /// Waiting for the change.
    Set,
    /// Waiting for its durability.
    Sync,
    /// Waiting for the attributes after it.
    After,
}

impl SetAttr {
    pub(super) fn new(handle: Handle, set: SetAttributes, guard: Option<Timestamp>) -> SetAttr {
        SetAttr { handle, set, guard, state: Setting::Guard }
    }

    fn set(&mut self, context: &Context<'_>) -> Next {
        self.state = Setting::Set;
        match translate::set_stat(&self.set) {
            Ok(set) => Next::Ask(Ask::SetStat { node: context.node(), open: context.open, set }),
            Err(error) => Next::Fail(error),
        }
    }
}

impl Procedure for SetAttr {
    fn handles(&self) -> [Option<Handle>; 2] {
        [Some(self.handle), None]
    }

    fn access(&self) -> Option<base::Access> {
        self.set.size.map(|_| super::io::WRITE)
    }

    fn is_change(&self) -> bool {
        true
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        match self.guard {
            Some(_) => Next::Ask(Ask::Stat { node: context.node() }),
            None => self.set(context),
        }
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        match self.state {
            Setting::Guard => match reply {
                Ok(Reply::Stat(stat)) if Some(translate::timestamp(stat.changed)) == self.guard => {
                    self.set(context)
                }
                Ok(_) => Next::FailWith(Status::NotSync),
                Err(error) => Next::Fail(error),
            },
            Setting::Set | Setting::Sync => match (reply, context.sync) {
                (Ok(_), Some(open)) if self.state == Setting::Set => {
                    self.state = Setting::Sync;
                    Next::Ask(Ask::Sync { open, data_only: false })
                }
                (Ok(_), _) => {
                    self.state = Setting::After;
                    Next::Ask(Ask::Stat { node: context.node() })
                }
                (Err(error), _) => Next::Fail(error),
            },
            Setting::After => {
                let object = context.changed_file(optional(reply).as_ref());
                Results::SetAttr { object }.put(context.body);
                Next::Reply
            }
        }
    }

    fn failure(&self) -> After {
        After::Changed(Wcc::NONE)
    }
}

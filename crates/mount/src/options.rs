//! Mount options, as written behind `-o`.

use base::{size, units};
use client::Dialect;
use std::time::Duration;

/// Formats of times, for errors.
const TIME: &str = "a time, like 1s or 500ms";
const TIMEOUT: &str = "a time longer than 0, like 5s";

/// Caching of data by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// Nothing: each read and write is a request to the server.
    None,
    /// Pages while a file is open; they are dropped when it is opened again (close-to-open).
    #[default]
    Open,
    /// Pages until size or modification time change.
    Keep,
    /// Also writes, until the file is closed or made durable. For trees that no other client
    /// changes: the kernel determines size and modification time.
    Write,
}

/// Users for whom requests are performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Each calling user attaches with its own number.
    #[default]
    Caller,
    /// All requests are those of the user that mounted, or of `as` or `uname`.
    One,
}

/// Use of the server's reports of changes, to cache until something changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    /// If it reports all changes.
    #[default]
    IfComplete,
    /// Also if it may not know of some, because others can change the files.
    Always,
    /// Do not watch.
    Never,
}

/// Mount options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Refuse changes.
    pub read_only: bool,
    /// Whether the flags of a mount that is there are changed.
    pub remount: bool,
    /// Permit other users than the one that mounts.
    pub allow_other: bool,
    /// Let the kernel check mode bits, beside the server.
    pub default_permissions: bool,
    /// Users for whom requests are performed.
    pub access: Access,
    /// Number of the user to attach as.
    pub uid: Option<u32>,
    /// Name of the user to attach as.
    pub uname: Option<String>,
    /// Tree to attach to.
    pub aname: String,
    /// Maximum message size to propose, in bytes.
    pub msize: u32,
    /// Required protocol.
    pub version: Option<Dialect>,
    /// Caching of data.
    pub cache: Cache,
    /// Time for which names and attributes are cached; by default one second, or none without a
    /// cache.
    pub attr_timeout: Option<Duration>,
    /// Use of the server's reports of changes.
    pub watch: Watch,
    /// Time without any data from the server after which the connection is lost.
    pub timeout: Duration,
    /// Honour set-user-id bits of files.
    pub suid: bool,
    /// Honour device files.
    pub dev: bool,
    /// Permit programs to be executed.
    pub exec: bool,
    /// Update times of access: `None` for the kernel's default.
    pub atime: Option<bool>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            remount: false,
            allow_other: false,
            default_permissions: false,
            access: Access::Caller,
            uid: None,
            uname: None,
            aname: String::new(),
            msize: 1 << 20,
            version: None,
            cache: Cache::Open,
            attr_timeout: None,
            watch: Watch::default(),
            timeout: Duration::from_secs(60),
            suid: false,
            dev: false,
            exec: true,
            atime: None,
        }
    }
}

/// Options of fstab(5) that are for mount(8) and systemd, or the default.
const IGNORED: &[&str] = &[
    "rw",
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "async",
    "relatime",
    "norelatime",
    "diratime",
    "nodiratime",
    "lazytime",
    "nolazytime",
];

impl Options {
    /// Changes the options by a list separated by commas; the last of contradicting ones counts.
    ///
    /// # Errors
    /// A description of the first option that is unknown or has a wrong value.
    pub fn apply(&mut self, list: &str) -> Result<(), String> {
        let parts = list.split(',').filter(|part| !part.is_empty());
        parts.into_iter().try_for_each(|part| match part.split_once('=') {
            Some((name, value)) => self.set(name, value),
            None => self.switch(part),
        })
    }

    fn switch(&mut self, name: &str) -> Result<(), String> {
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "remount" => self.remount = true,
            "allow_other" => self.allow_other = true,
            "default_permissions" => self.default_permissions = true,
            // Options of mount(8), which keeps `suid` and `dev` to itself.
            "suid" | "allow_suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" | "allow_dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "watch" => self.watch = Watch::Always,
            "nowatch" => self.watch = Watch::Never,
            "noatime" => self.atime = Some(false),
            "atime" | "strictatime" => self.atime = Some(true),
            _ if IGNORED.contains(&name) || name.starts_with("x-") => {}
            _unknown => return Err(unknown(name)),
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let bad = |wanted: &str| format!("option {name}={value} is not valid: write {wanted}");
        match name {
            "aname" => self.aname = value.to_string(),
            "uname" => self.uname = Some(value.to_string()),
            "as" => self.uid = Some(value.parse().map_err(|_| bad("a user number"))?),
            "msize" => {
                let bytes = size::parse(value).ok().and_then(|bytes| u32::try_from(bytes).ok());
                self.msize = bytes.ok_or_else(|| bad("a number of bytes, like 65536 or 64K"))?;
            }
            "version" | "protocol" => {
                self.version = Some(match value.to_ascii_lowercase().as_str() {
                    "9p2000.l" => Dialect::Linux,
                    "9p2000" => Dialect::Plan9,
                    _other => return Err(bad("9p2000.L or 9p2000")),
                });
            }
            "cache" => {
                self.cache = match value {
                    "none" => Cache::None,
                    "open" => Cache::Open,
                    "keep" => Cache::Keep,
                    "write" => Cache::Write,
                    _other => return Err(bad("none, open, keep or write")),
                };
            }
            "access" => {
                self.access = match value {
                    "caller" => Access::Caller,
                    "one" => Access::One,
                    _other => return Err(bad("caller or one")),
                };
            }
            "attr_timeout" => {
                self.attr_timeout = Some(units::time(value).map_err(|_| bad(TIME))?);
            }
            "timeout" => {
                let time = units::time(value).ok().filter(|time| !time.is_zero());
                self.timeout = time.ok_or_else(|| bad(TIMEOUT))?;
            }
            "comment" => {}
            _ if name.starts_with("x-") => {}
            _unknown => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Returns the time for which names and attributes are cached.
    pub fn attributes_valid(&self) -> Duration {
        self.attr_timeout.unwrap_or(match self.cache {
            Cache::None => Duration::ZERO,
            Cache::Open | Cache::Keep | Cache::Write => Duration::from_secs(1),
        })
    }

    /// Returns the use of reports. Users share a cache: one could see what only another one may,
    /// unless the kernel checks permissions.
    fn watches(&self) -> Watch {
        let is_shared = self.allow_other && !self.kernel_checks();
        let is_excluded = is_shared || self.cache == Cache::None || self.attr_timeout.is_some();
        if is_excluded { Watch::Never } else { self.watch }
    }

    /// Reports whether each caller attaches as itself.
    pub(crate) fn is_per_user(&self) -> bool {
        self.allow_other
            && self.access == Access::Caller
            && self.uid.is_none()
            && self.uname.is_none()
    }

    /// Reports whether the kernel checks permissions: if the server cannot, because it sees one
    /// user only, or if it was requested.
    pub(crate) fn kernel_checks(&self) -> bool {
        self.default_permissions || self.allow_other && !self.is_per_user()
    }
}

fn unknown(name: &str) -> String {
    format!("unknown mount option '{name}'; 'upcall mount --help' lists them")
}

/// Settings of a session.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) cache: Cache,
    pub(crate) attr_timeout: Duration,
    pub(crate) watch: Watch,
    /// Whether each caller attaches as itself.
    pub(crate) per_user: bool,
    /// User whose root is that of the connection.
    pub(crate) user: u32,
    /// Owner of files whose owner is not a number, in 9P2000.
    pub(crate) owner: (u32, u32),
    /// Name of this mount in locks, unique among the clients of a server.
    pub(crate) host: String,
}

impl Settings {
    pub(crate) fn new(options: &Options) -> Settings {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Settings {
            cache: options.cache,
            attr_timeout: options.attributes_valid(),
            watch: options.watches(),
            per_user: options.is_per_user(),
            user: uid,
            owner: (uid, gid),
            host: format!("{}:{}", host.trim(), std::process::id()),
        }
    }

    /// Returns the user that attaches for a caller.
    pub(crate) fn user_of(&self, uid: u32) -> u32 {
        if self.per_user { uid } else { self.user }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Result<Options, String> {
        let mut options = Options::default();
        options.apply(list).map(|()| options)
    }

    #[test]
    fn options_of_fstab_are_understood() {
        let options = parsed(
            "rw,_netdev,nofail,x-systemd.automount,allow_other,cache=none,aname=/srv,msize=65536",
        );
        let options = options.unwrap();
        assert!(options.allow_other && options.is_per_user() && !options.kernel_checks());
        assert_eq!((options.cache, options.msize), (Cache::None, 65536));
        assert_eq!(options.aname, "/srv");
        assert_eq!(options.attributes_valid(), Duration::ZERO);
    }

    #[test]
    fn times_and_sizes_have_units() {
        let options = parsed("timeout=5s,msize=64K,attr_timeout=500ms").unwrap();
        assert_eq!((options.timeout, options.msize), (Duration::from_secs(5), 65536));
        assert_eq!(options.attr_timeout, Some(Duration::from_millis(500)));
        assert_eq!(parsed("timeout=2.5").unwrap().timeout, Duration::from_millis(2500));
        for (list, format) in [
            ("timeout=0s", "a time longer than 0, like 5s"),
            ("attr_timeout=soon", "a time, like 1s or 500ms"),
            ("msize=8G", "65536 or 64K"),
        ] {
            assert!(parsed(list).unwrap_err().contains(format), "{list}");
        }
    }

    #[test]
    fn a_mount_for_all_as_one_user_is_checked_by_the_kernel() {
        for list in ["allow_other,access=one", "allow_other,as=1000", "allow_other,uname=glenda"] {
            assert!(parsed(list).unwrap().kernel_checks(), "{list}");
        }
        assert!(!parsed("").unwrap().kernel_checks());
    }

    #[test]
    fn reports_are_used_where_caches_are_not_of_several_users() {
        for (list, watch) in [
            ("", Watch::IfComplete),
            ("watch", Watch::Always),
            ("watch,nowatch", Watch::Never),
            ("allow_other", Watch::Never),
            ("allow_other,default_permissions", Watch::IfComplete),
            ("allow_other,access=one,watch", Watch::Always),
            ("attr_timeout=1", Watch::Never),
            ("cache=none,watch", Watch::Never),
        ] {
            assert_eq!(parsed(list).unwrap().watches(), watch, "{list}");
        }
    }

    #[test]
    fn wrong_options_are_named() {
        for (list, part) in [
            ("ro,frob", "'frob'"),
            ("cache=loose", "none, open, keep or write"),
            ("timeout=0", "longer than 0"),
            ("as=root", "a user number"),
            ("attr_timeout=-1", "a time, like 1s"),
        ] {
            assert!(parsed(list).unwrap_err().contains(part), "{list}");
        }
    }
}

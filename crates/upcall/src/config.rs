//! Options of the command line and, with the same names, of a TOML file.

mod values;

use crate::bounded;
use crate::units::{bytes, mebibytes, microseconds, number, seconds};
use clap::{Args, ValueEnum};
use reactor::Address;
use serde::Deserialize;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};

/// Default address of 9P. 5640 is next to the port of diod's clients.
pub(crate) const NINEP_DEFAULT: &str = "127.0.0.1:5640";
/// Usual address for NFS, which must be requested.
pub(crate) const NFS_DEFAULT: &str = "127.0.0.1:2049";
/// Default address of HTTP.
pub(crate) const HTTP_DEFAULT: &str = "127.0.0.1:8080";

/// Flags of `upcall serve`, with the same names in a configuration file; the command line takes
/// precedence.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Serve {
    /// Directory or volume to serve; a missing file named *.volume is created
    /// [default: ./upcall.volume, if it exists]
    #[arg(value_name = "WHAT")]
    #[serde(alias = "volume", deserialize_with = "values::path")]
    pub(crate) dir: Option<PathBuf>,

    /// Join directories, volumes and other servers into one namespace; this file has lines like
    /// 'mount / volume:demo.volume', 'mount -a /lib 9p://127.0.0.1:5641/lib',
    /// 'bind -b /src/mine /src/all', 'mount /logs host:/var/log'
    #[arg(long, value_name = "FILE")]
    #[serde(deserialize_with = "values::path")]
    pub(crate) names: Option<PathBuf>,

    /// Listen for 9P at this address: HOST:PORT, unix:PATH or none; repeatable
    /// [default: 127.0.0.1:5640]
    #[arg(long = "9p", value_name = "ADDR")]
    #[serde(rename = "9p", deserialize_with = "values::addresses")]
    pub(crate) ninep: Vec<String>,

    /// Listen for NFS version 3 at this address, with its MOUNT protocol: HOST:PORT, unix:PATH
    /// or none; repeatable [default: none]
    #[arg(long, value_name = "ADDR")]
    #[serde(deserialize_with = "values::addresses")]
    pub(crate) nfs: Vec<String>,

    /// Listen for HTTP at this address: HOST:PORT, unix:PATH or none; repeatable
    /// [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    #[serde(deserialize_with = "values::addresses")]
    pub(crate) http: Vec<String>,

    /// Serve this replica of a service, created by 'upcall replica init', at /services/NAME; all
    /// clients of the server can run its operations; repeatable
    #[arg(long, value_name = "FILE")]
    #[serde(deserialize_with = "values::paths")]
    pub(crate) replica: Vec<PathBuf>,

    /// Override the member address of a replica of a service, like hits.2=ADDR, for example with
    /// the local end of a tunnel; repeatable
    #[arg(long, value_name = "NAME.ID=ADDR")]
    #[serde(deserialize_with = "values::texts")]
    pub(crate) reach: Vec<String>,

    /// Refuse all changes
    #[arg(long)]
    #[serde(deserialize_with = "values::switch")]
    pub(crate) read_only: bool,

    /// Make each change durable (safe from power failure) before the reply, not at the next fsync
    /// or moments later: all changes to a volume, and writes to files of a directory
    #[arg(long)]
    #[serde(deserialize_with = "values::switch")]
    pub(crate) write_through: bool,

    /// Allow changes over HTTP and WebDAV
    #[arg(long)]
    #[serde(deserialize_with = "values::switch")]
    pub(crate) http_write: bool,

    /// Accept HTTP requests for this host name on loopback and unix sockets too, for use behind a
    /// reverse proxy; repeatable
    #[arg(long, value_name = "NAME")]
    #[serde(deserialize_with = "values::texts")]
    pub(crate) allow_host: Vec<String>,

    /// Serve index.html over HTTP in place of the directory that contains it
    #[arg(long)]
    #[serde(deserialize_with = "values::switch")]
    pub(crate) index: bool,

    /// Act for network clients as this user, a name or a number (for a directory, requires root)
    /// [default: the owner of the directory, without privileges, or of the volume's root]
    #[arg(long = "as", value_name = "USER")]
    #[serde(rename = "as", deserialize_with = "values::user")]
    pub(crate) as_user: Option<String>,

    /// Trust the user names and numbers sent by clients, as diod -n and NFS do: only for trusted
    /// networks
    #[arg(long)]
    #[serde(deserialize_with = "values::switch")]
    pub(crate) trust_clients: bool,

    /// With --trust-clients: NFS users who act as nobody instead [default: root]
    #[arg(long, value_enum, value_name = "WHO")]
    #[serde(deserialize_with = "values::word")]
    pub(crate) nfs_squash: Option<NfsSquash>,

    /// Serve NFS to these networks only: an address, or ADDRESS/BITS; repeatable [default: all]
    #[arg(long, value_name = "NETWORK")]
    #[serde(deserialize_with = "values::networks")]
    pub(crate) nfs_allow: Vec<String>,

    /// Reply to NFS changes of directories and attributes before they are durable: faster, and what
    /// the last seconds changed may be lost with a crash
    #[arg(long)]
    #[serde(deserialize_with = "values::switch")]
    pub(crate) nfs_async: bool,

    /// Register NFS with this host's portmapper (rpcbind), so that clients need no port numbers;
    /// requires root or CAP_NET_BIND_SERVICE
    #[arg(long)]
    #[serde(deserialize_with = "values::switch")]
    pub(crate) nfs_portmapper: bool,

    /// Block cache of a volume, MiB, or with a unit [default: 256]
    #[arg(long, value_name = "MIB", value_parser = mebibytes::<usize>)]
    #[serde(deserialize_with = "values::mebibytes")]
    pub(crate) cache: Option<usize>,

    /// Open a volume even if its disk has lost transactions acknowledged as durable
    #[arg(long)]
    #[serde(deserialize_with = "values::switch")]
    pub(crate) accept_loss: bool,

    /// Kernel I/O interface [default: uring where it is allowed, else threads]
    #[arg(long, value_enum, value_name = "FORM")]
    #[serde(deserialize_with = "values::word")]
    pub(crate) reactor: Option<Form>,

    /// Number of threads for connections; the first one also handles the files
    #[arg(long, value_name = "N", value_parser = number::<usize>)]
    #[serde(deserialize_with = "values::number")]
    pub(crate) threads: Option<usize>,

    /// Record all file I/O of clients in this file, for 'upcall load replay': time, duration, file,
    /// offset and length, no contents; an existing recording is continued
    #[arg(long, value_name = "FILE")]
    #[serde(deserialize_with = "values::path")]
    pub(crate) record: Option<PathBuf>,

    /// Log messages of this level and above to standard error [default: info]
    #[arg(long, value_enum, value_name = "LEVEL")]
    #[serde(deserialize_with = "values::word")]
    pub(crate) log_level: Option<LogLevel>,

    /// Format of log messages [default: text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    #[serde(deserialize_with = "values::word")]
    pub(crate) log_format: Option<LogFormat>,

    /// Append an entry for each HTTP request to this file; -: standard output
    #[arg(long, value_name = "FILE")]
    #[serde(deserialize_with = "values::path")]
    pub(crate) access_log: Option<PathBuf>,

    /// Format of the access log [default: combined]
    #[arg(long, value_enum, value_name = "FORMAT")]
    #[serde(deserialize_with = "values::word")]
    pub(crate) access_log_format: Option<AccessFormat>,

    /// Hide the server's own state, /.upcall/
    #[arg(long)]
    #[serde(deserialize_with = "values::switch")]
    pub(crate) no_status: bool,

    /// Maximum number of connections, up to three quarters of RLIMIT_NOFILE [default: 16384 or
    /// less]
    #[arg(long, value_name = "N", value_parser = number::<usize>)]
    #[serde(deserialize_with = "values::number")]
    pub(crate) connections_max: Option<usize>,

    /// Memory for requests, unsent responses, fids and open files of all connections, MiB, or with
    /// a unit; at the limit, requests wait and stalled clients are disconnected [default: 512]
    #[arg(long, value_name = "MIB", value_parser = mebibytes::<usize>)]
    #[serde(deserialize_with = "values::mebibytes")]
    pub(crate) memory_max: Option<usize>,

    /// Maximum size of a 9P message, bytes, or with a unit, from 4K to 1M [default: 1M]
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u32>)]
    #[serde(deserialize_with = "values::bytes")]
    pub(crate) msize: Option<u32>,

    /// Time to poll for the next request before sleeping, microseconds, or with a unit; 0: no
    /// polling [default: 200]
    #[arg(long, value_name = "US", value_parser = microseconds)]
    #[serde(deserialize_with = "values::microseconds")]
    pub(crate) spin: Option<u64>,

    /// Number of threads for storelets, client programs that run next to the data; 0: run none
    /// [default: 1]
    #[arg(long, value_name = "N", value_parser = number::<usize>)]
    #[serde(deserialize_with = "values::number")]
    pub(crate) storelet_threads: Option<usize>,

    /// Total memory for storelets, MiB, or with a unit; at the limit, new storelets wait for others
    /// to end [default: 1024]
    #[arg(long, value_name = "MIB", value_parser = mebibytes::<u64>)]
    #[serde(deserialize_with = "values::mebibytes")]
    pub(crate) storelet_memory: Option<u64>,

    /// Memory for the storelets of one connection, MiB, or with a unit, including 6 MiB of server
    /// overhead for each [default: three quarters of --storelet-memory]
    #[arg(long, value_name = "MIB", value_parser = mebibytes::<u64>)]
    #[serde(deserialize_with = "values::mebibytes")]
    pub(crate) storelet_client_memory: Option<u64>,

    /// Maximum memory of one storelet, MiB, or with a unit; requests for more are refused [default:
    /// half of --storelet-memory, less 6]
    #[arg(long, value_name = "MIB", value_parser = mebibytes::<u64>)]
    #[serde(deserialize_with = "values::mebibytes")]
    pub(crate) storelet_memory_max: Option<u64>,

    /// Maximum run time of one storelet, including waits, seconds, or with a unit; requests for
    /// more are refused [default: 3600]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    #[serde(deserialize_with = "values::seconds")]
    pub(crate) storelet_time_max: Option<u64>,

    /// Maximum processor time of one storelet, seconds, or with a unit; requests for more are
    /// refused [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    #[serde(deserialize_with = "values::seconds")]
    pub(crate) storelet_cpu_max: Option<u64>,

    /// Directory for compiled storelets, not writable by other users [default: upcall/storelets in
    /// $XDG_CACHE_HOME or ~/.cache; if root starts the server and it acts as another user:
    /// storelets in /var/cache/upcall/UID]
    #[arg(long, value_name = "DIR")]
    #[serde(deserialize_with = "values::path")]
    pub(crate) storelet_cache: Option<PathBuf>,

    /// Directory for installed storelets, used by this server only [default: one for the served
    /// tree, below upcall/storelets in $XDG_STATE_HOME or ~/.local/state; if root starts the server
    /// and it acts as another user: below storelets in /var/lib/upcall/UID]
    #[arg(long, value_name = "DIR")]
    #[serde(deserialize_with = "values::path")]
    pub(crate) storelet_state: Option<PathBuf>,

    /// Read these options from a TOML file; command-line flags take precedence
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
}

/// Kernel I/O interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A single io_uring.
    Uring,
    /// Epoll and a thread pool.
    Threads,
}

/// NFS users who act as nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NfsSquash {
    /// User 0 and group 0.
    Root,
    /// Everyone.
    All,
    /// No one: root of a client is root here.
    None,
}

/// Severity of log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Losses and failures.
    Error,
    /// Conditions that may need attention.
    Warn,
    /// Changes of state.
    Info,
}

/// Format of log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Time, level, target and message.
    Text,
    /// One object per message.
    Json,
}

/// Format of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessFormat {
    /// Common Log Format.
    Common,
    /// Combined Log Format: with referer and user agent.
    Combined,
    /// One object per request, with its duration.
    Json,
}

/// Returns the values of the command line, or else those of the file.
fn either<T>(flags: Vec<T>, file: Vec<T>) -> Vec<T> {
    if flags.is_empty() { file } else { flags }
}

impl Serve {
    /// Completes the command line from the configuration file.
    pub(crate) fn complete(self) -> Result<Serve, String> {
        let Some(path) = self.config.clone() else { return Ok(self) };
        let file = Serve::read(&path)?;
        Ok(Serve {
            dir: self.dir.or(file.dir),
            names: self.names.or(file.names),
            ninep: either(self.ninep, file.ninep),
            nfs: either(self.nfs, file.nfs),
            http: either(self.http, file.http),
            replica: either(self.replica, file.replica),
            reach: either(self.reach, file.reach),
            read_only: self.read_only || file.read_only,
            write_through: self.write_through || file.write_through,
            http_write: self.http_write || file.http_write,
            allow_host: either(self.allow_host, file.allow_host),
            index: self.index || file.index,
            as_user: self.as_user.or(file.as_user),
            trust_clients: self.trust_clients || file.trust_clients,
            nfs_squash: self.nfs_squash.or(file.nfs_squash),
            nfs_allow: either(self.nfs_allow, file.nfs_allow),
            nfs_async: self.nfs_async || file.nfs_async,
            nfs_portmapper: self.nfs_portmapper || file.nfs_portmapper,
            cache: self.cache.or(file.cache),
            accept_loss: self.accept_loss || file.accept_loss,
            reactor: self.reactor.or(file.reactor),
            threads: self.threads.or(file.threads),
            record: self.record.or(file.record),
            log_level: self.log_level.or(file.log_level),
            log_format: self.log_format.or(file.log_format),
            access_log: self.access_log.or(file.access_log),
            access_log_format: self.access_log_format.or(file.access_log_format),
            no_status: self.no_status || file.no_status,
            connections_max: self.connections_max.or(file.connections_max),
            memory_max: self.memory_max.or(file.memory_max),
            msize: self.msize.or(file.msize),
            spin: self.spin.or(file.spin),
            storelet_threads: self.storelet_threads.or(file.storelet_threads),
            storelet_memory: self.storelet_memory.or(file.storelet_memory),
            storelet_client_memory: self.storelet_client_memory.or(file.storelet_client_memory),
            storelet_memory_max: self.storelet_memory_max.or(file.storelet_memory_max),
            storelet_time_max: self.storelet_time_max.or(file.storelet_time_max),
            storelet_cpu_max: self.storelet_cpu_max.or(file.storelet_cpu_max),
            storelet_cache: self.storelet_cache.or(file.storelet_cache),
            storelet_state: self.storelet_state.or(file.storelet_state),
            config: self.config,
        })
    }

    fn read(path: &Path) -> Result<Serve, String> {
        let text = bounded::read_text(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        parse(&text).map_err(|error| format!("{}{error}", path.display()))
    }
}

/// Parses a configuration file. An error begins with its line, if that is known.
fn parse(text: &str) -> Result<Serve, String> {
    let wrong = |error: toml::de::Error| explain(text, &error);
    let keys: toml::Table = toml::from_str(text).map_err(wrong)?;
    if keys.contains_key("dir") && keys.contains_key("volume") {
        return Err(": 'dir' and 'volume' both name the served tree; leave one out".to_string());
    }
    toml::from_str(text).map_err(wrong)
}

/// Describes an error with its line and key.
fn explain(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let what = match message.split_once(", expected ") {
        Some((unknown, _)) if unknown.starts_with("unknown field") => {
            format!("{unknown}; use the flags of 'upcall serve --help' without '--'")
        }
        _other => message.to_string(),
    };
    let Some(span) = error.span() else { return format!(": {what}") };
    let before = &text[..span.start];
    let line = before.matches('\n').count() + 1;
    let key = before.rsplit('\n').next().and_then(|last| last.split_once('='));
    let key = key.map_or(String::new(), |(key, _)| format!("{}: ", key.trim()));
    format!(" line {line}: {key}{what}")
}

/// Returns the addresses to listen on: the default, or the given ones; `none` means no address.
pub(crate) fn addresses(given: &[String], default: &str) -> Result<Vec<Address>, String> {
    match given {
        [] => Ok(vec![address(default)?]),
        [none] if none == "none" => Ok(Vec::new()),
        many if many.iter().any(|text| text == "none") => {
            Err("'none' is among other addresses: leave it out, or the others".to_string())
        }
        many => many.iter().map(|text| address(text)).collect(),
    }
}

/// Parses an address: `HOST:PORT`, `:PORT` (loopback), `unix:PATH`.
fn address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return match path.is_empty() {
            true => Err(format!("the address '{text}' has no path: write unix:PATH or none")),
            false => Ok(Address::Unix(path.into())),
        };
    }
    let full = if text.starts_with(':') { format!("127.0.0.1{text}") } else { text.to_string() };
    let error = match full.to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(address)) => return Ok(Address::Tcp(address)),
        Ok(None) => "it has no address".to_string(),
        Err(error) => error.to_string(),
    };
    match full.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.is_empty() => {
            Err(format!("cannot find the host '{host}' of '{text}': {error}; check its name"))
        }
        _unclear => Err(format!(
            "cannot understand the address '{text}': write HOST:PORT, unix:PATH or none"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hosts_and_ports_or_unix_sockets() {
        let tcp = |text: &str| Ok(vec![Address::Tcp(text.parse().unwrap())]);
        assert_eq!(addresses(&[], HTTP_DEFAULT), tcp("127.0.0.1:8080"));
        assert_eq!(addresses(&[":99".into()], HTTP_DEFAULT), tcp("127.0.0.1:99"));
        assert_eq!(addresses(&["none".into()], HTTP_DEFAULT), Ok(vec![]));
        let both = addresses(&["none".into(), "unix:/s".into()], HTTP_DEFAULT);
        assert!(both.is_err_and(|error| error.starts_with("'none' is among other addresses")));
        assert_eq!(
            addresses(&["unix:/run/u".into()], HTTP_DEFAULT),
            Ok(vec![Address::Unix("/run/u".into())])
        );
        for text in ["nonsense", "localhost:99999", "::1:"] {
            let error = addresses(&[text.into()], HTTP_DEFAULT).unwrap_err();
            assert!(error.contains("write HOST:PORT"), "{error}");
        }
        let error = addresses(&["unix:".into()], HTTP_DEFAULT).unwrap_err();
        assert!(error.contains("'unix:' has no path"), "{error}");
        let error = addresses(&["no-such-host.invalid:80".into()], HTTP_DEFAULT).unwrap_err();
        assert!(error.contains("cannot find the host 'no-such-host.invalid'"), "{error}");
    }

    #[test]
    fn a_file_has_the_same_words_and_flags_win() {
        let text = "dir = \"/srv\"\n9p = \":1\"\nhttp = [\":2\", \"unix:/x\"]\nread-only = true\n\
                    write-through = true\ncache = 64\n";
        let file = parse(text).unwrap();
        assert_eq!((file.ninep.len(), file.http.len(), file.read_only), (1, 2, true));
        assert_eq!((file.cache, file.write_through), (Some(64), true));
        let volume = parse("volume = \"v\"").unwrap();
        assert_eq!(volume.dir, Some(PathBuf::from("v")));
        let error = parse("colour = 1").unwrap_err();
        assert_eq!(
            error,
            " line 1: unknown field `colour`; use the flags of 'upcall serve --help' without '--'"
        );
    }
    #[test]
    fn values_of_a_file_have_the_units_of_flags() {
        let file = parse(
            "memory-max = \"2G\"\ncache = \"64\"\nmsize = \"64K\"\nspin = \"1ms\"\n\
             storelet-memory = \"512M\"\nstorelet-time-max = \"10m\"\nstorelet-cpu-max = 90\n\
             connections-max = \"1k\"\nthreads = 2\nas = 0\nreactor = \"threads\"\n",
        );
        let file = file.unwrap();
        assert_eq!((file.memory_max, file.cache), (Some(2048), Some(64)));
        assert_eq!((file.msize, file.spin), (Some(65536), Some(1000)));
        assert_eq!((file.storelet_memory, file.storelet_time_max), (Some(512), Some(600)));
        assert_eq!((file.storelet_cpu_max, file.connections_max), (Some(90), Some(1000)));
        assert_eq!((file.threads, file.as_user.as_deref()), (Some(2), Some("0")));
        assert_eq!(file.reactor, Some(Form::Threads));
    }

    #[test]
    fn an_empty_list_of_addresses_listens_nowhere() {
        let file = parse("9p = []\nhttp = []\nnfs = []\nreplica = []\n").unwrap();
        for listed in [&file.ninep, &file.http, &file.nfs] {
            assert_eq!(addresses(listed, HTTP_DEFAULT), Ok(vec![]));
        }
        assert!(file.replica.is_empty());
    }

    #[test]
    fn errors_of_a_file_name_the_key_and_the_format() {
        for (text, error) in [
            ("\nmemory-max = \"2X\"", " line 2: memory-max: write a size in MiB"),
            ("threads = -1", " line 1: threads: write a number like 250"),
            ("storelet-time-max = \"soon\"", " line 1: storelet-time-max: write a time of whole"),
            ("spin = [1]", " line 1: spin: write a time of whole microseconds, like 200"),
            ("msize = true", " line 1: msize: write a size in bytes"),
            ("9p = 5640", " line 1: 9p: write an address in quotes, or a list, like \"127"),
            ("9p = [\n  5640\n]", " line 1: 9p: write an address"),
            ("nfs-allow = []", " line 1: nfs-allow: write a network"),
            ("replica = 1", " line 1: replica: write a path in quotes, or a list"),
            ("as = []", " line 1: as: write a user's name or number"),
            ("read-only = \"yes\"", " line 1: read-only: write true or false"),
            ("log-format = \"xml\"", " line 1: log-format: write \"text\" or \"json\""),
            ("dir = 5", " line 1: dir: write a path in quotes"),
            ("dir = \"a\"\nvolume = \"b\"", ": 'dir' and 'volume' both name the served tree"),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.starts_with(error), "{text}: {found}");
        }
    }
}

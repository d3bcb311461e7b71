//! Options of the command line and, with the same names, of a TOML file.

use crate::bounded;
use clap::{Args, ValueEnum};
use reactor::Address;
use serde::Deserialize;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};

/// Default address of 9P. 5640 is next to the port of diod's clients.
pub(crate) const NINEP_DEFAULT: &str = "127.0.0.1:5640";
/// Default address of HTTP.
pub(crate) const HTTP_DEFAULT: &str = "127.0.0.1:8080";

/// Flags of `upcall serve`; a configuration file has the same words. What is said on the command
/// line wins.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Serve {
    /// The directory or volume to serve; a file named *.volume is made if it is not there
    /// [default: ./upcall.volume, if there is one]
    #[arg(value_name = "WHAT")]
    #[serde(alias = "volume")]
    pub(crate) dir: Option<PathBuf>,

    /// Join directories, volumes and other servers as this file says, with lines like
    /// 'mount / volume:demo.volume', 'mount -a /lib 9p://127.0.0.1:5641/lib',
    /// 'bind -b /src/mine /src/all', 'mount /logs host:/var/log'
    #[arg(long, value_name = "FILE")]
    pub(crate) names: Option<PathBuf>,

    /// Where to listen for 9P: HOST:PORT, unix:PATH, or none; can be given several times
    /// [default: 127.0.0.1:5640]
    #[arg(long = "9p", value_name = "ADDR")]
    #[serde(rename = "9p", deserialize_with = "one_or_many")]
    pub(crate) ninep: Vec<String>,

    /// Where to listen for HTTP: HOST:PORT, unix:PATH, or none; can be given several times
    /// [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) http: Vec<String>,

    /// Have this replica of a service, which 'upcall replica init' has made, at /services/NAME;
    /// whoever reaches the server can do its operations. Can be given several times
    #[arg(long, value_name = "FILE")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) replica: Vec<PathBuf>,

    /// Reach a replica of a service at another address than its members say, like hits.2=ADDR: by
    /// a tunnel that begins on this host, say. Can be given several times
    #[arg(long, value_name = "NAME.ID=ADDR")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) reach: Vec<String>,

    /// Let nobody change anything
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Answer a change only when it survives a power failure, not at the next fsync or moments
    /// later: each change of a volume, and writes to files of a directory
    #[arg(long)]
    pub(crate) write_through: bool,

    /// Allow PUT and DELETE over HTTP
    #[arg(long)]
    pub(crate) http_write: bool,

    /// Answer requests for this name of the server on loopback and unix sockets too, where a
    /// reverse proxy passes them on; can be given several times
    #[arg(long, value_name = "NAME")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) allow_host: Vec<String>,

    /// Show the file index.html of a directory over HTTP in its place
    #[arg(long)]
    pub(crate) index: bool,

    /// Act for clients on the network as this user, a name or a number (of a directory only as
    /// root) [default: the owner of the directory, without privileges, or of the volume's root]
    #[arg(long = "as", value_name = "USER")]
    #[serde(rename = "as")]
    pub(crate) as_user: Option<String>,

    /// Believe clients who they are, as diod -n and NFS do: only for networks you trust
    #[arg(long)]
    pub(crate) trust_clients: bool,

    /// Memory for a volume's blocks, MiB [default: 256]
    #[arg(long, value_name = "MIB")]
    pub(crate) cache: Option<usize>,

    /// Open a volume although its disk has lost transactions that were acknowledged as durable
    #[arg(long)]
    pub(crate) accept_loss: bool,

    /// How to talk to the kernel [default: uring where it is allowed, else threads]
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) reactor: Option<Form>,

    /// How many threads serve connections; the first one has the files as well
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,

    /// Write every I/O that clients ask of files into this file, which 'upcall load replay' takes:
    /// when, how long, which file, offset and length, no contents; a recording that is there is
    /// gone on with
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// Log messages of this level and of more severe ones to standard error [default: info]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,

    /// How to write log messages [default: text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    /// Append an entry for each HTTP request to this file; -: to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,

    /// How to write entries of the access log [default: combined]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) access_log_format: Option<AccessFormat>,

    /// Do not show the server's own state under /.upcall/
    #[arg(long)]
    pub(crate) no_status: bool,

    /// Most connections at once, up to three quarters of RLIMIT_NOFILE [default: 16384 or less]
    #[arg(long, value_name = "N")]
    pub(crate) connections_max: Option<usize>,

    /// Memory for what connections hold: requests, and responses not yet sent, MiB; when it is used
    /// up, requests wait, and clients that stall are disconnected [default: 512]
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_max: Option<usize>,

    /// Largest 9P message, bytes, at most 1048576 [default: 1048576]
    #[arg(long, value_name = "BYTES")]
    pub(crate) msize: Option<u32>,

    /// How long to look again for the next request before sleeping, microseconds; 0: never
    /// [default: 200]
    #[arg(long, value_name = "US")]
    pub(crate) spin: Option<u64>,

    /// How many threads run storelets, programs of clients beside the data; 0: none are run
    /// [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) storelet_threads: Option<usize>,

    /// Memory for storelets altogether, MiB; who wants more has to wait for others to end
    /// [default: 1024]
    #[arg(long, value_name = "MIB")]
    pub(crate) storelet_memory: Option<u64>,

    /// Memory for the storelets of one connection, with 6 MiB for each that the server needs, MiB
    /// [default: three quarters of --storelet-memory]
    #[arg(long, value_name = "MIB")]
    pub(crate) storelet_client_memory: Option<u64>,

    /// Most memory of one storelet, MiB; an order that says more is refused
    /// [default: half of --storelet-memory, less 6]
    #[arg(long, value_name = "MIB")]
    pub(crate) storelet_memory_max: Option<u64>,

    /// Longest time that a storelet may take, waiting included, seconds; an order that says more is
    /// refused [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) storelet_time_max: Option<u64>,

    /// Most processor time of one storelet, seconds; an order that says more is refused
    /// [default: 600]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) storelet_cpu_max: Option<u64>,

    /// Keep compiled storelets in this directory, which nobody else may write
    /// [default: upcall/storelets in $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIR")]
    pub(crate) storelet_cache: Option<PathBuf>,

    /// Keep storelets that are installed in this directory, which only this server may use
    /// [default: one for what is served, below upcall/storelets in $XDG_STATE_HOME or
    /// ~/.local/state]
    #[arg(long, value_name = "DIR")]
    pub(crate) storelet_state: Option<PathBuf>,

    /// Read all of this from a TOML file; flags win over it
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
}

/// How to talk to the kernel.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// One io_uring.
    Uring,
    /// Epoll and a pool of threads.
    Threads,
}

/// Severity of log messages.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// Something was lost, or does not work any more.
    Error,
    /// Something may have to be looked after.
    Warn,
    /// Something has changed.
    Info,
}

/// Format of log messages.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Time, level, target and message.
    Text,
    /// An object for each message.
    Json,
}

/// Format of the access log.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AccessFormat {
    /// The Common Log Format.
    Common,
    /// The Combined Log Format: with referer and user agent.
    Combined,
    /// An object for each request, with its duration.
    Json,
}

fn one_or_many<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany<T> {
        One(T),
        Many(Vec<T>),
    }
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    })
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
        toml::from_str(&text).map_err(|error| {
            let place = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            format!("{} line {place}: {}", path.display(), error.message())
        })
    }
}

/// Returns the addresses to listen on: the default, or the given ones; `none` means no address.
pub(crate) fn addresses(said: &[String], default: &str) -> Result<Vec<Address>, String> {
    match said {
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
        return Ok(Address::Unix(path.into()));
    }
    let full = if text.starts_with(':') { format!("127.0.0.1{text}") } else { text.to_string() };
    let error = match full.to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(address)) => return Ok(Address::Tcp(address)),
        Ok(None) => "it has no address".to_string(),
        Err(error) => error.to_string(),
    };
    match full.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.is_empty() => {
            Err(format!("cannot find the host '{host}' of '{text}': {error}"))
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
        let error = addresses(&["no-such-host.invalid:80".into()], HTTP_DEFAULT).unwrap_err();
        assert!(error.contains("cannot find the host 'no-such-host.invalid'"), "{error}");
    }

    #[test]
    fn a_file_has_the_same_words_and_flags_win() {
        let text = "dir = \"/srv\"\n9p = \":1\"\nhttp = [\":2\", \"unix:/x\"]\nread-only = true\n\
                    write-through = true\ncache = 64\n";
        let file: Serve = toml::from_str(text).unwrap();
        assert_eq!((file.ninep.len(), file.http.len(), file.read_only), (1, 2, true));
        assert_eq!((file.cache, file.write_through), (Some(64), true));
        let volume: Serve = toml::from_str("volume = \"v\"").unwrap();
        assert_eq!(volume.dir, Some(PathBuf::from("v")));
        let error = toml::from_str::<Serve>("colour = 1").unwrap_err();
        assert!(error.message().contains("unknown field `colour`"), "{error}");
    }
}

//! Client commands: files of any 9P server from the command line.
//!
//! Straight-line code on the [`client`] library. Transfers of trees use a few threads that share
//! the connection.

mod cat;
mod chmod;
mod cp;
mod df;
pub(crate) mod frame;
mod get;
mod list;
mod lists;
mod mv;
pub(crate) mod names;
mod put;
mod quota;
mod report;
mod run;
mod storelet;
mod trees;
mod waiting;
mod watch;

use clap::{Args, Subcommand, ValueEnum};
use client::{Address, Client, Dialect, Options};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Commands for the files of a server.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List directories on a 9P server.
    Ls(list::Ls),
    /// Write files from a 9P server to standard output.
    Cat(cat::Cat),
    /// Download a file or a directory tree from a 9P server.
    Get(get::Get),
    /// Upload a file or a directory tree to a 9P server.
    Put(put::Put),
    /// Show attributes of files on a 9P server.
    Stat(list::Stat),
    /// Remove files on a 9P server.
    Rm(lists::Rm),
    /// Create directories on a 9P server.
    Mkdir(lists::Mkdir),
    /// Move or rename files on a 9P server.
    Mv(mv::Mv),
    /// Copy files and directory trees on a 9P server.
    Cp(cp::Cp),
    /// Change permissions of files on a 9P server.
    Chmod(chmod::Chmod),
    /// Show free space of a 9P server.
    Df(df::Df),
    /// Show changes of files on an Upcall server as they are made.
    Watch(watch::Watch),
    /// Set or show limits on the space and number of files of a directory or a user of a volume.
    Quota(quota::Quota),
    /// Run a program on an Upcall server, next to the data.
    Run(Box<run::Run>),
    /// Install and manage named programs on an Upcall server.
    #[command(subcommand)]
    Storelet(storelet::Command),
    /// Show or change the namespace of an Upcall server.
    Names(names::Names),
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::Ls(ls) => list::ls(ls),
        Command::Cat(cat) => cat::run(cat),
        Command::Get(get) => get::run(get),
        Command::Put(put) => put::run(put),
        Command::Stat(stat) => list::stat(stat),
        Command::Rm(rm) => lists::rm(rm),
        Command::Mkdir(mkdir) => lists::mkdir(mkdir),
        Command::Mv(mv) => mv::run(mv),
        Command::Cp(cp) => cp::run(cp),
        Command::Chmod(chmod) => chmod::run(chmod),
        Command::Df(df) => df::run(df),
        Command::Watch(watch) => watch::run(watch),
        Command::Quota(quota) => quota::run(quota),
        Command::Run(run) => run::run(run),
        Command::Storelet(command) => storelet::run(command),
        Command::Names(names) => names::run(names),
    }
}

/// Server address, user and connection options.
#[derive(Args, Clone, Debug)]
pub(crate) struct Server {
    /// Server address: HOST:PORT, HOST (port 5640), :PORT (this host) or unix:PATH
    #[arg(value_name = "ADDR")]
    address: Address,

    /// Act as the user with this number, if the server trusts it [default: the current user]
    #[arg(long = "as", value_name = "UID", value_parser = crate::units::uid)]
    #[arg(conflicts_with = "user")]
    uid: Option<u32>,

    /// Act as the user with this name, if the server trusts it
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Attach name, the tree of the server: for diod, the path of the exported directory
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    aname: String,

    /// Protocol version [default: 9P2000.L, or 9P2000 if the server supports nothing else]
    #[arg(long, value_enum, value_name = "VERSION", ignore_case = true)]
    protocol: Option<Protocol>,

    /// Maximum time without a reply from the server: 5s, 500ms, 2m, or seconds
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::units::some_time)]
    timeout: Duration,

    /// Error message for a missing tree.
    #[arg(skip)]
    unfound: Option<String>,
}

/// Address of an Upcall server, for commands with other positional arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct At {
    /// Server address: HOST:PORT, HOST (port 5640), :PORT (this host) or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = ":5640")]
    at: Address,
}

impl At {
    /// Returns the server, with this timeout.
    pub(crate) fn server(&self, time_limit: Duration) -> Server {
        Server::at(&self.at, time_limit + Duration::from_secs(1))
    }
}

/// Protocol version.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Protocol {
    /// Linux dialect.
    #[value(name = "9P2000.L")]
    Linux,
    /// Plan 9 dialect.
    #[value(name = "9P2000")]
    Plan9,
}

impl Server {
    /// Returns the server at an address, as the user of this process, with this timeout.
    pub(crate) fn at(address: &Address, timeout: Duration) -> Server {
        let (address, aname) = (address.clone(), String::new());
        Server { address, uid: None, user: None, aname, protocol: None, timeout, unfound: None }
    }

    /// Returns the same server, attached to a directory of the tree.
    pub(crate) fn inside(&self, dir: &str) -> Server {
        let aname = format!("{}{dir}", self.aname.trim_end_matches('/'));
        Server { aname, ..self.clone() }
    }

    /// Returns the same server, with a message for a missing directory.
    pub(crate) fn or_say(&self, unfound: String) -> Server {
        Server { unfound: Some(unfound), ..self.clone() }
    }

    fn connect(&self) -> Result<Client, client::Error> {
        let options = Options {
            uid: self.uid,
            user: self.user.clone(),
            aname: self.aname.clone(),
            dialect: self.protocol.map(|protocol| match protocol {
                Protocol::Linux => Dialect::Linux,
                Protocol::Plan9 => Dialect::Plan9,
            }),
            deadline: self.timeout,
            ..Options::default()
        };
        Client::connect(&self.address, &options)
    }
}

/// An error, with the next step.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// An error of the server, or of the connection.
    Server(client::Error),
    /// An error of this host.
    Host(String),
    /// The reader of the output has closed it.
    ReaderClosed,
}

impl Trouble {
    /// Returns the error of a file of this host.
    fn host(doing: &str, path: &Path, cause: &std::io::Error, step: &str) -> Trouble {
        Trouble::Host(format!("cannot {doing} {}: {cause}; {step}", path.display()))
    }

    /// Returns whether the server cannot be used any more.
    fn is_fatal(&self) -> bool {
        match self {
            Trouble::Server(error) => error.is_fatal(),
            Trouble::Host(_) => false,
            Trouble::ReaderClosed => true,
        }
    }

    fn is_cancelled(&self) -> bool {
        matches!(self, Trouble::Server(client::Error::Cancelled))
    }
}

impl From<client::Error> for Trouble {
    fn from(error: client::Error) -> Trouble {
        Trouble::Server(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name with the end of a line must not look like another message.
        let one_line = |text: &str| text.replace('\n', "\u{fffd}");
        match self {
            Trouble::Server(error) => f.write_str(&one_line(&error.to_string())),
            Trouble::Host(text) => f.write_str(&one_line(text)),
            Trouble::ReaderClosed => f.write_str("the reader has closed the pipe"),
        }
    }
}

pub(crate) type Outcome<T> = Result<T, Trouble>;

/// Writes JSON to standard output.
fn say_json(value: &impl Serialize) -> Outcome<()> {
    frame::emit(&(crate::output::json(value) + "\n"))
}

/// Returns a unique name in the directory of a path.
fn temporary(path: &Path) -> PathBuf {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    // Processes of several hosts and containers may share a directory.
    static PROCESS: OnceLock<u64> = OnceLock::new();
    let process = PROCESS
        .get_or_init(|| crate::clock::random().unwrap_or_else(|_| u64::from(std::process::id())));
    path.with_file_name(format!(".upcall-{process:016x}-{number}"))
}

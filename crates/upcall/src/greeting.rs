//! What a person sees when the server starts: what is served, and how to reach it.

use crate::config::Serve;
use crate::place::{Bound, Directory};
use node::Protocol;
use reactor::Address;
use std::fmt;

/// The text, as `Display`.
pub(crate) struct Greeting<'a> {
    pub(crate) serve: &'a Serve,
    pub(crate) dir: &'a Directory,
    pub(crate) form: &'a str,
    pub(crate) rule: &'a str,
    pub(crate) bound: &'a [Bound],
}

impl fmt::Display for Greeting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.serve.read_only { "read-only" } else { "read-write" };
        writeln!(f, "serving  {}, {mode}", self.dir.path.display())?;
        writeln!(f, "reactor  {}", self.form)?;
        writeln!(f, "users    {}", self.rule)?;
        for (protocol, address) in self.bound {
            match (protocol, address) {
                (Protocol::NineP, Address::Tcp(address)) => self.ninep(f, address)?,
                (Protocol::NineP, Address::Unix(path)) => {
                    let path = path.display();
                    writeln!(f, "9p       unix:{path}")?;
                    writeln!(
                        f,
                        "         sudo mount -t 9p -o trans=unix,{} {path} /mnt",
                        self.options()
                    )?;
                }
                (Protocol::Http, Address::Tcp(address)) => {
                    writeln!(f, "http     http://{address}/")?;
                    writeln!(f, "         curl http://{address}/")?;
                }
                (Protocol::Http, Address::Unix(path)) => {
                    let path = path.display();
                    writeln!(f, "http     unix:{path}")?;
                    writeln!(f, "         curl --unix-socket {path} http://localhost/")?;
                }
            }
        }
        if !self.serve.no_status {
            writeln!(
                f,
                "status   /.upcall/ in the served tree: machines, queues, stages, metrics"
            )?;
        }
        writeln!(f, "Ctrl-C ends it when what is under way is done; once more ends it at once.")
    }
}

impl Greeting<'_> {
    fn ninep(&self, f: &mut fmt::Formatter<'_>, address: &std::net::SocketAddr) -> fmt::Result {
        let (host, port) = (address.ip(), address.port());
        writeln!(f, "9p       {address}")?;
        let options = self.options();
        writeln!(f, "         sudo mount -t 9p -o trans=tcp,port={port},{options} {host} /mnt")?;
        let path = self.dir.path.display();
        writeln!(f, "         diodls -s {address} -a {path}")?;
        writeln!(f, "         9p -a 'tcp!{host}!{port}' ls /")
    }

    fn options(&self) -> String {
        let access = if self.serve.trust_clients { "user" } else { "any" };
        format!("version=9p2000.L,msize=1048576,access={access}")
    }
}

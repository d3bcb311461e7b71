//! Mounts that cache until the server reports a change, and the requests that they send.

use anyhow::{Context as _, Result, ensure};
use rig::server::Server;
use rig::sh;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time after which a change counts as one that is never seen: much less than the time for which
/// caches are valid.
const NEVER: Duration = Duration::from_secs(600);

/// Two mounts that cache until a change is reported.
pub(super) struct Watched<'a> {
    pub(super) server: &'a Server,
    pub(super) a: &'a Path,
    pub(super) b: &'a Path,
}

/// Waits until something is so.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !is_so() {
        ensure!(begin.elapsed() < NEVER, "{what} is not seen");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns how many messages of these types the server has answered.
pub(super) fn messages(server: &Server, types: &[&str]) -> Result<u64> {
    let url = format!("http://127.0.0.1:{}/.upcall/metrics", server.http);
    let metrics = sh::read(&mut sh::cmd("curl", &["-sS", "--fail", &url]))?;
    let replies = metrics.lines().filter(|line| line.starts_with("upcall_9p_replies_total"));
    ensure!(replies.clone().count() > 0, "the metrics count no replies");
    // A type that nobody has sent is not there.
    let is_meant = |line: &&str| types.iter().any(|name| line.contains(&format!("\"{name}\"")));
    let counts = replies.filter(is_meant).filter_map(|line| line.rsplit(' ').next());
    counts.map(|count| count.parse::<u64>().context("a count")).sum()
}

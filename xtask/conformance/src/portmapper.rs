//! NFS with the portmapper: the tools of rpcbind and libnfs, in namespaces of their own.

use super::give_away;
use anyhow::{Context, Result, ensure};
use rig::report::Report;
use rig::server::{self, Kind};
use rig::sh;
use std::collections::BTreeMap;

const SCRIPT: &str = include_str!("portmapper/inside.sh");

/// Runs the suite.
pub(crate) fn run(report: &mut Report, _: Kind) -> Result<()> {
    let dir = sh::empty("portmapper")?;
    std::fs::write(dir.join("hello"), "hello\n")?;
    give_away(&dir)?;
    let mut inside = sh::cmd("unshare", &["--net", "--mount", "--pid", "--fork", "--kill-child"]);
    inside.args(["timeout", "120", "sh", "-c", SCRIPT, "sh"]).arg(&dir).arg(server::binary());
    let text = format!("\n{}", sh::read(&mut inside)?);
    let parts: BTreeMap<&str, &str> =
        text.split("\n@").filter_map(|part| part.split_once('\n')).collect();
    let part = |word: &str| parts.get(word).copied().with_context(|| format!("no @{word}: {text}"));
    let has = |word: &str, texts: &[&str]| -> Result<String> {
        let text = part(word)?;
        let lacks = texts.iter().find(|expected| !text.contains(**expected));
        ensure!(lacks.is_none(), "{lacks:?} is not in {text}");
        Ok(String::new())
    };
    report.case("portmapper/without", || has("none", &["Connection refused", "start rpcbind"]));
    report.case("portmapper/greeting", || {
        ensure!(!part("greeting")?.contains("port="), "{}", part("greeting")?);
        has("greeting", &["-o vers=3,tcp,nolock 127.0.0.1:/"])
    });
    report.case("portmapper/registered", || {
        for program in ["100003", "100005"] {
            let is_line = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.starts_with(&[program, "3", "tcp", "20490"])
            };
            ensure!(part("registered")?.lines().any(is_line), "{program}: {text}");
        }
        Ok("NFS and MOUNT".into())
    });
    report.case("portmapper/libnfs", || has("files", &["hello"]));
    report.case("portmapper/another_server", || {
        has("second", &["port 20490 is registered, and a program listens there"])
    });
    report.case("portmapper/not_root", || {
        has("user", &["Permission denied", "start the server as root"])
    });
    report.case("portmapper/after_a_kill", || has("again", &["hello"]));
    report.case("portmapper/another_port_after_a_kill", || {
        has("moved", &["100003 3 tcp 20494", "100005 3 tcp 20494"])
    });
    report.case("portmapper/server_at_another_address", || {
        has("address", &["port 20497 is registered, and a program listens there"])
    });
    report.case("portmapper/udp_of_another_server_stays", || {
        let left = part("udp")?;
        ensure!(!left.contains("tcp 20499") && !left.contains("100005 3"), "{left}");
        has("udp", &["100003 3 udp 2049", "100005 1 udp 20048"])
    });
    report.case("portmapper/volume", || has("volume", &["100003 3 tcp 20495"]));
    report.case("portmapper/ipv6", || {
        let refused = part("ipv6")?.matches("--nfs-portmapper registers NFS at an IPv4 address");
        ensure!(refused.count() == 2, "{}", part("ipv6")?);
        Ok(String::new())
    });
    report.case("portmapper/removed_at_the_end", || {
        ensure!(!part("ended")?.contains("100003"), "{}", part("ended")?);
        has("ended", &["100000"])
    });
    Ok(())
}

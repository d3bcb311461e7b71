//! Restarts of the server under the kernel's NFS client: it continues without an error, with the
//! same file handles, and writes again what may be lost.

use super::ground::{Ground, On};
use anyhow::Result;
use rig::report::Report;
use rig::server::{Kind, Server, free_port, until_closed};
use rig::vm::{self, Job};

const SCRIPT: &str = include_str!("guest/restart");

const CASES: [&str; 4] = ["held", "removed", "written", "created"];

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind, on: On) -> Result<()> {
    let ground = Ground::new("nfs-restart", on)?;
    std::fs::write(ground.dir.join("gone"), "gone\n")?;
    ground.fill()?;
    let ports = (free_port()?, free_port()?);
    let nfs = free_port()?;
    let address = format!("127.0.0.1:{nfs}");
    let flags = ["--trust-clients", "--nfs", &address, "--nfs-squash", "none"];
    let start = || ground.serve_at(kind, ports, &flags);
    let mut server: Option<Server> = Some(start()?);
    let suite = on.suite("nfs-restart");
    let script = vm::mount_nfs_script(nfs) + SCRIPT;
    let job = Job::new(&suite, &script)?;
    let mut restarts = 0;
    let mut failure = None;
    let text = job.run_watched(|line| {
        let Some(order) = line.strip_prefix("@host ") else { return };
        let mut obey = || -> Result<()> {
            if let Some(name) = order.strip_prefix("remove ") {
                let server = server.as_ref().expect("it runs");
                return ground.remove(server, name.trim());
            }
            if let Some(mut running) = server.take() {
                running.kill()?;
                [ports.0, ports.1, nfs].into_iter().for_each(until_closed);
            }
            server = Some(start()?);
            restarts += 1;
            Ok(())
        };
        failure = obey().err().or(failure.take());
    })?;
    if let Some(error) = failure {
        return Err(error);
    }
    vm::enter(report, &suite, &text, &CASES);
    report.case(&format!("{suite}/restarts"), || {
        anyhow::ensure!(restarts == 18, "{restarts} restarts");
        server.take().expect("it runs").stop()?;
        ground.back().map(|_| format!("{restarts}"))
    });
    Ok(())
}

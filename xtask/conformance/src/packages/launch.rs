//! A launcher of services: a network of its own, `/proc` in the root, a socket for notifications.

use anyhow::{Context as _, Result, bail, ensure};
use rig::server::binary;
use rig::sh;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Timeout of a notification, and of the end of a server.
const NOTIFY_TIME: Duration = Duration::from_secs(120);
/// Time in which a server that nobody has connected to must not have started.
const SILENCE_TIME: Duration = Duration::from_millis(500);

/// A network namespace with a loopback interface, so that default ports are free.
pub(super) struct Network {
    name: String,
}

impl Network {
    pub(super) fn new(prefix: &str) -> Result<Network> {
        let name = format!("{prefix}-{}", std::process::id());
        sh::read(&mut sh::cmd("ip", &["netns", "add", &name]))?;
        let network = Network { name };
        sh::read(network.command("ip").args(["link", "set", "lo", "up"]))?;
        Ok(network)
    }

    /// Returns a command in the namespace.
    fn command(&self, program: &str) -> Command {
        sh::cmd("ip", &["netns", "exec", &self.name, program])
    }

    /// Gets a URL with curl.
    pub(super) fn get(&self, url: &str, expected: &str) -> Result<()> {
        let mut curl = self.command("curl");
        let got = sh::read(curl.args(["-sS", "--fail", "--max-time", "20", url]))?;
        ensure!(got == expected, "{url} is {got:?}");
        Ok(())
    }

    /// Lists the root of a 9P server.
    pub(super) fn ninep(&self, address: &str) -> Result<String> {
        let program = binary().display().to_string();
        sh::read(self.command(&program).args(["ls", address, "/"]))
    }

    /// Lists the root of a 9P server as this user and group.
    pub(super) fn ninep_as(&self, (user, group): (u32, u32), address: &str) -> Result<String> {
        let mut command = self.command("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={group}")]);
        sh::read(command.arg("--clear-groups").arg(binary()).args(["ls", address, "/"]))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = sh::read(&mut sh::cmd("ip", &["netns", "del", &self.name]));
    }
}

/// A started server. Dropping it ends it.
pub(super) struct Started {
    child: Child,
    notifications: UnixDatagram,
    log: PathBuf,
}

impl Started {
    /// Starts a command with these variables; its server runs in `root`.
    pub(super) fn new(
        network: &Network,
        root: &Path,
        environment: &[String],
        command: &[String],
    ) -> Result<Started> {
        std::fs::create_dir_all(root.join("proc"))?;
        std::fs::create_dir_all(root.join("run"))?;
        let socket = root.join("run/notify");
        let _ = std::fs::remove_file(&socket);
        let notifications = UnixDatagram::bind(&socket)?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777))?;
        let log = root.with_extension("log");
        let file = std::fs::File::create(&log)?;
        // Mounts of `ip netns exec` end with the process, which is replaced by the server.
        let script = "mount -t proc proc \"$1\"/proc && shift && exec env -i \"$@\"";
        let mut all = network.command("sh");
        all.args(["-c", script, "sh"]).arg(root);
        all.arg("NOTIFY_SOCKET=/run/notify").args(environment);
        all.arg("PATH=/usr/sbin:/usr/bin:/sbin:/bin").args(command);
        all.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = all.spawn().context("start ip netns exec")?;
        Ok(Started { child, notifications, log })
    }

    /// Waits for a notification with this line; returns its status.
    pub(super) fn expect(&mut self, line: &str) -> Result<String> {
        self.notifications.set_read_timeout(Some(NOTIFY_TIME))?;
        let mut bytes = [0; 4096];
        let Ok(length) = self.notifications.recv(&mut bytes) else {
            bail!("no {line} within {NOTIFY_TIME:?}: {}", self.printed());
        };
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        ensure!(text.lines().any(|it| it == line), "the notification is {text:?}, not {line}");
        let status = text.lines().find_map(|it| it.strip_prefix("STATUS="));
        Ok(status.context("a notification without a status")?.to_owned())
    }

    /// Checks that no server has started.
    pub(super) fn expect_silence(&mut self) -> Result<()> {
        self.notifications.set_read_timeout(Some(SILENCE_TIME))?;
        ensure!(self.notifications.recv(&mut [0; 64]).is_err(), "it started without a connection");
        ensure!(self.child.try_wait()?.is_none(), "it ended: {}", self.printed());
        Ok(())
    }

    /// Ends the server by a signal, as systemd does; it has to say so, and to succeed.
    pub(super) fn stop(&mut self) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("a process")?;
        kill_process(pid, Signal::TERM)?;
        self.expect("STOPPING=1")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}: {}", self.printed());
        Ok(())
    }

    fn printed(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        sh::tail(&text, 600).to_owned()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

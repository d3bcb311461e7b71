//! Programs that operators run with a server: reverse proxies (nginx, Caddy), Prometheus's check of
//! metrics, rclone's HTTP backend, and the logs.

use super::give_away;
use anyhow::{Context, Result, bail, ensure};
use rig::report::Report;
use rig::server::{Kind, Server, free_port};
use rig::{apt, sh};
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Host name of the proxies.
const NAME: &str = "files.example.com";

/// Timeout for a proxy to listen.
const START_TIME: Duration = Duration::from_secs(120);

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if matches!(kind, Kind::Diod | Kind::Nginx | Kind::Before) {
        report.skip("operators", "only our own server is behind these");
        return Ok(());
    }
    let base = sh::empty("operators")?;
    let dir = base.join("served");
    fill(&dir)?;
    give_away(&dir)?;
    for proxy in [Proxy::Nginx, Proxy::Caddy] {
        report.case(&format!("operators/{}", proxy.name()), || behind(proxy, kind, &base));
        report.case(&format!("operators/{}_unix", proxy.name()), || unix(proxy, kind, &base));
    }
    report.case("operators/promtool", || promtool(kind, &base));
    report.case("operators/rclone", || rclone(kind, &base));
    report.case("operators/access_log", || access_log(kind, &base));
    Ok(())
}

fn fill(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir.join("tree/sub"))?;
    std::fs::write(dir.join("hello"), "hello\n")?;
    std::fs::write(dir.join("tree/one"), "1\n")?;
    std::fs::write(dir.join("tree/sub/two & <three>"), "2\n")?;
    std::os::unix::fs::symlink("sub", dir.join("tree/link"))?;
    std::os::unix::fs::symlink("one", dir.join("tree/to-one"))?;
    Ok(())
}

/// A program that is killed at the end of the case.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Clone, Copy)]
enum Proxy {
    Nginx,
    Caddy,
}

impl Proxy {
    fn name(self) -> &'static str {
        match self {
            Proxy::Nginx => "nginx",
            Proxy::Caddy => "caddy",
        }
    }

    /// Starts it in front of `upstream`, which is `127.0.0.1:PORT` or the path of a unix socket.
    fn start(self, base: &Path, upstream: &str) -> Result<(Running, u16)> {
        let port = free_port()?;
        let scratch = base.join(self.name());
        std::fs::create_dir_all(&scratch)?;
        let log = std::fs::File::create(scratch.join("log"))?;
        let mut command = match self {
            Proxy::Nginx => nginx(&scratch, port, upstream)?,
            Proxy::Caddy => caddy(&scratch, port, upstream)?,
        };
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn().with_context(|| format!("start {}", self.name()))?;
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let printed = || std::fs::read_to_string(scratch.join("log")).unwrap_or_default();
            if let Some(status) = child.try_wait()? {
                bail!("{} ended at once ({status}): {}", self.name(), sh::tail(&printed(), 600));
            }
            ensure!(
                begun.elapsed() < START_TIME,
                "no listener within 30 s: {}",
                sh::tail(&printed(), 600)
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok((Running(child), port))
    }
}

fn nginx(scratch: &Path, port: u16, upstream: &str) -> Result<Command> {
    let to = if upstream.starts_with('/') { format!("unix:{upstream}:") } else { upstream.into() };
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let text = format!(
        "{user}\ndaemon off;\npid {scratch}/pid;\nerror_log stderr;\n\
         events {{ worker_connections 64; }}\nhttp {{\n  access_log off;\n  \
         client_body_temp_path {scratch}/body;\n  proxy_temp_path {scratch}/proxy;\n  \
         fastcgi_temp_path {scratch}/fastcgi;\n  uwsgi_temp_path {scratch}/uwsgi;\n  \
         scgi_temp_path {scratch}/scgi;\n  server {{\n    listen 127.0.0.1:{port};\n    \
         location / {{\n      proxy_pass http://{to};\n      proxy_http_version 1.1;\n      \
         proxy_set_header Host $http_host;\n    }}\n    \
         location /files/ {{\n      proxy_pass http://{to}{at};\n      \
         proxy_set_header Host $http_host;\n    }}\n  }}\n}}\n",
        // The path of the location is replaced by this one.
        at = "/",
        scratch = scratch.display(),
    );
    let conf = scratch.join("nginx.conf");
    std::fs::write(&conf, text)?;
    let mut command = Command::new(sh::which("nginx").context("nginx is not installed")?);
    command.arg("-c").arg(conf).arg("-p").arg(scratch);
    Ok(command)
}

fn caddy(scratch: &Path, port: u16, upstream: &str) -> Result<Command> {
    let to = if upstream.starts_with('/') { format!("unix/{upstream}") } else { upstream.into() };
    let text = format!(
        "{{\n\tadmin off\n\tauto_https off\n}}\nhttp://:{port} {{\n\tbind 127.0.0.1\n\t\
         handle_path /files/* {{\n\t\treverse_proxy {to}\n\t}}\n\thandle {{\n\t\t\
         reverse_proxy {to}\n\t}}\n}}\n"
    );
    let conf = scratch.join("Caddyfile");
    std::fs::write(&conf, text)?;
    let mut command = Command::new(apt::unpacked("caddy", "usr/bin/caddy")?);
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(conf);
    command.env("HOME", scratch).env("XDG_DATA_HOME", scratch).env("XDG_CONFIG_HOME", scratch);
    Ok(command)
}

/// Returns status and body of a request for this host, sent by curl.
fn curl(port: u16, host: &str, words: &[&str], path: &str) -> Result<(u16, String)> {
    let mut command = sh::cmd("curl", &["-sS", "--max-time", "20", "-w", "\n%{http_code}"]);
    command.args(["-H", &format!("Host: {host}")]).args(words);
    let printed = sh::read(command.arg(format!("http://127.0.0.1:{port}{path}")))?;
    let (body, status) = printed.trim_end().rsplit_once('\n').unwrap_or(("", &printed));
    Ok((status.trim().parse().with_context(|| printed.clone())?, body.trim_end().to_string()))
}

/// Sends requests through a proxy: refused without `--allow-host`, served with it.
fn check(proxy: Proxy, base: &Path, upstream: &str, is_allowed: bool) -> Result<()> {
    let (_running, port) = proxy.start(base, upstream)?;
    let (status, body) = curl(port, NAME, &[], "/hello")?;
    if !is_allowed {
        ensure!(status == 403 && body.contains("--allow-host"), "{status} {body}");
        return Ok(());
    }
    ensure!((status, &*body) == (200, "hello"), "{status} {body}");
    let origin = format!("Origin: https://{NAME}");
    let file = base.join("upload");
    std::fs::write(&file, vec![7; 300_000])?;
    let upload = file.to_str().context("a path of text")?;
    let (status, body) = curl(port, NAME, &["-H", &origin, "-T", upload], "/put")?;
    ensure!([201, 204].contains(&status), "PUT from its own page: {status} {body}");
    let (status, _) =
        curl(port, NAME, &["-H", "Origin: https://evil.example", "-T", upload], "/put")?;
    ensure!(status == 403, "PUT from a page of another site: {status}");
    let (status, _) = curl(port, NAME, &["-r", "1-3"], "/hello")?;
    ensure!(status == 206, "a range: {status}");
    let (status, body) = curl(port, NAME, &["-H", "Accept: application/json"], "/tree/")?;
    ensure!(status == 200 && body.contains("\"href\":\"link/\""), "{status} {body}");
    // The same server at another path.
    let (status, body) = curl(port, NAME, &["-L"], "/files/tree")?;
    ensure!(status == 200 && body.contains("link"), "a redirect at a path: {status} {body}");
    let to = ["-X", "MOVE", "-H", "Destination: /moved", "-H", &origin];
    let (status, body) = curl(port, NAME, &to, "/files/put")?;
    ensure!([201, 204].contains(&status), "MOVE at a path: {status} {body}");
    let (status, _) = curl(port, NAME, &["-r", "0-0"], "/files/moved")?;
    ensure!(status == 206, "what was moved at a path: {status}");
    Ok(())
}

fn behind(proxy: Proxy, kind: Kind, base: &Path) -> Result<String> {
    for is_allowed in [false, true] {
        let flags = ["--http-write", "--allow-host", NAME];
        let flags = if is_allowed { &flags[..] } else { &flags[..1] };
        let server = Server::start(kind, &base.join("served"), flags)?;
        check(proxy, base, &format!("127.0.0.1:{}", server.http), is_allowed)?;
    }
    Ok(format!("refused without --allow-host, then GET, PUT and ranges as {NAME}"))
}

fn unix(proxy: Proxy, kind: Kind, base: &Path) -> Result<String> {
    let socket = base.join(format!("{}.socket", proxy.name()));
    let address = format!("unix:{}", socket.display());
    // Behind a Unix socket, permissions are those of the proxy's user.
    let flags = ["--http", &address, "--http-write", "--allow-host", NAME];
    let server = Server::start(kind, &base.join("served"), &flags)?;
    check(proxy, base, socket.to_str().context("a path of text")?, true)?;
    drop(server);
    Ok("the same over a unix socket".into())
}

/// Tests that `promtool` accepts the metrics of a volume, replica and mount.
fn promtool(kind: Kind, base: &Path) -> Result<String> {
    let port = free_port()?;
    let mut init = Command::new(rig::server::binary());
    init.args(["replica", "init", "m", "--type", "map", "--size", "16M", "--members"]);
    sh::read(init.arg(format!("127.0.0.1:{port}")).arg("--dir").arg(base))?;
    let far = Server::start(kind, &base.join("served"), &[])?;
    let names = base.join("names");
    let volume = base.join("m.volume");
    let lines = format!(
        "mount /vol volume:{}\nmount /far 9p://127.0.0.1:{}\n",
        volume.display(),
        far.ninep
    );
    std::fs::write(&names, lines)?;
    let replica = base.join("m.1.replica");
    let replica = replica.to_str().context("a path of text")?;
    let server = Server::start_space(kind, &names, &["--replica", replica])?;
    for path in ["/far/hello", "/nothing"] {
        curl(server.http, "localhost", &[], path)?;
    }
    let url = format!("http://127.0.0.1:{}/.upcall/metrics", server.http);
    let metrics = sh::read(&mut sh::cmd("curl", &["-sSf", &url]))?;
    let mut check = Command::new(apt::unpacked("prometheus", "usr/bin/promtool")?);
    check.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut child = check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("its input")?.write_all(metrics.as_bytes())?;
    let output = child.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && printed.is_empty(), "{}: {printed}", output.status);
    for family in [
        "upcall_http_requests_total{method=\"GET\",code=\"404\"}",
        "upcall_volume_free_bytes{",
        "upcall_replica_unfinal_operations{service=\"m\"",
        "upcall_mounted_server_up{",
        "upcall_sent_bytes_total{protocol=\"http\"}",
    ] {
        ensure!(metrics.contains(family), "no {family} in {metrics}");
    }
    Ok(format!("{} families", metrics.matches("# TYPE ").count()))
}

/// Copies all files with rclone, which follows the links of listings.
fn rclone(kind: Kind, base: &Path) -> Result<String> {
    let server = Server::start(kind, &base.join("served"), &[])?;
    let to = base.join("copied");
    let mut copy = Command::new(apt::unpacked("rclone", "usr/bin/rclone")?);
    copy.args(["copy", "--http-url", &format!("http://127.0.0.1:{}/tree/", server.http), ":http:"]);
    copy.arg(&to).env("HOME", base).env("RCLONE_CONFIG", base.join("rclone.conf"));
    sh::read(&mut copy)?;
    let read = |path: &str| std::fs::read_to_string(to.join(path)).context(path.to_string());
    ensure!(read("one")? == "1\n" && read("to-one")? == "1\n", "files");
    for path in ["sub/two & <three>", "link/two & <three>"] {
        ensure!(read(path)? == "2\n", "{path}");
    }
    Ok("files, and a link to a directory as a directory".into())
}

/// Tests the entries of the access log in each format.
fn access_log(kind: Kind, base: &Path) -> Result<String> {
    for (format, expected) in [
        ("common", "\"GET /hello HTTP/1.1\" 200 6\n"),
        ("combined", "\"GET /hello HTTP/1.1\" 200 6 \"-\" \"curl/"),
        ("json", "\"target\":\"/hello\""),
    ] {
        let path: PathBuf = base.join(format!("access.{format}"));
        let text = path.to_str().context("a path of text")?;
        let flags = ["--access-log", text, "--access-log-format", format];
        let mut server = Server::start(kind, &base.join("served"), &flags)?;
        curl(server.http, "localhost", &[], "/hello")?;
        server.stop()?;
        let log = std::fs::read_to_string(&path)?;
        ensure!(log.contains(expected) && log.lines().count() == 1, "{format}: {log}");
    }
    Ok("common, combined, JSON".into())
}

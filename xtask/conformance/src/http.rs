//! HTTP/1.1: curl for common use, raw bytes for requests that curl will not send.

mod curl;
mod hostile;
mod reading;
mod writing;

use super::give_away;
use super::ground::{Ground, On};
use anyhow::{Context, Result, ensure};
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::sh;
use std::path::Path;

/// A case: its name and its function of the server and the served storage.
type Case = (&'static str, fn(&Server, &Ground) -> Result<String>);

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind, on: On) -> Result<()> {
    if matches!(kind, Kind::Diod | Kind::Nginx) {
        report.skip("http", "only our own server has these rules");
        return Ok(());
    }
    let ground = Ground::new("http", on)?;
    fill(&ground.dir)?;
    give_away(&ground.dir)?;
    ground.fill()?;
    let mut server = ground.serve(kind, &["--http-write"])?;
    expect(&server, ("GET", "/digits"), "", 200)
        .context("the server answers nothing, so there is nothing to check")?;
    let suite = on.suite("http");
    for (name, case) in [curl::CASES, reading::CASES, writing::CASES, hostile::CASES].concat() {
        report.case(&format!("{suite}/{name}"), || case(&server, &ground));
    }
    report.case(&format!("{suite}/server_lives"), || {
        ensure!(server.alive(), "the server died: {}", sh::tail(&server.printed(), 500));
        Ok(format!("{} KiB resident", server.rss_kib()))
    });
    drop(server);
    let closed = ground.serve(kind, &[])?;
    report.case(&format!("{suite}/writing_needs_a_flag"), || writing::refused(&closed, &ground));
    drop(closed);
    if on == On::Volume {
        report.case(&format!("{suite}/check"), || ground.back().map(|_| "and copied out".into()));
    }
    Ok(())
}

fn fill(dir: &Path) -> Result<()> {
    std::fs::write(dir.join("digits"), "0123456789")?;
    std::fs::write(dir.join("page.html"), "<p>hello</p>\n")?;
    std::fs::write(dir.join("empty"), "")?;
    std::fs::write(dir.join("with space & <mark>.txt"), "odd name\n")?;
    std::fs::write(dir.join("100%"), "percent\n")?;
    let big: Vec<u8> =
        (0..3_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    std::fs::write(dir.join("big.bin"), big)?;
    std::fs::create_dir_all(dir.join("dir/sub"))?;
    std::fs::write(dir.join("dir/inner.txt"), "inner\n")?;
    std::fs::write(dir.with_extension("secret"), "outside\n")?;
    std::os::unix::fs::symlink("../http.secret", dir.join("escape"))?;
    std::os::unix::fs::symlink("/etc/passwd", dir.join("absolute"))?;
    std::os::unix::fs::symlink("digits", dir.join("inside"))?;
    Ok(())
}

/// Returns a `HEAD` or `GET` request with the correct `Host` and further header lines.
fn request(server: &Server, method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{fields}\r\n", server.http)
}

/// Sends a [`request`] on a connection of its own and returns the response.
fn ask(server: &Server, method: &str, path: &str, fields: &str) -> Result<super::raw::Answer> {
    super::raw::once(server.http, &request(server, method, path, fields))
}

/// Sends a request and checks the status.
fn expect(
    server: &Server,
    (method, path): (&str, &str),
    fields: &str,
    status: u16,
) -> Result<super::raw::Answer> {
    let answer = ask(server, method, path, fields)?;
    ensure!(
        answer.status == status,
        "{method} {path} with {fields:?}: {} and not {status}: {}",
        answer.status,
        sh::tail(&answer.text(), 200)
    );
    Ok(answer)
}

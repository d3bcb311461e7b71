//! Common use of curl.

use super::super::ground::Ground;
use super::Case;
use anyhow::{Result, ensure};
use rig::server::Server;
use rig::sh;

pub(super) const CASES: &[Case] = &[
    ("curl_get", get),
    ("curl_reuses_its_connection", reuse),
    ("curl_range", range),
    ("curl_conditional", conditional),
    ("curl_upload_and_delete", upload),
    ("curl_chunked_upload", chunked),
    ("curl_resumes", resume),
];

fn curl(server: &Server, args: &[&str], path: &str) -> Result<String> {
    let url = format!("http://127.0.0.1:{}{path}", server.http);
    sh::read(sh::cmd("curl", &["-sS", "-m", "10"]).args(args).arg(url))
}

fn get(server: &Server, ground: &Ground) -> Result<String> {
    let out = ground.dir.with_extension("got");
    curl(server, &["-f", "-o", &out.display().to_string()], "/big.bin")?;
    ensure!(std::fs::read(&out)? == std::fs::read(ground.dir.join("big.bin"))?, "the bytes differ");
    let odd = curl(server, &["-f"], "/with%20space%20&%20%3Cmark%3E.txt")?;
    ensure!(odd == "odd name\n", "got {odd:?}");
    ensure!(curl(server, &["-f"], "/100%25")? == "percent\n", "a percent sign in a name");
    Ok("3,000,000 bytes".into())
}

fn reuse(server: &Server, _: &Ground) -> Result<String> {
    let url = format!("http://127.0.0.1:{}/digits", server.http);
    let format = "%{num_connects} ";
    let args = ["-sS", "-m", "10", "-o", "/dev/null", "-o", "/dev/null", "-o", "/dev/null", "-w"];
    let printed = sh::read(sh::cmd("curl", &args).args([format, &url, &url, &url]))?;
    ensure!(printed.trim() == "1 0 0", "connections made: {printed}");
    Ok("three requests, one connection".into())
}

fn range(server: &Server, _: &Ground) -> Result<String> {
    ensure!(curl(server, &["-r", "2-4"], "/digits")? == "234", "2-4");
    ensure!(curl(server, &["-r", "7-"], "/digits")? == "789", "7-");
    ensure!(curl(server, &["-r", "-3"], "/digits")? == "789", "-3");
    Ok(String::new())
}

fn conditional(server: &Server, ground: &Ground) -> Result<String> {
    let etags = ground.dir.with_extension("etag").display().to_string();
    curl(server, &["-f", "--etag-save", &etags], "/digits")?;
    let code = curl(server, &["--etag-compare", &etags, "-w", "%{http_code}"], "/digits")?;
    ensure!(code == "304", "with its own ETag: {code}");
    let code =
        curl(server, &["-z", "Sun, 01 Jan 2040 00:00:00 GMT", "-w", "%{http_code}"], "/digits")?;
    ensure!(code == "304", "if modified since 2040: {code}");
    let code =
        curl(server, &["-z", "Mon, 01 Jan 1990 00:00:00 GMT", "-w", "%{http_code}"], "/digits")?;
    ensure!(code == "0123456789200", "if modified since 1990: {code}");
    Ok(String::new())
}

fn upload(server: &Server, ground: &Ground) -> Result<String> {
    let file = ground.dir.join("big.bin").display().to_string();
    let code = curl(server, &["-T", &file, "-w", "%{http_code}"], "/uploaded")?;
    ensure!(code.ends_with("201"), "the first PUT: {code}");
    ensure!(ground.read(server, "uploaded")? == std::fs::read(&file)?, "the bytes differ");
    let code = curl(server, &["-T", &file, "-w", "%{http_code}"], "/uploaded")?;
    ensure!(code.ends_with("204") || code.ends_with("200"), "the second PUT: {code}");
    let code = curl(server, &["-X", "DELETE", "-w", "%{http_code}"], "/uploaded")?;
    ensure!(code.ends_with("204") || code.ends_with("200"), "DELETE: {code}");
    ensure!(!ground.has(server, "uploaded")?, "still there");
    let code =
        curl(server, &["-X", "DELETE", "-w", "%{http_code}", "-o", "/dev/null"], "/uploaded")?;
    ensure!(code == "404", "a second DELETE: {code}");
    Ok(String::new())
}

fn chunked(server: &Server, ground: &Ground) -> Result<String> {
    let file = ground.dir.join("big.bin").display().to_string();
    let chunked = ["-H", "Transfer-Encoding: chunked", "-H", "Expect:", "-f", "-T", &file];
    curl(server, &chunked, "/chunked")?;
    ensure!(ground.read(server, "chunked")? == std::fs::read(&file)?, "the bytes differ");
    let expecting = ["-H", "Expect: 100-continue", "--expect100-timeout", "10", "-f", "-T", &file];
    curl(server, &expecting, "/continued")?;
    ensure!(ground.read(server, "continued")? == std::fs::read(&file)?, "the bytes differ");
    Ok("chunked, and with Expect: 100-continue".into())
}

fn resume(server: &Server, ground: &Ground) -> Result<String> {
    let whole = std::fs::read(ground.dir.join("big.bin"))?;
    let out = ground.dir.with_extension("half");
    std::fs::write(&out, &whole[..1_234_567])?;
    curl(server, &["-f", "-C", "-", "-o", &out.display().to_string()], "/big.bin")?;
    ensure!(std::fs::read(&out)? == whole, "the bytes differ");
    Ok("from byte 1,234,567".into())
}

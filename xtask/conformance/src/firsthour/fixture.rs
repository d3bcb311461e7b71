//! Files, hosts and servers assumed by the pages.

use super::page::{Numbers, Shown, difference};
use anyhow::{Context as _, Result, ensure};
use rig::sh;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directory of programs within the namespaces.
const PROGRAMS: &str = "/mnt/bin";
/// Storelet programs that the pages run.
const GUESTS: [&str; 4] = ["find", "rg", "wc", "coreutils"];

/// Method of running a command.
pub(super) enum Method {
    /// Unchanged.
    Plain,
    /// After these commands.
    Before(Vec<&'static str>),
    /// Does not end by itself; this command makes it print.
    Until(&'static str),
    /// Not run, with the reason.
    Skip(String),
}

/// Paths outside of the namespaces.
pub(super) struct Places<'a> {
    pub(super) program: &'a Path,
    /// Storelet programs.
    pub(super) guests: &'a Path,
    /// An empty directory, which becomes `/tmp`.
    pub(super) disk: &'a Path,
}

/// The files of a page.
pub(super) struct Fixture {
    page: String,
    uid: u32,
    has_guests: bool,
}

impl Fixture {
    /// Prepares the namespaces and the files.
    pub(super) fn set(page: &str, uid: u32, places: &Places<'_>) -> Result<Fixture> {
        let Places { program, guests, disk } = *places;
        mount(Path::new("/mnt"))?;
        fs::create_dir_all(PROGRAMS)?;
        install(program, "upcall")?;
        let has_guests = GUESTS.iter().all(|name| guests.join(format!("{name}.wasm")).exists());
        fs::create_dir_all("/mnt/guests")?;
        if has_guests {
            for name in GUESTS {
                let file = format!("{name}.wasm");
                fs::copy(guests.join(&file), format!("/mnt/guests/{file}"))?;
            }
        }
        script("cargo", "[ \"$1 $2 $3\" = 'run --release --' ] && shift 3 && exec upcall \"$@\"")?;
        script("sudo", "exec \"$@\"")?;
        fs::write("/mnt/.curlrc", "silent\nshow-error\n")?;
        for dir in ["/run", "/home"] {
            mount(Path::new(dir))?;
        }
        // Large files are not kept in memory.
        let (tmp, srv) = (disk.join("tmp"), disk.join("srv"));
        for (from, to) in [(tmp, "/tmp"), (srv, "/srv")] {
            fs::create_dir(&from)?;
            sh::run(&mut sh::cmd("mount", &["--bind", &from.display().to_string(), to]))?;
        }
        fs::set_permissions("/tmp", fs::Permissions::from_mode(0o1777))?;
        names()?;
        permit_fuse()?;
        let fixture = Fixture { page: page.to_owned(), uid, has_guests };
        fixture.fill().context("the files of the page")?;
        if uid != 0 {
            let owner = format!("{uid}:{uid}");
            for dir in ["/tmp", "/srv", "/home"] {
                sh::run(&mut sh::cmd("chown", &["-hR", &owner, dir]))?;
            }
        }
        Ok(fixture)
    }

    /// Returns a shell that runs a command in the fixture.
    pub(super) fn shell(&self, command: &str) -> Command {
        let is_server = command.contains("upcall serve") || command.contains("-- serve");
        let command = match command {
            server if is_server => format!("exec {server}"),
            load if load.starts_with("upcall load --target") => shortened(load),
            other => other.to_owned(),
        };
        let mut shell = Command::new("setpriv");
        let id = self.uid.to_string();
        shell.args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh", "-c", &command]);
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{PROGRAMS}:{path}")).env("HOME", "/home/me");
        // On a terminal curl shows no progress beside its output.
        shell.env("CURL_HOME", "/mnt");
        shell.env_remove("XDG_CACHE_HOME").env_remove("XDG_STATE_HOME").current_dir("/tmp");
        shell
    }

    fn fill(&self) -> Result<()> {
        fs::create_dir_all("/home/me/src")?;
        write("/tmp/photos/notes.txt", "Summer in Bergen\n")?;
        write("/tmp/photos/2025/harbour.jpg", &"x".repeat(3_000_000))?;
        write("/tmp/photos/2025/raw.dng", &"y".repeat(41_000))?;
        for dir in ["a", "b", "c", "d"] {
            write(&format!("/tmp/{dir}/file"), dir)?;
        }
        write("/srv/all/far/file", "far\n")?;
        for dir in ["vol", "src", "logs"] {
            fs::create_dir_all(format!("/srv/all/{dir}"))?;
        }
        linux()?;
        for guest in fs::read_dir("/mnt/guests")? {
            let guest = guest?;
            symlink(guest.path(), Path::new("/tmp").join(guest.file_name()))?;
        }
        match self.page.as_str() {
            "docs/volumes.md" => damaged_volume(),
            "docs/names.md" => {
                fs::create_dir_all("/var/log")?;
                let text = "mount / host:/srv/all\n\nmount /lgs host:/var/log\n";
                write("/tmp/space", text)?;
                write("/tmp/logs", "mount / host:/srv/all\nmount /logs host:/var/log\n")
            }
            "docs/storelets.md" => {
                let line = |n| {
                    format!("2026-11-22 GET /page/{n} {}\n", if n % 50 == 0 { 500 } else { 200 })
                };
                let log: String = (1..=2000).map(line).collect();
                write("/tmp/linux-source-6.1/logs/web.log", &log)?;
                fs::create_dir_all("/tmp/linux-source-6.1/incoming").map_err(Into::into)
            }
            "docs/replica.md" => write("/tmp/in.csv", "a,1\nb,2\nc,3\nsum,=B1+1\n"),
            "docs/load.md" => {
                let line = |n: u64| {
                    let (time, offset) = (128_166_372_003_061_629 + n * 10_000, n * 8192);
                    format!("{time},host,0,Read,{offset},4096,2500\n")
                };
                write("/tmp/trace.csv", &(0..300).map(line).collect::<String>())?;
                let big = File::create("/tmp/photos/big")?;
                big.set_len(64 << 20).map_err(Into::into)
            }
            _ => Ok(()),
        }
    }

    /// Returns the method of running a command of the page.
    pub(super) fn method(&self, command: &str) -> Method {
        let starts = |with: &str| command.starts_with(with);
        if starts("sudo mount") || starts("cp /mnt/") {
            return Method::Skip("it takes a kernel with 9P: suite kernel mounts so".into());
        }
        if starts("cargo xtask") {
            return Method::Skip("it is a part of the tests itself".into());
        }
        let has_storelets = command.contains(".wasm") || self.page == "docs/storelets.md";
        if has_storelets && !self.has_guests {
            return Method::Skip("no guests: cargo xtask guests builds them".into());
        }
        match self.page.as_str() {
            "README.md" => readme(command),
            "docs/clients.md" if starts("upcall ls -l localhost") => {
                Method::Before(vec!["upcall serve photos"])
            }
            "docs/names.md" if starts("upcall names localhost") => Method::Before(vec![
                "upcall serve --names logs --9p 127.0.0.1:5640 --9p unix:/run/upcall.sock",
            ]),
            "docs/storelets.md" => storelets(command),
            "docs/replica.md" => replica(command),
            "docs/watch.md" if !starts("upcall serve") => Method::Until(
                "curl -sT photos/notes.txt http://127.0.0.1:8080/2025/new-$(date +%N).txt",
            ),
            "docs/load.md" if starts("upcall load --target 9p:") => {
                Method::Before(vec!["upcall serve photos --allow-host host --nfs 127.0.0.1:2049"])
            }
            _ => Method::Plain,
        }
    }

    /// Returns whether a command of the page may exit with this code: not with 0 where the page
    /// shows an error or damage; with 3 for a load whose verdict depends on the machine's speed.
    pub(super) fn expects(&self, shown: &Shown, code: i32) -> bool {
        let shows = |with: &str| shown.output.iter().any(|line| line.starts_with(with));
        if has_schedule(&shown.command) {
            return matches!(code, 0 | 3);
        }
        let is_exit_shown = shown.command.ends_with("echo $?");
        let fails = shows("upcall: ") && !is_exit_shown || shows("1 finding");
        (code != 0) == fails
    }

    /// Returns the first difference between the page and an output. For a load generator only the
    /// names of the lines are compared; root acts as the owner of the served files, and some
    /// machines have a low limit of open files or compile slowly.
    pub(super) fn compare(&self, shown: &Shown, printed: &[String]) -> Option<String> {
        let first = |line: &String| line.split_whitespace().next().unwrap_or_default().to_owned();
        if shown.command.starts_with("upcall load --target") {
            let shown = shown.output.iter().map(first);
            let printed: Vec<String> = printed.iter().map(first).collect();
            let verdict = ["VALID", "INVALID", "·"];
            let mut names = shown.filter(|name| !verdict.contains(&name.as_str()));
            let missing = names.find(|name| {
                name.chars().next().is_some_and(char::is_alphabetic)
                    && name.chars().all(char::is_lowercase)
                    && !printed.contains(name)
            });
            return missing.map(|name| format!("the page shows a line {name}"));
        }
        let is_exact = has_exact_numbers(&shown.command);
        let numbers = if is_exact { Numbers::Exact } else { Numbers::Any };
        let about_files = |line: &&String| {
            !matches!(first(line).as_str(), "users" | "limit")
                && !line.contains("only its first run")
        };
        let shown: Vec<String> = shown.output.iter().filter(about_files).cloned().collect();
        let printed: Vec<String> = printed.iter().filter(about_files).cloned().collect();
        difference(&shown, &printed, numbers)
    }
}

/// Shortens a load of ten seconds, which is also the default, to two.
fn shortened(load: &str) -> String {
    let command = load.split(" #").next().unwrap_or(load);
    format!("{} --seconds 2", command.replace(" --seconds 10", ""))
}

/// Returns whether a command is a load with scheduled I/Os, or compares their times: a slow or busy
/// machine issues them too late, and the verdict is INVALID, exit code 3. The I/Os of users follow
/// each other instead, and `trace` only reads a trace.
fn has_schedule(command: &str) -> bool {
    let is_run = ["--target ", "replay ", "run ", "compare "].iter().any(|word| {
        command.strip_prefix("upcall load ").is_some_and(|rest| rest.starts_with(word))
    });
    is_run && !command.contains(" --users ")
}

/// Returns whether the results of a command are the same in each run.
fn has_exact_numbers(command: &str) -> bool {
    let is_operation = ["upcall op --at :564", "curl -d ", "upcall cat :5642"]
        .iter()
        .any(|start| command.starts_with(start));
    // The count of earlier events depends on a loop.
    (is_operation && !command.contains(":5644"))
        || command.ends_with("/services/hits/stable")
        || command.contains("storelet=errors|wc")
}

/// Creates a volume with a damaged block.
fn damaged_volume() -> Result<()> {
    let numbers: String = (0..50_000).map(|n| format!("{n}\n")).collect();
    write("/tmp/numbers/numbers", &numbers)?;
    let upcall = format!("{PROGRAMS}/upcall");
    let volume = "/tmp/v.volume";
    sh::read(&mut sh::cmd(&upcall, &["volume", "create", volume, "--size", "256M"]))?;
    let to = format!("{volume}:/sub");
    sh::read(&mut sh::cmd(&upcall, &["volume", "copy", "/tmp/numbers", &to]))?;
    damage(Path::new(volume), &numbers.as_bytes()[4096..4160])
}

fn readme(command: &str) -> Method {
    let starts = |with: &str| command.starts_with(with);
    if starts("upcall run :7001") {
        Method::Before(vec!["upcall serve linux-source-6.1 --9p 127.0.0.1:7001 --http none"])
    } else if starts("upcall op --at :5641") {
        Method::Before(vec![
            "upcall serve b --9p 127.0.0.1:5642 --http none --replica hits.2.replica",
            "upcall serve c --9p 127.0.0.1:5643 --http none --replica hits.3.replica",
        ])
    } else if starts("upcall cat :5642 /services") {
        Method::Before(vec![
            "until upcall cat :5642 /services/hits/stable | grep -qx 15; do sleep 0.2; done",
        ])
    } else {
        Method::Plain
    }
}

fn storelets(command: &str) -> Method {
    let starts = |with: &str| command.starts_with(with);
    if starts("upcall run :7001 find.wasm") {
        Method::Before(vec![
            "upcall serve linux-source-6.1 --9p 127.0.0.1:7001 --9p 127.0.0.1:5640 \
             --9p unix:/run/upcall.sock",
        ])
    } else if starts("upcall run :7001 rg.wasm") {
        Method::Skip("it takes a tree that is searched for half a second".into())
    } else if starts("upcall storelet list") {
        Method::Before(vec![
            "upcall put unix:/run/upcall.sock photos/notes.txt /incoming/notes.txt && \
             until upcall storelet list unix:/run/upcall.sock | grep -q '1 done'; \
             do sleep 0.2; done",
        ])
    } else {
        Method::Plain
    }
}

fn replica(command: &str) -> Method {
    let starts = |with: &str| command.starts_with(with);
    if starts("curl -N") {
        Method::Until("upcall op --at :5641 hits add 1")
    } else if starts("curl http://127.0.0.1:8082/services/hits/stable") {
        Method::Before(vec![
            "until upcall cat :5642 /services/hits/stable | grep -qx 17; do sleep 0.2; done",
        ])
    } else if starts("upcall replica status --at :5641 hits") {
        Method::Before(vec![
            "until upcall replica status --at :5641 hits | grep -c idle | grep -qx 2; \
             do sleep 0.2; done",
        ])
    } else if starts("upcall op --at :5644") {
        Method::Before(vec![
            "until upcall replica status --at :5644 hits | grep -q 'one of 4'; do sleep 0.2; done",
        ])
    } else if starts("upcall replica init") && command.contains("--remove-after") {
        Method::Before(vec!["rm hits.*"])
    } else if starts("upcall replica import") {
        Method::Skip("the page does not show how the sheet was made".into())
    } else if command.contains(" plan ") {
        Method::Skip("it is of that sheet".into())
    } else if starts("upcall replica remove hits.key 3")
        || starts("upcall op --at :5641 hits add 1 --strict --wait")
    {
        Method::Skip("it takes a member that is gone: suite replicas ends some".into())
    } else {
        Method::Plain
    }
}

/// Creates a few files of a source tree.
fn linux() -> Result<()> {
    let dir = "/tmp/linux-source-6.1";
    write(&format!("{dir}/COPYING"), "The Linux Kernel is provided under:\n\n   SPDX\n")?;
    write(&format!("{dir}/kernel/time/itimer.c"), "/* timers */\n")?;
    for number in 0..200 {
        write(&format!("{dir}/drivers/{number}.c"), &format!("int d{number};\n"))?;
    }
    symlink("COPYING", format!("{dir}/LICENCE"))?;
    symlink("kernel", format!("{dir}/core")).map_err(Into::into)
}

/// Sets up host names and their addresses.
fn names() -> Result<()> {
    fs::write("/mnt/hosts", "127.0.0.1 localhost host files.example.com vm\n")?;
    sh::run(&mut sh::cmd("mount", &["--bind", "/mnt/hosts", "/etc/hosts"]))?;
    sh::run(&mut sh::cmd("hostname", &["vm"]))?;
    sh::run(&mut sh::cmd("ip", &["link", "set", "lo", "up"]))?;
    sh::run(&mut sh::cmd("ip", &["address", "add", "192.0.2.7/32", "dev", "lo"]))
}

/// Lets every user open `/dev/fuse`, as udev does.
fn permit_fuse() -> Result<()> {
    if !Path::new("/dev/fuse").exists() {
        return Ok(());
    }
    sh::run(&mut sh::cmd("mknod", &["-m", "666", "/mnt/fuse", "c", "10", "229"]))?;
    sh::run(&mut sh::cmd("mount", &["--bind", "/mnt/fuse", "/dev/fuse"]))
}

fn mount(dir: &Path) -> Result<()> {
    let at = dir.display().to_string();
    sh::run(&mut sh::cmd("mount", &["-t", "tmpfs", "-o", "size=3G", "tmpfs", &at]))
}

fn install(program: &Path, name: &str) -> Result<()> {
    let to = Path::new(PROGRAMS).join(name);
    fs::copy(program, &to).with_context(|| format!("copy {}", program.display()))?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(Into::into)
}

fn script(name: &str, text: &str) -> Result<()> {
    let path = Path::new(PROGRAMS).join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(Into::into)
}

fn write(path: &str, text: &str) -> Result<()> {
    let path = PathBuf::from(path);
    fs::create_dir_all(path.parent().context("a directory")?)?;
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// Changes a byte of a file, located by its contents.
fn damage(path: &Path, contents: &[u8]) -> Result<()> {
    let bytes = fs::read(path)?;
    let found = bytes.windows(contents.len()).position(|window| window == contents);
    let at = found.context("the contents are in the volume")? as u64;
    let file = File::options().read(true).write(true).open(path)?;
    ensure!(file.write_at(b"!", at + 7)? == 1, "a byte");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::has_schedule;

    #[test]
    fn only_loads_with_a_schedule_may_be_invalid() {
        for command in [
            "upcall load --target null --rate 10000 --seconds 10",
            "upcall load --target 9p://host:5640/big --connections 16 --place zipf:0.99",
            "upcall load replay trace.csv --target file:/srv/test --records run.records",
            "upcall load compare trace.csv run.records",
        ] {
            assert!(has_schedule(command), "{command}");
        }
        for command in [
            "upcall load --target nfs://host:2049/big --users 32 --size 4K",
            "upcall load trace info trace.csv",
            "upcall ls localhost",
        ] {
            assert!(!has_schedule(command), "{command}");
        }
    }
}

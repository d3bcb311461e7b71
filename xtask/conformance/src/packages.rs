//! Packages of `cargo xtask dist`, each installed in a root of its own and started there: the
//! static program in an empty directory, the Debian package with dpkg in a minimal Debian, the
//! container image as its configuration says.
//!
//! There is no systemd in these roots. The service is started by a launcher that reads the unit:
//! its command, user and directories, without privileges, with a socket for notifications; sockets
//! are activated by `systemd-socket-activate`. Where systemd runs on this machine, it also starts
//! the service with all options of the unit. Without `--long` the program is not optimised.

mod launch;
mod unit;

use anyhow::{Context as _, Result, ensure};
use launch::{Network, Started};
use rig::dist::{self, Packages};
use rig::report::Report;
use rig::server::Kind;
use rig::sh;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use unit::Unit;

/// Crates that are published: `client`, `embed`, and those that they use.
const LIBRARIES: &[&str] =
    &["base", "wire", "session", "store", "engine", "reactor", "embed", "client"];
const CONFIGURATION: &str = "etc/upcall/upcall.toml";

/// Runs the suite.
pub(super) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if kind != Kind::Uring {
        report.skip("packages", "they have our own server, which chooses its reactor");
        return Ok(());
    }
    let mut built = None;
    let quick = !report.long;
    report.case("packages/build", || {
        let packages = dist::build(quick)?;
        let size = |path: &Path| Ok::<_, std::io::Error>(path.metadata()?.len() >> 20);
        let (program, deb) = (size(&packages.program)?, size(&packages.deb)?);
        let note = format!("program {program} MiB, deb {deb} MiB, {} MiB", size(&packages.image)?);
        built = Some(packages);
        Ok(format!("{note} image"))
    });
    let Some(packages) = built else { return Ok(()) };
    let base = sh::empty("packages")?;
    let network = Network::new("upcall-packages")?;
    report.case("packages/checksums", || {
        let words = ["--check", "--quiet", "SHA256SUMS"];
        sh::read(Command::new("sha256sum").args(words).current_dir(&packages.dir))
    });
    report.case("packages/program", || program(&packages, &base, &network));
    report.case("packages/image", || image(&packages, &base, &network));
    report.case("packages/crates", publish);
    let root = base.join("debian");
    if report.case("packages/deb install", || install(&packages, &root)) {
        deb(report, &packages, &root, &network);
    }
    Ok(())
}

/// Packs the published libraries as for the registry, and builds each from its package.
fn publish() -> Result<String> {
    forget_unpacked()?;
    // What was built of an earlier package of the same version is taken for the present one.
    let target = sh::empty("published")?;
    let mut cargo = sh::cargo(&["publish", "--dry-run", "--allow-dirty", "--quiet"]);
    for name in LIBRARIES {
        cargo.args(["-p", &format!("upcall-{name}")]);
    }
    cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "false");
    cargo.arg("--target-dir").arg(target);
    sh::read(&mut cargo)?;
    Ok(LIBRARIES.join(", "))
}

/// Removes what Cargo has unpacked in earlier runs from the same place: it takes a package of the
/// same version for the same sources.
fn forget_unpacked() -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).context("no home")?;
    let Ok(registries) = fs::read_dir(home.join("registry/src")) else { return Ok(()) };
    for registry in registries {
        let registry = registry?;
        // Registries without a host are directories of such runs.
        if !registry.file_name().as_encoded_bytes().starts_with(b"-") {
            continue;
        }
        for library in fs::read_dir(registry.path())? {
            let library = library?;
            if library.file_name().as_encoded_bytes().starts_with(b"upcall-") {
                fs::remove_dir_all(library.path())?;
            }
        }
    }
    Ok(())
}

/// Runs the cases of an installed Debian package.
fn deb(report: &mut Report, packages: &Packages, root: &Path, network: &Network) {
    report.case("packages/deb units", || verify_units(root));
    report.case("packages/deb manual and completions", || documents(root));
    report.case("packages/deb service", || service(root, network));
    report.case("packages/deb foreign LISTEN_PID", || foreign_pid(root, network));
    report.case("packages/deb socket activation", || sockets(root, network));
    if Path::new("/run/systemd/system").exists() {
        report.case("packages/deb sandbox", || sandbox(root));
    } else {
        report.skip("packages/deb sandbox", "systemd does not run on this machine");
    }
    report.case("packages/deb upgrade", || upgrade(packages, root));
    report.case("packages/deb remove and purge", || remove(root));
}

/// Starts the program in a directory that contains nothing else.
fn program(packages: &Packages, base: &Path, network: &Network) -> Result<String> {
    let root = base.join("empty");
    fs::create_dir_all(root.join("data"))?;
    fs::copy(&packages.program, root.join("upcall"))?;
    fs::write(root.join("data/hello"), "hello\n")?;
    let chroot = ["chroot".into(), root.display().to_string(), "/upcall".into()];
    let version = sh::read(Command::new("chroot").args(&chroot[1..]).arg("--version"))?;
    ensure!(version.starts_with("upcall 0."), "{version}");
    let words = ["serve", "/data", "--9p", "none", "--http", "127.0.0.1:8001"];
    let command = chroot.into_iter().chain(words.map(str::to_owned)).collect::<Vec<_>>();
    let mut server = Started::new(network, &root, &[], &command)?;
    server.expect("READY=1")?;
    network.get("http://127.0.0.1:8001/hello", "hello\n")?;
    server.stop()?;
    Ok(version.trim().to_owned())
}

/// Starts the container image as its configuration says.
fn image(packages: &Packages, base: &Path, network: &Network) -> Result<String> {
    let root = base.join("image");
    fs::create_dir(&root)?;
    let config = dist::unpack(&fs::read(&packages.image)?, &root)?;
    let config = &config["config"];
    let words = |field: &str| {
        let words = config[field].as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let user = config["User"].as_str().context("a user")?;
    let (uid, gid) = user.split_once(':').context("a user and a group")?;
    ensure!(root.join("srv").metadata()?.uid().to_string() == uid, "/srv is of another user");
    fs::write(root.join("srv/hello"), "from a container\n")?;
    let mut command = vec!["chroot".to_owned(), format!("--userspec={uid}:{gid}")];
    command.extend([root.display().to_string()]);
    command.extend([words("Entrypoint"), words("Cmd")].concat());
    let mut server = Started::new(network, &root, &words("Env"), &command)?;
    server.expect("READY=1")?;
    network.get("http://127.0.0.1:8080/hello", "from a container\n")?;
    let listed = network.ninep("127.0.0.1:5640")?;
    ensure!(listed.contains("hello"), "9P lists {listed}");
    server.stop()?;
    Ok(format!("as user {uid}"))
}

/// Makes a minimal Debian and installs the package with dpkg.
fn install(packages: &Packages, root: &Path) -> Result<String> {
    let archive = sh::scratch("rootfs")?.join("bookworm.tar");
    if !archive.exists() {
        let partial = archive.with_extension("part.tar");
        let words = ["--variant=essential", "--include=passwd", "--quiet", "bookworm"];
        sh::read(Command::new("mmdebstrap").args(words).arg(&partial))?;
        fs::rename(partial, &archive)?;
    }
    fs::create_dir(root)?;
    sh::read(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(root))?;
    dpkg(packages, root)?;
    let passwd = fs::read_to_string(root.join("etc/passwd"))?;
    let user = passwd.lines().find(|line| line.starts_with("upcall:")).context("no user")?;
    ensure!(user.ends_with(":/var/lib/upcall:/usr/sbin/nologin"), "{user}");
    let mode = root.join("usr/bin/upcall").metadata()?.permissions().mode() & 0o7777;
    ensure!(mode == 0o755, "the program has mode {mode:o}");
    let query = ["dpkg-query", "-W", "-f=${Status} ${Version} ${Conffiles}", "upcall"];
    let state = sh::read(Command::new("chroot").arg(root).args(query))?;
    ensure!(state.starts_with("install ok installed"), "{state}");
    ensure!(state.contains("/etc/upcall/upcall.toml"), "no configuration file: {state}");
    Ok(user.to_owned())
}

fn dpkg(packages: &Packages, root: &Path) -> Result<String> {
    fs::copy(&packages.deb, root.join("upcall.deb"))?;
    let words = ["dpkg", "--force-confold", "-i", "/upcall.deb"];
    sh::read(Command::new("chroot").arg(root).args(words))
}

/// Lets systemd verify the units, in the root.
fn verify_units(root: &Path) -> Result<String> {
    let dir = root.join("usr/lib/systemd/system");
    let units = ["upcall.service", "upcall-9p.socket", "upcall-http.socket"];
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no", "--recursive-errors=one"]);
    command.arg(format!("--root={}", root.display())).args(units.map(|unit| dir.join(unit)));
    let output = command.output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    // The root has no units of systemd itself.
    let about_ours = printed.lines().filter(|line| line.contains("upcall"));
    let complaints: Vec<_> = about_ours.filter(|line| !line.contains("not found")).collect();
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--no-pager", "--threshold=30"]);
    let rating = sh::read(security.arg(dir.join("upcall.service")))?;
    let last = rating.lines().rev().find(|line| line.contains("exposure level"));
    Ok(last.context("no rating")?.trim_start_matches(['→', ' ']).to_owned())
}

/// Reads the manual pages and completions with the programs that users have.
fn documents(root: &Path) -> Result<String> {
    let pages = root.join("usr/share/man/man1");
    let mut count = 0;
    for page in fs::read_dir(&pages)? {
        let page = page?.path();
        let name = page.file_name().unwrap_or_default().display().to_string();
        if !name.starts_with("upcall") {
            continue;
        }
        let mut man = Command::new("man");
        man.args(["--warnings", "-l"]).arg(&page).env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8");
        let output = man.output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && printed.is_empty(), "{}: {printed}", page.display());
        ensure!(output.stdout.len() > 200, "{} is empty", page.display());
        count += 1;
    }
    let script = root.join("usr/share/bash-completion/completions/upcall");
    let ask = "source \"$1\"; COMP_WORDS=(upcall vol); COMP_CWORD=1; _upcall upcall vol upcall; \
               echo \"${COMPREPLY[@]}\"";
    let found = sh::read(Command::new("bash").args(["-c", ask, "bash"]).arg(script))?;
    ensure!(found.trim() == "volume", "bash completes 'vol' to '{}'", found.trim());
    ensure!(count > 10, "only {count} pages");
    Ok(format!("{count} pages"))
}

/// Returns the unit's service.
fn unit(root: &Path) -> Result<Unit> {
    Unit::parse(&fs::read_to_string(root.join("usr/lib/systemd/system/upcall.service"))?)
}

/// Starts the service as the unit says, with the configuration of the package.
fn service(root: &Path, network: &Network) -> Result<String> {
    let unit = unit(root)?;
    unit.make_directories(root)?;
    ensure!(unit.value("Type") == Some("notify"), "systemd does not wait for READY");
    fs::write(root.join("var/lib/upcall/files/hello"), "hello\n")?;
    let mut server = Started::new(network, root, &[], &unit.command(root)?)?;
    let status = server.expect("READY=1")?;
    network.get("http://127.0.0.1:8080/hello", "hello\n")?;
    let listed = network.ninep("127.0.0.1:5640")?;
    ensure!(listed.contains("hello"), "9P lists {listed}");
    server.stop()?;
    Ok(status)
}

/// Variables that are meant for another process have no effect.
fn foreign_pid(root: &Path, network: &Network) -> Result<String> {
    let unit = unit(root)?;
    let environment = ["LISTEN_PID=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=http"].map(str::to_owned);
    let mut server = Started::new(network, root, &environment, &unit.command(root)?)?;
    let status = server.expect("READY=1")?;
    ensure!(status.contains("http 127.0.0.1:8080"), "{status}");
    server.stop()?;
    Ok(String::new())
}

/// Sockets that systemd has opened: a connection starts the service, which serves it.
fn sockets(root: &Path, network: &Network) -> Result<String> {
    let unit = unit(root)?;
    let local = root.join("run/upcall-9p.sock");
    let mut names = Vec::new();
    let mut command = vec!["systemd-socket-activate".to_owned()];
    for name in ["9p", "http"] {
        let path = root.join(format!("usr/lib/systemd/system/upcall-{name}.socket"));
        let socket = Unit::parse(&fs::read_to_string(path)?)?;
        let address = socket.value("ListenStream").context("an address")?;
        command.push(format!("--listen={address}"));
        names.push(socket.value("FileDescriptorName").context("a name")?.to_owned());
    }
    command.push(format!("--listen={}", local.display()));
    names.push("9p".to_owned());
    command.push(format!("--fdname={}", names.join(":")));
    command.push("-ENOTIFY_SOCKET".to_owned());
    command.extend(unit.command(root)?);
    let mut server = Started::new(network, root, &[], &command)?;
    server.expect_silence()?;
    fs::set_permissions(&local, fs::Permissions::from_mode(0o666))?;
    network.get("http://127.0.0.1:8080/hello", "hello\n")?;
    let status = server.expect("READY=1")?;
    ensure!(status.contains(&local.display().to_string()), "{status}");
    let listed = network.ninep("127.0.0.1:5640")?;
    ensure!(listed.contains("hello"), "9P lists {listed}");
    let listed = network.ninep_as(unit.ids(root)?, &format!("unix:{}", local.display()))?;
    ensure!(listed.contains("hello"), "9P over the unix socket lists {listed}");
    server.stop()?;
    ensure!(local.exists(), "the server removed a socket of systemd");
    Ok("two TCP sockets, one unix socket".to_owned())
}

/// Starts the service by systemd, with the options of the unit.
fn sandbox(root: &Path) -> Result<String> {
    let unit = unit(root)?;
    let mut command = Command::new("systemd-run");
    let name = format!("upcall-packages-{}", std::process::id());
    command.args(["--collect", "--quiet", "--unit", &name]);
    command.arg(format!("--property=RootDirectory={}", root.display()));
    for (key, value) in unit.options() {
        command.arg(format!("--property={key}={value}"));
    }
    command.args(["--property=PrivateNetwork=yes", "--property=MountAPIVFS=yes"]);
    // With Type=notify it returns when the service is ready, or has failed.
    sh::read(command.args(unit.words()?))?;
    let stopped = sh::read(Command::new("systemctl").args(["stop", &name]));
    stopped.map(|_| String::new())
}

/// Installs the package again: a changed configuration and the files stay.
fn upgrade(packages: &Packages, root: &Path) -> Result<String> {
    let path = root.join(CONFIGURATION);
    let changed = format!("{}read-only = true\n", fs::read_to_string(&path)?);
    fs::write(&path, &changed)?;
    dpkg(packages, root)?;
    ensure!(fs::read_to_string(&path)? == changed, "the configuration is that of the package");
    ensure!(root.join("var/lib/upcall/files/hello").exists(), "the files are gone");
    Ok(String::new())
}

/// Removes the package, then its configuration; files stay.
fn remove(root: &Path) -> Result<String> {
    let dpkg =
        |flag: &str| sh::read(Command::new("chroot").arg(root).args(["dpkg", flag, "upcall"]));
    dpkg("-r")?;
    ensure!(!root.join("usr/bin/upcall").exists(), "the program is still there");
    ensure!(root.join(CONFIGURATION).exists(), "the configuration is gone before a purge");
    dpkg("-P")?;
    let gone = ["etc/upcall", "var/cache/upcall", "usr/share/doc/upcall"];
    for path in gone.map(|path| root.join(path)) {
        ensure!(!path.exists(), "{} is still there", path.display());
    }
    ensure!(root.join("var/lib/upcall/files/hello").exists(), "the files are gone");
    Ok(String::new())
}

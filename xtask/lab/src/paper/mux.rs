//! Thesis 004, §6.1: scaling of the mux's latency.
//!
//! Each server behind the mux is a separate process, as in the thesis. The clients share one
//! thread, and each visits every server, or, where that takes too long, as many as
//! [`Points::suites_max`] permits, which the page shows. Mux and servers are pinned to one
//! processor, the clients to the other, so an additional process does not change the placement.

use super::Plan;
use super::crowd::{Crowd, Latency, Outcome, Tour};
use super::plot::{self, Axes, Figure};
use crate::bench::table::median;
use anyhow::{Result, ensure};
use rig::client::{Client, Message, ROOT, Slot, Work};
use rig::machine::{core, files_max, more_files, pin};
use rig::server::{self, Kind, Server};
use rig::{sh, volume};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Points along an axis, and their limits.
struct Points {
    clients: &'static [usize],
    servers: &'static [usize],
    both: &'static [usize],
    depths: &'static [usize],
    members: &'static [usize],
    /// Minimum duration of each.
    time: Duration,
    /// Maximum number of suites of a run, which limits the servers that each client visits. A
    /// round of 1,000 clients at 1,000 servers would be 12 million messages, a quarter of an hour.
    suites_max: usize,
}

const FULL: Points = Points {
    clients: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000, 5000, 10_000],
    servers: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000],
    both: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000],
    depths: &[0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 32, 64],
    members: &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000],
    time: Duration::from_secs(2),
    suites_max: 125_000,
};

const QUICK: Points = Points {
    clients: &[1, 64, 1000],
    servers: &[1, 16, 100],
    both: &[1, 16, 100],
    depths: &[0, 8, 16, 32],
    members: &[1, 10, 100],
    time: Duration::from_millis(300),
    suites_max: 5_000,
};

/// A row: the count, and the results.
struct Row {
    count: usize,
    latency: Latency,
    /// Number of servers that every client has visited, of how many.
    reached: (usize, usize),
    /// Resident memory of the mux, KiB, and before the first client.
    rss: (u64, u64),
}

/// Column of the servers reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Shown,
    Hidden,
}

/// Returns the number of servers that each client visits: all of them, or as many as the number of
/// suites permits.
fn reach(suites_max: usize, clients: usize, servers: usize) -> usize {
    servers.min((suites_max / clients).max(1))
}

/// Runs all of it.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    server::build()?;
    more_files();
    pin(core(1));
    let points = if plan.quick { QUICK } else { FULL };
    let base = sh::empty("paper/mux")?;
    let mut page = Page::new(plan, &base)?;
    page.overhead(&base, &points)?;
    page.clients(&base, &points)?;
    page.servers(&base, &points)?;
    page.both(&base, &points)?;
    page.walks(&base, &points)?;
    page.unions(&base, &points)?;
    page.end()
}

/// The page, and the directory of its figures.
struct Page {
    text: String,
    figures: PathBuf,
    record: bool,
}

impl Page {
    fn new(plan: &Plan, base: &Path) -> Result<Page> {
        let figures = if plan.record { sh::root().join("docs/paper") } else { base.to_owned() };
        std::fs::create_dir_all(&figures)?;
        let text = format!(
            "# The mux, measured as its paper measured its own\n\n\
             `cargo xtask paper mux --record` writes this page: the tests of thesis 004, §6.1, \
             with our mux. {}.\n\
             The suite is twelve messages, one of each type that 9P2000.L has for those of the \
             thesis (all but auth and flush): version, attach, walk, getattr, lopen, read of \
             1,000 bytes, clunk; walk, lcreate, write of 1,000 bytes, setattr, remove. Each \
             client has one message in flight. Each server is \
             a process. Mux and servers share processor 0, all clients are one \
             thread on processor 1. Latency is of one message, microseconds; memory is the \
             mux's resident memory.\n",
            rig::machine::describe(),
        );
        Ok(Page { text, figures, record: plan.record })
    }

    fn end(self) -> Result<()> {
        println!("{}", self.text);
        if self.record {
            std::fs::write(sh::root().join("docs/paper/mux.md"), self.text)?;
        }
        Ok(())
    }

    fn figure(&mut self, name: &str, figure: &Figure<'_>) -> Result<()> {
        plot::draw(figure, &self.figures.join(format!("{name}.svg")))?;
        let _ = write!(self.text, "\n![{}]({name}.svg)\n", figure.title);
        Ok(())
    }

    /// Measures the overhead of the mux: the same work without it, through it, and over another
    /// server.
    fn overhead(&mut self, base: &Path, points: &Points) -> Result<()> {
        let dir = tree(base, "overhead")?;
        let far = Far::start(Kind::Uring, &dir, 1, core(0))?;
        let beside = Far::start(Kind::Uring, &dir, 1, core(1))?;
        let plain = server_of(&dir)?;
        let host = format!("mount /m host:{}\n", dir.display());
        let near = Space::start(base, &host)?;
        let remote = Space::start(base, &far.lines("/m"))?;
        let parted = Space::start(base, &beside.lines("/m"))?;
        self.text += "\n## What it costs\n\nThe same work in turn, five rounds: medians, and of \
        the differences or ratios within a round the median and the range. The other server \
        runs on the clients' processor, or shares the mux's: then one is not awake \
        while the other works, and each message takes two switches more. All servers, and the mux, \
        serve a directory of the host (`host:`).\n\n\
        | work | clients | without | through the mux | more | to another server, \
        beside the clients | more | beside the mux | more |\n\
        |---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
        let servers =
            [(&plain, ""), (&near.server, "m"), (&parted.server, "m"), (&remote.server, "m")];
        for clients in [1, 32] {
            let rounds = in_turn(&servers, &|server, place| {
                let mut crowd = Crowd::connect(server.ninep, clients)?;
                let places = [place.to_owned()];
                Ok(crowd.run(&Tour::whole(&places, points.time))?.latency.mean)
            })?;
            self.costs("the suite, µs a message", clients, &rounds, &|own, other| other - own);
        }
        let rounds = in_turn(&servers, &|server, place| reads(server, place, points.time))?;
        let work = "reads of 4 KiB a second, 32 in flight";
        self.costs(work, 1, &rounds, &|own, other| other / own);
        Ok(())
    }

    /// Adds a line of that table.
    fn costs(
        &mut self,
        work: &str,
        clients: usize,
        rounds: &[[f64; 4]],
        compare: &dyn Fn(f64, f64) -> f64,
    ) {
        let middle = |of: usize| median(rounds.iter().map(|round| round[of]));
        let more = |of: usize| {
            let all = || rounds.iter().map(|round| compare(round[0], round[of]));
            let (low, high) =
                all().fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(one), high.max(one)));
            format!("{:.2} ({low:.2}..{high:.2})", median(all()))
        };
        let _ = write!(self.text, "| {work} | {clients} | {:.1} |", middle(0));
        for of in 1..4 {
            let _ = write!(self.text, " {:.1} | {} |", middle(of), more(of));
        }
        self.text.push('\n');
    }

    fn clients(&mut self, base: &Path, points: &Points) -> Result<()> {
        // A volume: files of a host directory that clients know are open files of the process.
        let file = base.join("clients.volume");
        volume::create(&file, "256M")?;
        volume::copy_in(&tree(base, "clients")?, &file)?;
        // The suite creates files, which the owner of the volume's root may.
        let owner = rustix::process::getuid().as_raw().to_string();
        let lines = format!("mount /m volume:{}\n", file.display());
        let space = Space::start_with(base, &lines, &["--as".to_owned(), owner])?;
        let mut rows = Vec::new();
        // A client takes four files of the server: a connection, a root, a node and an open file.
        // The server keeps an eighth for others.
        let most = usize::try_from(files_max()).unwrap_or(usize::MAX) / 5;
        let mut counts: Vec<usize> = points.clients.iter().map(|it| most.min(*it)).collect();
        counts.dedup();
        for count in counts {
            eprintln!("   {count} clients");
            rows.push(space.measure(count, &Tour::whole(&["m".to_owned()], points.time))?);
        }
        self.text += "\n## Clients\n\nOne server, in the mux's process, as in the paper: a volume \
        (`volume:`), whose files are no open files of the process.\n\n";
        if points.clients.iter().any(|count| *count > most) {
            let files = files_max();
            let _ = write!(
                self.text,
                "At most {most} clients: the limit of open files is {files}.\n\n"
            );
        }
        self.table("clients", &rows, "memory a client, KiB", Reach::Hidden);
        self.quote(
            "nearly linear growth until the 512 clients. After this point, latency increases \
            sharply. This comes from the \
             use of fixed-sized queues in the mux implementation.",
            "Figure 8",
        );
        let lines = vec![("mean", means(&rows)), ("99 of 100", p99s(&rows))];
        let title = "Latency of a message, by clients of one server";
        let figure =
            Figure { title, x: "clients", y: "microseconds", lines, axes: Axes::Logarithmic };
        self.figure("mux-clients", &figure)
    }

    fn servers(&mut self, base: &Path, points: &Points) -> Result<()> {
        let rows = self.far(base, points, points.servers, &|_| 1)?;
        self.text += "\n## Servers\n\nOne client goes from server to server, at least once to \
        each. The servers, here and in the next test, serve a directory of the host (`host:`) and \
        run the threads reactor: the kernel lets one user's processes lock too little memory for \
        so many rings. The mux runs io_uring.\n\n";
        self.table("servers", &rows, "memory a server, KiB", Reach::Shown);
        self.quote(
            "Since the client executes its script on each server in turn, the latency remains \
            fairly constant as the number \
             of servers increase.",
            "Figure 9",
        );
        let lines = vec![("mean", means(&rows)), ("99 of 100", p99s(&rows))];
        let title = "Latency of a message, by servers, one client";
        let figure =
            Figure { title, x: "servers", y: "microseconds", lines, axes: Axes::Logarithmic };
        self.figure("mux-servers", &figure)
    }

    fn both(&mut self, base: &Path, points: &Points) -> Result<()> {
        let rows = self.far(base, points, points.both, &|servers| servers)?;
        let _ = write!(
            self.text,
            "\n## Clients and servers\n\nAs many clients as servers, each going from server to \
             server; client n begins at server n. All go on until each client has visited every \
             server. Where that would be more than {} suites, each visits as many servers as that \
             permits, which the table shows, and each server is visited by as many clients.\n\n",
            points.suites_max
        );
        self.table("of each", &rows, "memory for one of each, KiB", Reach::Shown);
        self.quote(
            "After some initial variation in the latency, the long-term behavior is linear in \
            the number of clients and \
             servers.",
            "Figure 10",
        );
        let lines = vec![("mean", means(&rows)), ("99 of 100", p99s(&rows))];
        let title = "Latency of a message, by clients and servers";
        let figure = Figure {
            title,
            x: "clients and servers",
            y: "microseconds",
            lines,
            axes: Axes::Logarithmic,
        };
        self.figure("mux-both", &figure)
    }

    /// Measures numbers of servers, with `clients` clients for each.
    fn far(
        &self,
        base: &Path,
        points: &Points,
        counts: &[usize],
        clients: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<Row>> {
        let dir = tree(base, "far")?;
        let mut rows = Vec::new();
        for &count in counts {
            eprintln!("   {count} servers");
            // Rings of a user's processes share `RLIMIT_MEMLOCK`, often 8 MiB: too few for 64.
            let far = Far::start(Kind::Threads, &dir, count, core(0))?;
            let space = Space::start(base, &far.lines("/s"))?;
            let (places, clients) = (far.places("s"), clients(count));
            let reach = reach(points.suites_max, clients, count);
            let tour = Tour { places: &places, reach, time: points.time, spread: true };
            let mut row = space.measure(clients, &tour)?;
            row.count = count;
            rows.push(row);
        }
        Ok(rows)
    }

    fn walks(&mut self, base: &Path, points: &Points) -> Result<()> {
        let deepest = points.depths.iter().max().copied().unwrap_or(0);
        let mut lines = String::new();
        let (mut at, mut rows) = (String::new(), Vec::new());
        let root = tree(base, "walk-root")?;
        std::fs::create_dir(root.join("d"))?;
        let _ = writeln!(lines, "mount / host:{}", root.display());
        for depth in 0..deepest {
            let dir = tree(base, &format!("walk-{depth}"))?;
            std::fs::create_dir(dir.join("d"))?;
            at += "/d";
            let _ = writeln!(lines, "mount {at} host:{}", dir.display());
        }
        let space = Space::start(base, &lines)?;
        // The same names without mounts.
        let plain = base.join("walk-plain");
        std::fs::create_dir_all(plain.join("d/".repeat(deepest.max(1))))?;
        let plain = server_of(&plain)?;
        for &depth in points.depths {
            let without = walk(&plain, depth, points.time)?;
            rows.push((depth, walk(&space.server, depth, points.time)?, without));
        }
        self.text += "\n## Walks\n\nEach name of the walk is the place of a mount. Past sixteen \
        names it takes several \
                      messages; what is shown is the whole walk.\n\n| mount points | µs | \
                      without mounts, µs | µs a mount point |\n|--:|--:|--:|--:|\n";
        for (depth, through, without) in &rows {
            #[expect(clippy::cast_precision_loss, reason = "a small count")]
            let each = (through - without) / (*depth).max(1) as f64;
            let _ = writeln!(self.text, "| {depth} | {through:.1} | {without:.1} | {each:.2} |");
        }
        self.quote(
            "The linear behavior indicates that the mux imposes only constant overhead for each \
            additional mount.",
            "Figure 11",
        );
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let line = |of: &dyn Fn(&(usize, f64, f64)) -> f64| {
            rows.iter().map(|row| (row.0 as f64, of(row))).collect::<Vec<_>>()
        };
        let lines = vec![
            ("over mount points", line(&|row| row.1)),
            ("the same names without mounts", line(&|row| row.2)),
        ];
        let title = "Latency of a walk, by mount points on its way";
        let figure = Figure { title, x: "names", y: "microseconds", lines, axes: Axes::Linear };
        self.figure("mux-walk", &figure)
    }

    fn unions(&mut self, base: &Path, points: &Points) -> Result<()> {
        let root = tree(base, "union-root")?;
        let empty = base.join("union-empty");
        std::fs::create_dir_all(&empty)?;
        std::fs::create_dir_all(root.join("u"))?;
        std::fs::create_dir_all(root.join("e"))?;
        self.text += "\n## Reads of unions\n\nAn empty directory is bound again and again \
        behind another; the union is opened, read to \
                      its end, and clunked.\n\n| members | µs | µs a member |\n|--:|--:|--:|\n";
        let mut line = Vec::new();
        for &members in points.members {
            let mut lines = format!("mount / host:{}\n", root.display());
            for _ in 1..members {
                lines += "bind -a /e /u\n";
            }
            let space = Space::start(base, &lines)?;
            let took = list(&space.server, points.time)?;
            #[expect(clippy::cast_precision_loss, reason = "a small count")]
            let count = members as f64;
            let _ = writeln!(self.text, "| {members} | {took:.1} | {:.2} |", took / count);
            line.push((count, took));
        }
        self.quote(
            "The graph shows that the read latency grows super-linearly, but with a small \
            factor. It is unclear why this \
             occurs.",
            "Figure 12",
        );
        let lines = vec![("open, read to the end, clunk", line)];
        let title = "Latency of reading a union, by members";
        let figure =
            Figure { title, x: "members", y: "microseconds", lines, axes: Axes::Logarithmic };
        self.figure("mux-union", &figure)
    }

    fn table(&mut self, what: &str, rows: &[Row], memory: &str, shown: Reach) {
        let shows = shown == Reach::Shown;
        let (title, line) =
            if shows { (" servers reached by each client |", "--:|") } else { ("", "") };
        let _ = writeln!(
            self.text,
            "| {what} |{title} mean µs | median | 99 of 100 | messages a second | {memory} \
            |\n|--:|{line}--:|--:|--:|--:|--:|"
        );
        for Row { count, latency, rss, reached } in rows {
            #[expect(clippy::cast_precision_loss, reason = "kibibytes and counts")]
            let each = rss.0.saturating_sub(rss.1) as f64 / *count as f64;
            let Latency { mean, median, p99, rate } = latency;
            let reached = match reached {
                _ if !shows => String::new(),
                (reached, all) if reached == all => format!(" all {all} |"),
                (reached, all) => format!(" {reached} of {all} |"),
            };
            let _ = writeln!(
                self.text,
                "| {count} |{reached} {mean:.1} | {median:.1} | {p99:.1} | {rate:.0} | {each:.1} |"
            );
        }
    }

    fn quote(&mut self, words: &str, from: &str) {
        let _ = writeln!(self.text, "\nThe paper, of its own ({from}): \"{words}\"");
    }
}

/// Servers mounted by the mux.
struct Far {
    _servers: Vec<Server>,
    ports: Vec<u16>,
}

impl Far {
    fn start(kind: Kind, dir: &Path, count: usize, core: Option<usize>) -> Result<Far> {
        let (mut servers, mut ports) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let port = server::free_port()?;
            let words = [dir.display().to_string(), "--9p".into(), format!("127.0.0.1:{port}")];
            servers.push(Server::start_words(kind, &words, port, core)?);
            ports.push(port);
        }
        Ok(Far { _servers: servers, ports })
    }

    fn places(&self, name: &str) -> Vec<String> {
        match self.ports.len() {
            1 => vec![name.to_owned()],
            count => (0..count).map(|number| format!("{name}{number}")).collect(),
        }
    }

    /// Returns the lines of a names file that mount all of them.
    fn lines(&self, place: &str) -> String {
        let places = self.places(place);
        let mount =
            |(place, port): (&String, &u16)| format!("mount {place} 9p://127.0.0.1:{port}\n");
        places.iter().zip(&self.ports).map(mount).collect()
    }
}

/// The mux.
struct Space {
    server: Server,
}

impl Space {
    fn start(base: &Path, lines: &str) -> Result<Space> {
        Space::start_with(base, lines, &[])
    }

    /// Starts it with more options.
    fn start_with(base: &Path, lines: &str, more: &[String]) -> Result<Space> {
        let names = base.join("names");
        std::fs::write(&names, lines)?;
        let port = server::free_port()?;
        let words = ["--names".to_owned(), names.display().to_string(), "--9p".into()];
        let words = [&words[..], &[format!("127.0.0.1:{port}")], more].concat();
        Ok(Space { server: Server::start_words(Kind::Uring, &words, port, core(0))? })
    }

    fn measure(&self, clients: usize, tour: &Tour<'_>) -> Result<Row> {
        let before = self.server.rss_kib();
        // Warm-up runs: they open the connections to all servers and fault pages in.
        if tour.places.len() > 1 {
            let mut one = Crowd::connect(self.server.ninep, 1)?;
            one.run(&Tour::whole(tour.places, Duration::ZERO))?;
        }
        let mut crowd = Crowd::connect(self.server.ninep, clients)?;
        crowd.run(&Tour { reach: 1, time: Duration::ZERO, ..*tour })?;
        let Outcome { latency, reached } = crowd.run(tour)?;
        let reached = (reached, tour.places.len());
        ensure!(reached.0 >= tour.reach, "a client has visited {} servers only", reached.0);
        Ok(Row { count: clients, latency, reached, rss: (self.server.rss_kib(), before) })
    }
}

fn server_of(dir: &Path) -> Result<Server> {
    let port = server::free_port()?;
    let words = [dir.display().to_string(), "--9p".into(), format!("127.0.0.1:{port}")];
    Server::start_words(Kind::Uring, &words, port, core(0))
}

fn tree(base: &Path, name: &str) -> Result<PathBuf> {
    let dir = base.join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("file"), vec![7; 1 << 20])?;
    Ok(dir)
}

/// Returns the rate of 4 KiB reads per second, 32 in flight on one connection.
fn reads(server: &Server, place: &str, time: Duration) -> Result<f64> {
    let mut client = Client::attach(server.ninep, "")?;
    let names: Vec<&str> = [place, "file"].into_iter().filter(|name| !name.is_empty()).collect();
    client.call(|out| {
        let count = u16::try_from(names.len()).expect("one or two");
        let message = Message::new(out, 110, 0).u32(ROOT).u32(1).u16(count);
        names.iter().fold(message, |message, name| message.text(name));
    })?;
    client.call(|out| {
        Message::new(out, 12, 0).u32(1).u32(0);
    })?;
    let read = |slot: &mut Slot, out: &mut Vec<u8>| {
        let offset = slot.below(256) * 4096;
        Message::new(out, 116, slot.tag).u32(1).u64(offset).u32(4096);
    };
    let start = Instant::now();
    let done = client.run(&Work { steps: 1, build: &read }, 32, time)?;
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds of work")]
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

/// Measures a walk of `depth` names `d` and the clunk of the result.
fn walk(server: &Server, depth: usize, time: Duration) -> Result<f64> {
    let mut client = Client::attach(server.ninep, "")?;
    timed(time, &mut || {
        let (mut from, mut left) = (ROOT, depth);
        loop {
            let names = left.min(16);
            client.call(|out| {
                let count = u16::try_from(names).expect("at most sixteen");
                let message = Message::new(out, 110, 0).u32(from).u32(1).u16(count);
                (0..names).fold(message, |message, _| message.text("d"));
            })?;
            (from, left) = (1, left - names);
            if left == 0 {
                break;
            }
        }
        client
            .call(|out| {
                Message::new(out, 120, 0).u32(1);
            })
            .map(|_| ())
    })
}

/// Measures opening the union, reading it to its end, and clunking it.
fn list(server: &Server, time: Duration) -> Result<f64> {
    let mut client = Client::attach(server.ninep, "")?;
    timed(time, &mut || {
        client.call(|out| {
            Message::new(out, 110, 0).u32(ROOT).u32(1).u16(1).text("u");
        })?;
        client.call(|out| {
            Message::new(out, 12, 0).u32(1).u32(0);
        })?;
        client.call(|out| {
            Message::new(out, 40, 0).u32(1).u64(0).u32(8000);
        })?;
        client
            .call(|out| {
                Message::new(out, 120, 0).u32(1);
            })
            .map(|_| ())
    })
}

/// Returns the mean duration, microseconds, over as many repetitions as fit the time.
fn timed(time: Duration, once: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    (0..20).try_for_each(|_| once())?;
    let (start, mut count) = (Instant::now(), 0.0);
    while start.elapsed() < time {
        once()?;
        count += 1.0;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / count)
}

/// Measures each server and its path in turn, round by round.
fn in_turn(
    servers: &[(&Server, &str); 4],
    measure: &dyn Fn(&Server, &str) -> Result<f64>,
) -> Result<Vec<[f64; 4]>> {
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let mut round = [0.0; 4];
        for (figure, (server, place)) in round.iter_mut().zip(servers) {
            *figure = measure(server, place)?;
        }
        rounds.push(round);
    }
    Ok(rounds)
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn means(rows: &[Row]) -> Vec<(f64, f64)> {
    rows.iter().map(|row| (row.count as f64, row.latency.mean)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn p99s(rows: &[Row]) -> Vec<(f64, f64)> {
    rows.iter().map(|row| (row.count as f64, row.latency.p99)).collect()
}

#[cfg(test)]
mod tests {
    use super::{FULL, reach};

    #[test]
    fn clients_visit_all_servers_unless_these_are_too_many() {
        for (of_each, servers) in [(1, 1), (128, 128), (256, 256), (512, 244), (1000, 125)] {
            assert_eq!(reach(FULL.suites_max, of_each, of_each), servers, "{of_each} of each");
        }
        assert_eq!(reach(FULL.suites_max, 1, 1000), 1000);
        assert_eq!(reach(10, 1000, 5), 1);
    }
}

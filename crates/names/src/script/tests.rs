use super::*;

fn one(text: &str) -> Result<Line, String> {
    let mut lines = parse(text).map_err(|mistake| mistake.to_string())?;
    assert_eq!(lines.len(), 1, "{text}");
    Ok(lines.remove(0).1)
}

fn names(text: &str) -> Vec<Name> {
    path(text).unwrap()
}

#[test]
fn lines_as_the_manual_has_them() {
    let text = "# a comment\n\nmount / volume:demo.volume\n\
                \x20 mount -ac /lib 9p://10.0.0.1:5641/lib # x\n\
                bind -b /src/mine /src/all\nunmount /logs\nunmount host:/var/log /logs\n";
    let lines: Vec<usize> = parse(text).unwrap().iter().map(|(number, _)| *number).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7]);
    let (order, create) = (Order::After, true);
    let source = Source::NineP { address: "10.0.0.1:5641".into(), aname: "/lib".into() };
    assert_eq!(parse(text).unwrap()[1].1, Line::Mount { at: names("/lib"), source, order, create });
    let grow = Line::Grow { file: "a b".into(), bytes: 32 << 30 };
    assert_eq!(one("grow 'volume:a b' 32G"), Ok(grow));
    let (new, old, order) = (names("/src/mine"), names("/src/all"), Order::Before);
    assert_eq!(parse(text).unwrap()[2].1, Line::Bind { new, old, order, create: false });
}

#[test]
fn words_may_have_blanks_and_quotes() {
    let line = one("mount '/my files/it''s' 'host:/a b'").unwrap();
    let Line::Mount { at, source, .. } = line else { panic!("{line:?}") };
    assert_eq!(path_text(&at), "'/my files/it''s'");
    assert_eq!(source, Source::Host("/a b".into()));
    assert_eq!(quoted(&source.to_string()), "'host:/a b'");
}

#[test]
fn sources_are_shown_as_they_were_written() {
    for text in ["volume:a.volume", "host:/x", "9p://h:1/a/b", "9p+unix:/s", "9p+unix:/s!/a"] {
        assert_eq!(source(text).unwrap().to_string(), text);
    }
    for (text, shown) in [
        ("9p://box/x", "9p://box:564/x"),
        ("9p://box/", "9p://box:564"),
        ("9p://box:0564", "9p://box:564"),
        ("9p://[::1]", "9p://[::1]:564"),
        ("9p://[::1]:7/a", "9p://[::1]:7/a"),
    ] {
        assert_eq!(source(text).unwrap().to_string(), shown);
        assert_eq!(source(shown).unwrap().to_string(), shown);
    }
}

#[test]
fn unmount_accepts_any_spelling_of_a_path() {
    let what = |text: &str| match one(&format!("unmount {text} /x")) {
        Ok(Line::Unmount { what, .. }) => what.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(what("9p://127.0.0.1/"), "9p://127.0.0.1:564");
    assert_eq!(what("//y/"), "/y");
    assert_eq!(what("'/a b'"), "/a b");
    assert_eq!(what("host:/x"), "host:/x");
    assert!(one("unmount y /x").unwrap_err().contains("`y` is no source"));
}

#[test]
fn servers_that_cannot_be_reached_are_refused() {
    let long = "x".repeat(108);
    let deep = "x".repeat(4097);
    for (text, why) in [
        ("9p://h:99999", "`99999` in `h:99999` is no port; ports are 1 to 65535"),
        ("9p://h:port/x", "`port` in `h:port` is no port; ports are 1 to 65535"),
        ("9p://h:", "`` in `h:` is no port; ports are 1 to 65535"),
        ("9p://h:0", "`0` in `h:0` is no port; ports are 1 to 65535"),
        (
            "9p://fe80::1",
            "`:1` in `fe80::1` is no port; ports are 1 to 65535; IPv6 addresses stand in brackets",
        ),
        ("9p://[::1]x", "`x` in `[::1]x` is no port; ports are 1 to 65535"),
        ("9p:///x", "`` has no host; use HOST or HOST:PORT"),
        ("9p://:564", "`:564` has no host; use HOST or HOST:PORT"),
        ("9p+unix:!x", "the socket path is missing; use 9p+unix:PATH or 9p+unix:PATH!ANAME"),
        ("9p+unix:/a\0b", r#""9p+unix:/a\0b": no path has a NUL"#),
        (
            &format!("9p+unix:{long}"),
            &format!("`{long}`: the path of a socket has at most 107 bytes"),
        ),
        (&format!("9p://h/{deep}"), "the attach name has at most 4096 bytes"),
        ("9p://h/.upcall", "clients of this server may not send commands to other servers"),
        ("9p://h//.upcall/", "clients of this server may not send commands to other servers"),
        (
            "9p+unix:/s!/a/../.upcall",
            "clients of this server may not send commands to other servers",
        ),
        ("9p+unix:/s!.upcall", "clients of this server may not send commands to other servers"),
    ] {
        assert_eq!(source(text).unwrap_err(), why, "{text}");
    }
    assert!(source(&format!("9p+unix:{}", &long[1..])).is_ok());
    assert!(source("9p://h/x.upcall").is_ok());
}

#[test]
fn a_mistake_names_its_line_and_what_would_be_right() {
    let source_text = |text: &str| parse(text).unwrap_err().to_string();
    for (text, expected) in [
        ("\nmount /x", "line 2: mount takes a place and a source: mount /logs host:/var/log"),
        ("mount x host:/", "line 1: `x` is no place: places begin with /"),
        ("mont / x", "line 1: no command `mont`; there are mount, bind, unmount and grow"),
        ("mount -x / host:/", "line 1: no option -x; there are -a, -b, -r and -c"),
        ("bind '/a /b", "line 1: a quote that is not closed"),
        ("bind /a /b/../c", "line 1: `/b/../c`: . and .. have no place here"),
        ("grow volume:v", "line 1: grow takes a volume and a size: grow volume:FILE 32G"),
        ("grow host:/x 1G", "line 1: only volumes grow: grow volume:FILE 32G"),
        ("grow volume:v 1X", "line 1: write a size like 8G, 512M, 8GB or 4096 (bytes)"),
        (
            "mount / http://x",
            "line 1: `http://x` is no source; sources are volume:FILE, host:DIRECTORY, \
             9p://HOST:PORT/ANAME, 9p+unix:PATH!ANAME",
        ),
    ] {
        assert_eq!(source_text(text), expected);
    }
}

#[test]
fn no_text_makes_it_panic() {
    let mut rng = fastrand::Rng::with_seed(7);
    let parts = [
        "mount", "bind", "unmount", "grow", " ", "/", "'", "-", "a", "9p:", "//", ":", "!", "é",
        "\n",
    ];
    for _ in 0..20_000 {
        let text: String = (0..rng.usize(..12)).map(|_| parts[rng.usize(..parts.len())]).collect();
        if let Ok(lines) = parse(&text) {
            assert!(lines.len() <= text.lines().count());
            for (_, line) in lines {
                let Line::Mount { source: it, .. } = line else { continue };
                assert_eq!(source(&it.to_string()), Ok(it), "{text}");
            }
        }
    }
}

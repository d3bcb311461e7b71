use super::*;
use base::rng::seeded;

const ONE: ClientKey = ClientKey(1);

fn path(text: &str) -> Path {
    let names = text.split('/').filter(|name| !name.is_empty());
    names.map(|name| Name::new(name.as_bytes()).expect("a name")).collect()
}

/// A table, and the time.
#[derive(Default)]
struct Lab {
    locks: Locks,
    now: Instant,
    tokens: u32,
}

impl Lab {
    fn handle(&mut self, request: Request) -> Option<Reply> {
        let reply = self.locks.handle(self.now, (ONE, &Caller::Server), request);
        self.locks.check();
        reply
    }

    /// Locks a resource; returns the token.
    fn lock(&mut self, text: &str, is_deep: bool, is_exclusive: bool) -> Result<String, String> {
        self.tokens += 1;
        let new = NewLock {
            path: path(text),
            is_deep,
            scope: LockScope { is_exclusive, owner: None },
            token: format!("t{}", self.tokens),
            time: None,
            caller: Caller::Server,
        };
        match self.handle(Request::Lock(Box::new(new))) {
            Some(Reply::Granted(lock)) => Ok(lock.token),
            other => Err(format!("{other:?}")),
        }
    }

    /// Begins a change with these tokens.
    fn begin(
        &mut self,
        text: &str,
        is_deep: bool,
        is_entry: bool,
        tokens: &[&str],
    ) -> Option<Begun> {
        let tokens = tokens.iter().map(|token| (Arc::new(path(text)), (*token).to_string()));
        let tokens = tokens.collect();
        let entry = if is_entry { Entry::Changed } else { Entry::PerhapsCreated };
        let target = Target { path: path(text), is_deep, entry };
        match self.handle(Request::Begin(vec![target], tokens)) {
            Some(Reply::Begun(begun)) => Some(begun),
            Some(Reply::Refused(..)) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether a change may begin; it ends at once.
    fn may(&mut self, text: &str, is_deep: bool, is_entry: bool, tokens: &[&str]) -> bool {
        let begun = self.begin(text, is_deep, is_entry, tokens);
        begun.map(|begun| self.handle(Request::End(begun.number))).is_some()
    }
}

#[test]
fn a_locked_resource_is_changed_with_its_token_only() {
    let mut lab = Lab::default();
    let token = lab.lock("/a/f", false, true).expect("the first lock");
    assert!(!lab.may("/a/f", false, false, &[]) && !lab.may("/a/f", false, false, &["t9"]));
    assert!(lab.may("/a/f", false, false, &[&token]) && lab.may("/a/g", false, true, &[]));
    assert!(!lab.may("/a", true, true, &[]), "all below is changed, too");
    assert!(lab.may("/a", true, true, &[&token]));
    let begun = lab.begin("/a/f", false, false, &[&token, "x"]).expect("its token");
    assert_eq!(begun.valid, [true, false]);
}

#[test]
fn a_lock_of_a_directory_protects_its_entries_and_a_deep_one_all_below() {
    let mut lab = Lab::default();
    let token = lab.lock("/a", false, true).expect("the first lock");
    assert!(!lab.may("/a/new", false, true, &[]) && lab.may("/a/new", false, true, &[&token]));
    assert!(lab.may("/a/old", false, false, &[]), "its contents are not an entry");
    assert!(lab.begin("/a/old", false, false, &[]).is_some_and(|begun| begun.is_dir_locked));
    assert!(lab.may("/a/b/new", false, true, &[]));
    let deep = lab.lock("/c", true, true).expect("another one");
    assert!(!lab.may("/c/x/y", false, false, &[]) && lab.may("/c/x/y", false, false, &[&deep]));
    assert!(lab.lock("/c/x", false, true).is_err() && lab.lock("/", true, false).is_err());
}

#[test]
fn shared_locks_exclude_exclusive_ones() {
    let mut lab = Lab::default();
    let one = lab.lock("/f", false, false).expect("the first");
    let two = lab.lock("/f", false, false).expect("another one");
    assert!(lab.lock("/f", false, true).is_err());
    assert!(lab.may("/f", false, false, &[&one]) && lab.may("/f", false, false, &[&two]));
    assert!(!lab.may("/f", false, false, &[]));
}

#[test]
fn locks_end_with_their_time_their_token_or_their_resource() {
    let mut lab = Lab::default();
    let token = lab.lock("/f", false, true).expect("the first");
    lab.now = lab.now + Duration::from_secs(599);
    let refreshed = lab.handle(Request::Refresh(path("/f"), vec![token.clone()], None));
    assert!(matches!(refreshed, Some(Reply::Granted(_))), "{refreshed:?}");
    lab.now = lab.now + Duration::from_secs(599);
    assert!(!lab.may("/f", false, false, &[]));
    lab.now = lab.now + Duration::from_secs(1);
    assert!(lab.may("/f", false, false, &[]) && lab.locks.is_empty());
    let gone = lab.handle(Request::Refresh(path("/f"), vec![token], None));
    assert!(matches!(gone, Some(Reply::Missing)), "{gone:?}");
    let token = lab.lock("/d/f", false, true).expect("it is free");
    let unlock = |lab: &mut Lab, at: &str, token: &str| {
        matches!(lab.handle(Request::Unlock(path(at), token.into())), Some(Reply::Done))
    };
    assert!(!unlock(&mut lab, "/other", &token) && !unlock(&mut lab, "/d/f", "x"));
    assert!(unlock(&mut lab, "/d/f", &token) && lab.locks.is_empty());
    lab.lock("/d/f", false, true).expect("it is free");
    lab.lock("/e", false, true).expect("it is free");
    lab.handle(Request::Gone(path("/d")));
    assert_eq!(lab.locks.len(), 1);
}

/// A change that has begun without a lock is not overtaken by one.
#[test]
fn what_is_being_changed_is_not_locked() {
    let mut lab = Lab::default();
    let begun = lab.begin("/a/f", false, true, &[]).expect("nothing is locked");
    for (text, is_deep) in [("/a/f", false), ("/a", true), ("/a", false), ("/", true)] {
        assert!(lab.lock(text, is_deep, false).is_err(), "{text}");
    }
    assert!(lab.lock("/", false, false).is_ok() && lab.lock("/b", true, false).is_ok());
    lab.handle(Request::End(begun.number));
    assert!(lab.lock("/a", true, false).is_ok());
}

/// An upload may create an entry, which a lock of the directory protects.
#[test]
fn a_directory_is_not_locked_while_an_entry_may_be_created_in_it() {
    let mut lab = Lab::default();
    let begun = lab.begin("/d/new", false, false, &[]).expect("nothing is locked");
    assert!(lab.lock("/d", false, true).is_err());
    lab.handle(Request::End(begun.number));
    assert!(lab.lock("/d", false, true).is_ok());
}

/// The registered path of a change is cut, and still tells which locks would cover it.
#[test]
fn a_change_far_below_excludes_the_same_locks() {
    let mut lab = Lab::default();
    let begun = lab.begin(&"/d".repeat(500), true, true, &[]).expect("nothing is locked");
    assert!(lab.lock(&"/d".repeat(64), true, true).is_err());
    assert!(lab.lock(&"/d".repeat(64), false, true).is_ok(), "it is not its directory");
    assert!(lab.locks.changes.values().flatten().all(|target| target.path.len() < 70));
    lab.handle(Request::End(begun.number));
}

#[test]
fn a_lock_has_a_short_path_and_few_others_beside_it() {
    let mut lab = Lab::default();
    assert!(lab.lock(&"/d".repeat(64), false, true).is_ok());
    assert!(lab.lock(&"/e".repeat(65), false, true).is_err());
    assert!(
        lab.lock(&format!("/{}", "/n".repeat(30).replace('n', &"n".repeat(200))), false, true)
            .is_err()
    );
    for _ in 0..LOCKS_OF_RESOURCE_MAX {
        assert!(lab.lock("/f", false, false).is_ok());
    }
    assert!(lab.lock("/f", false, false).is_err());
}

#[test]
fn the_locks_of_a_client_are_limited() {
    let mut lab = Lab::default();
    for number in 0..LOCKS_OF_CLIENT_MAX {
        lab.lock(&format!("/{number}"), false, true).expect("there is room");
    }
    assert!(lab.lock("/more", false, true).is_err_and(|why| why.contains("Full")));
    let request = |token: &str| NewLock {
        path: path("/more"),
        is_deep: false,
        scope: LockScope { is_exclusive: true, owner: None },
        token: token.to_string(),
        time: None,
        caller: Caller::Server,
    };
    let two = (ClientKey(2), &Caller::Server);
    let granted = lab.locks.handle(lab.now, two, Request::Lock(Box::new(request("other"))));
    assert!(matches!(granted, Some(Reply::Granted(_))), "{granted:?}");
}

/// Random locks, changes and times: [`Locks::check`] holds, and a change that may begin meets no
/// exclusive lock whose token was not submitted.
#[test]
fn no_change_begins_within_an_exclusive_lock_of_others() {
    let paths = ["/", "/a", "/a/b", "/a/b/c", "/a/d", "/e"];
    let mut rng = seeded(5);
    let (mut begun, mut refused) = (0, 0);
    for _ in 0..200 {
        let mut lab = Lab::default();
        let mut held: Vec<(Path, bool, String)> = Vec::new();
        for _ in 0..60 {
            let text = paths[rng.usize(..paths.len())];
            match rng.u8(..6) {
                0 | 1 => {
                    let is_deep = rng.bool();
                    if let Ok(token) = lab.lock(text, is_deep, true) {
                        held.push((path(text), is_deep, token));
                    }
                }
                2 if !held.is_empty() => {
                    let (root, _, token) = held.swap_remove(rng.usize(..held.len()));
                    let done = lab.handle(Request::Unlock(root, token));
                    assert!(matches!(done, Some(Reply::Done)), "{done:?}");
                }
                _change => {
                    let own = held.get(rng.usize(..4)).map(|(.., token)| token.clone());
                    let own: Vec<&str> = own.iter().map(String::as_str).collect();
                    let may = lab.may(text, false, false, &own);
                    let covers = |(root, is_deep, _): &&(Path, bool, String)| {
                        *root == path(text) || (*is_deep && path(text).starts_with(root))
                    };
                    let others =
                        held.iter().filter(covers).any(|(.., token)| !own.contains(&&**token));
                    assert_eq!(may, !others, "{text} with {own:?} beside {held:?}");
                    (begun, refused) = (begun + u32::from(may), refused + u32::from(!may));
                }
            }
        }
    }
    assert!(begun > 500 && refused > 500, "{begun} {refused}");
}

#[test]
fn what_is_removed_is_not_moved_meanwhile() {
    let mut lab = Lab::default();
    let mut begin = |text: &str, entry| {
        let target = Target { path: path(text), is_deep: true, entry };
        match lab.handle(Request::Begin(vec![target], Vec::new())) {
            Some(Reply::Begun(begun)) => Some(begun.number),
            Some(Reply::Busy) => None,
            other => panic!("{other:?}"),
        }
    };
    let removal = begin("/a/b", Entry::Removed).expect("the first one");
    for busy in ["/", "/a", "/a/b", "/a/b/c"] {
        assert!(begin(busy, Entry::Moved).is_none(), "{busy}");
    }
    let moved = begin("/a/c", Entry::Moved).expect("beside it");
    assert!(begin("/a/b/c", Entry::Removed).is_some(), "removals need not wait for each other");
    assert!(begin("/a/c/d", Entry::Removed).is_none() && begin("/a", Entry::Removed).is_none());
    assert!(begin("/a/b/c", Entry::Changed).is_some(), "a new entry is removed, too, or is not");
    lab.handle(Request::End(moved));
    lab.handle(Request::End(removal));
    assert_eq!(lab.locks.changes(), 2);
}

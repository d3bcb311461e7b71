//! Open files that the process may have (`RLIMIT_NOFILE`), and how many connections fit.
//!
//! Each connection is an open file, and each file of the host that a client holds is one or two.

/// Fewer open files than this are not enough to serve a few clients.
const FILES_MIN: usize = 1024;

/// Most connections unless the operator sets another limit.
const CONNECTIONS: usize = 16_384;

/// Of all open files, one such part is not for connections.
const PART: usize = 4;

/// The limit of connections for a process that may have `files` open files, and a line for the
/// operator if it is less than usual.
///
/// # Errors
/// Too few open files for the connections that were asked for, or to serve at all.
pub(crate) fn connections(
    asked: Option<usize>,
    files: usize,
) -> Result<(usize, Option<String>), String> {
    const RAISE: &str = "raise the limit (ulimit -n, LimitNOFILE= of systemd)";
    if files < FILES_MIN {
        return Err(format!(
            "cannot serve with {files} open files (RLIMIT_NOFILE), {FILES_MIN} are needed; {RAISE}"
        ));
    }
    let most = files - (files / PART).max(FILES_MIN / 2);
    match asked {
        Some(asked) if asked > most => Err(format!(
            "cannot serve {asked} connections with {files} open files (RLIMIT_NOFILE); {RAISE}, or \
             set --connections-max to at most {most}"
        )),
        Some(asked) => Ok((asked, None)),
        None if most < CONNECTIONS => {
            let text = format!(
                "at most {most} connections with {files} open files (RLIMIT_NOFILE); {RAISE}"
            );
            Ok((most, Some(text)))
        }
        None => Ok((CONNECTIONS, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::connections;

    #[test]
    fn connections_leave_files_for_what_they_open() {
        assert_eq!(connections(None, 1 << 20), Ok((16_384, None)));
        assert_eq!(connections(Some(10_000), 20_000), Ok((10_000, None)));
        let (most, line) = connections(None, 1024).expect("enough");
        assert_eq!(most, 512);
        assert!(line.is_some_and(|it| it.starts_with("at most 512 connections with 1024 open")));
    }

    #[test]
    fn too_few_files_are_an_error_that_names_the_limit() {
        let error = connections(Some(16_384), 4096).expect_err("too few");
        assert!(error.contains("RLIMIT_NOFILE") && error.ends_with("to at most 3072"), "{error}");
        let error = connections(None, 256).expect_err("too few");
        assert!(error.starts_with("cannot serve with 256 open files"), "{error}");
    }
}

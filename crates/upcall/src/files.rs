//! Limit of open files of the process (`RLIMIT_NOFILE`), and the resulting number of connections.
//!
//! Each connection is an open file, and each host file held by a client is one or two.

/// Minimum number of open files to serve a few clients.
const FILES_MIN: usize = 1024;

/// Default maximum number of connections.
const CONNECTIONS: usize = 16_384;

/// The inverse of the share of open files not available to connections.
const PART: usize = 4;

/// Maximum numbers of open files, and of connections among them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Maximum number of open files.
    pub(crate) files: usize,
    /// Maximum number of connections.
    pub(crate) connections: usize,
    /// A line for the operator, if the number of connections is below the default.
    pub(crate) limit: Option<String>,
}

/// Raises the limit of open files to the host's maximum, and divides them.
///
/// # Errors
/// Too few open files for the requested connections, or to serve at all.
pub(crate) fn budget(connections: Option<usize>) -> Result<Budget, String> {
    let files = usize::try_from(reactor::raise_open_files()).unwrap_or(usize::MAX);
    divide(connections, files)
}

fn divide(requested: Option<usize>, files: usize) -> Result<Budget, String> {
    const RAISE: &str = "raise the limit (ulimit -n, LimitNOFILE= of systemd)";
    if files < FILES_MIN {
        return Err(format!(
            "cannot serve with {files} open files (RLIMIT_NOFILE), {FILES_MIN} are needed; {RAISE}"
        ));
    }
    let most = files - (files / PART).max(FILES_MIN / 2);
    if let Some(requested) = requested.filter(|requested| *requested > most) {
        return Err(format!(
            "cannot serve {requested} connections with {files} open files (RLIMIT_NOFILE); \
             {RAISE}, or set --connections-max to at most {most}"
        ));
    }
    let limit = (requested.is_none() && most < CONNECTIONS).then(|| {
        format!("at most {most} connections with {files} open files (RLIMIT_NOFILE); {RAISE}")
    });
    Ok(Budget { files, connections: requested.unwrap_or(CONNECTIONS.min(most)), limit })
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn connections_leave_files_for_what_they_open() {
        let of = |requested, files| divide(requested, files).map(|it| (it.connections, it.limit));
        assert_eq!(of(None, 1 << 20), Ok((16_384, None)));
        assert_eq!(of(Some(10_000), 20_000), Ok((10_000, None)));
        let (most, line) = of(None, 1024).expect("enough");
        assert_eq!(most, 512);
        assert!(line.is_some_and(|it| it.starts_with("at most 512 connections with 1024 open")));
    }

    #[test]
    fn too_few_files_are_an_error_that_names_the_limit() {
        let error = divide(Some(16_384), 4096).expect_err("too few");
        assert!(error.contains("RLIMIT_NOFILE") && error.ends_with("to at most 3072"), "{error}");
        let error = divide(None, 256).expect_err("too few");
        assert!(error.starts_with("cannot serve with 256 open files"), "{error}");
    }
}

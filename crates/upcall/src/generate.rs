//! Shell completions and manual pages, generated from the definition of the command line.

use crate::Cli;
use clap::{Args, CommandFactory as _};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `upcall completions`.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Flags of `upcall man-pages`.
#[derive(Args, Debug)]
pub(crate) struct ManPages {
    /// Directory to write the pages to, section 1
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Prints the completion script of a shell.
pub(crate) fn completions(flags: &Completions) -> Result<ExitCode, String> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut Cli::command(), "upcall", &mut script);
    crate::output::out(format_args!("{}", String::from_utf8_lossy(&script)));
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page for the program and for each subcommand.
pub(crate) fn man_pages(flags: &ManPages) -> Result<ExitCode, String> {
    let dir = flags.dir.display();
    let refuse = |error: io::Error| {
        format!("cannot write manual pages to {dir}: {error}; name a directory that is writable")
    };
    std::fs::create_dir_all(&flags.dir).map_err(refuse)?;
    // The version in the pages' footer is that of the package: it does not change with a commit.
    let command = Cli::command().version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    clap_mangen::generate_to(command, &flags.dir).map_err(refuse)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_subcommand_has_a_page() {
        let dir = std::env::temp_dir().join(format!("upcall-man-{}", std::process::id()));
        man_pages(&ManPages { dir: dir.clone() }).unwrap();
        for page in ["upcall", "upcall-serve", "upcall-volume-create", "upcall-ls"] {
            let text = std::fs::read_to_string(dir.join(format!("{page}.1"))).unwrap();
            assert!(
                text.contains(".SH NAME") && text.contains(&page.replace('-', "\\-")),
                "{page}"
            );
        }
        assert!(!dir.join("upcall-man-pages.1").exists(), "hidden commands have no page");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn unknown_shells_are_refused() {
        assert!(Cli::try_parse_from(["upcall", "completions", "bash"]).is_ok());
        assert!(Cli::try_parse_from(["upcall", "completions", "csh"]).is_err());
    }

    #[test]
    fn the_version_begins_with_that_of_the_package() {
        let version = env!("UPCALL_VERSION");
        let rest = version.strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
        assert!(rest.is_empty() || rest.starts_with(" (") && rest.ends_with(')'), "{version}");
    }
}

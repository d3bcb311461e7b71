//! Install sessions, the registry, and runs of installed storelets.

use super::{DomainEntry, Named, ORDER_TIME, Opened, RunReason, Storelets, files};
use crate::account::Account;
use crate::admission::user_of;
use crate::compile::{Module, ToCompiler};
use crate::crossing::DomainId;
use crate::domain::Stage;
use crate::report::Report;
use crate::run_spec::{Pick, RunSpec};
use crate::standing::ToStateStore;
use crate::standing::history::Run;
use crate::standing::install::{self, InstallSession};
use crate::standing::registry::{self, Filing};
use base::op::Envelope;
use base::{Automaton as _, Caller, Error, Instant};
use tree::{Output, Reply};

/// Maximum number of sessions: each may buffer a module.
const DESKS_MAX: usize = 16;

/// A second, ns.
pub(super) const SECOND: i64 = 1_000_000_000;

/// Tolerance of file timestamps against the clock, ns: a tick of the kernel.
const COARSE: i64 = 10_000_000;

/// Maximum number of queued messages for the operator.
const NEWS_MAX: usize = 64;

/// An install session with its owner.
#[derive(Debug)]
pub(super) struct AtInstallSession {
    pub(super) install_session: InstallSession,
    caller: Caller,
    account: Account,
    since: Instant,
}

impl AtInstallSession {
    /// Returns the deadline for the request.
    pub(super) fn due(&self) -> Option<Instant> {
        self.install_session.is_spoken_to().then(|| self.since + ORDER_TIME)
    }
}

impl Storelets {
    /// Returns the wall-clock time, ns since 1970.
    pub(super) fn wall(&self, now: Instant) -> i64 {
        self.started.as_nanos().saturating_add_unsigned(now.0)
    }

    /// Opens an install session, for root or the server's own user, and only with an identity that
    /// the kernel has verified and administrative rights that the client has asked for.
    pub(super) fn sit_down(
        &mut self,
        now: Instant,
        caller: Caller,
        client: u32,
    ) -> Result<Reply, Error> {
        let may = match &caller {
            Caller::Server => false,
            Caller::User(user) => user.commands && [0, self.owner].contains(&user.uid),
        };
        if !may {
            return Err(Error::NotPermitted);
        }
        if self.closing || self.install_sessions.len() >= DESKS_MAX {
            return Err(Error::Busy);
        }
        let id = DomainId(self.next);
        let open = self.open(Opened::InstallSession(id))?;
        self.next += 1;
        let account = Account { user: user_of(&caller), client };
        let install_session = InstallSession::new(self.settings.maxima);
        self.install_sessions
            .insert(id, AtInstallSession { install_session, caller, account, since: now });
        Ok(Reply::Opened(open, self.stat(files::INSTALL)))
    }

    pub(super) fn step_install(
        &mut self,
        now: Instant,
        id: DomainId,
        input: install::Input,
        out: &mut Vec<Output>,
    ) {
        let Some(at) = self.install_sessions.get_mut(&id) else { return };
        let mut asks = Vec::new();
        at.install_session.step(now, input, &mut asks);
        for ask in asks {
            self.serve_desk(now, id, ask, out);
        }
        if self.install_sessions.get(&id).is_some_and(|at| at.install_session.is_over()) {
            self.install_sessions.remove(&id);
        }
        self.end(out);
    }

    fn serve_desk(
        &mut self,
        now: Instant,
        id: DomainId,
        ask: install::Output,
        out: &mut Vec<Output>,
    ) {
        let (ticket, compiler) = (id.0, self.settings.compiler);
        match ask {
            install::Output::Reply(id, reply) => out.push(Output::Reply(id, reply)),
            install::Output::Compile(Module::Known(hash), _) if !self.registry.has(hash) => {
                // It may be compiled, but its bytes could not be stored.
                let unknown = Err(wasi::Refused::Unknown);
                self.step_install(now, id, install::Input::Compiled(unknown), out);
            }
            install::Output::Compile(module, code) => {
                let account = self.install_sessions[&id].account;
                let requested = ToCompiler::Compile { ticket, module, code, account };
                self.post(compiler, Envelope(Box::new(requested)), out);
            }
            install::Output::CancelCompile => {
                self.post(compiler, Envelope(Box::new(ToCompiler::Cancel(ticket))), out);
            }
            install::Output::File(registry_change, module) => {
                let AtInstallSession { caller, since, .. } = &self.install_sessions[&id];
                // The baseline of new files, in timestamps of the kernel.
                let (caller, at) = (caller.clone(), self.wall(*since) - COARSE);
                let filing = Filing { install_session: id, registry_change, module, caller, at };
                self.step_registry(now, registry::Input::File(Box::new(filing)), out);
            }
        }
    }

    pub(super) fn step_registry(
        &mut self,
        now: Instant,
        input: registry::Input,
        out: &mut Vec<Output>,
    ) {
        let mut asks = Vec::new();
        self.registry.step(now, input, &mut asks);
        for ask in asks {
            match ask {
                registry::Output::Keep(ticket, changes) => {
                    let requested = ToStateStore { ticket, changes };
                    self.post(self.settings.compiler, Envelope(Box::new(requested)), out);
                }
                registry::Output::Saved(label) => self.saved(now, &label, out),
                registry::Output::Filed(install_session, filed) => {
                    self.is_settled = false;
                    self.step_install(now, install_session, install::Input::Filed(filed), out);
                }
                registry::Output::Tell(text) => self.news(text),
            }
        }
        self.end(out);
    }

    fn news(&mut self, text: String) {
        if self.news.len() < NEWS_MAX {
            self.news.push_back(text);
        }
    }

    /// Looks up the installed storelets of an order and records them for the run history.
    pub(super) fn resolve(
        &mut self,
        now: Instant,
        id: DomainId,
        run_spec: &RunSpec,
    ) -> Result<Vec<Stage>, String> {
        let stages = self.registry.resolve(run_spec)?;
        let at = self.wall(now) / SECOND;
        let here = self.here.get_mut(&id).expect("it is stepped");
        let file = run_spec.stdin.as_ref().map(|path| String::from_utf8_lossy(path));
        let file = file.map_or(String::new(), |path| format!(" /{path}"));
        let picks = stages.iter().filter_map(|stage| stage.called.parse::<Pick>().ok());
        let all = picks.map(|pick| (pick.label, pick.version.unwrap_or_default())).collect();
        here.named =
            Some(Named { all, at, trigger: format!("request{file}"), why: RunReason::Requested });
        Ok(stages)
    }

    /// Records the outcome of installed storelets.
    pub(super) fn write_down(
        &mut self,
        now: Instant,
        id: DomainId,
        report: &Report,
        complaint: &[u8],
        out: &mut Vec<Output>,
    ) {
        let Some(DomainEntry { named, caller, .. }) = self.here.get_mut(&id) else { return };
        let Some(Named { all, at, trigger, why }) = named.take() else { return };
        if report.end == "checked" {
            return;
        }
        let caller = caller.clone();
        let well = report.is_exit() && report.exit == Some(0);
        for (label, version) in all {
            let run = Run::new((at, version, &trigger), &caller, report, complaint);
            let Some(cause) = self.cause(now, &label, why, well) else { continue };
            self.step_registry(now, registry::Input::Ran(label, run, cause), out);
        }
        self.done_for(now, id, why, well, out);
    }
}

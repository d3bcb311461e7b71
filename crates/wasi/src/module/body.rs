//! Inspection of one function: the effort of compiling it.
//!
//! A compiler that converts code into SSA form inserts values where branches join: one for each
//! local that is read in another block than it was set in, at each such join. So memory grows with
//! the product of such locals and blocks, not with the size of the function. Detecting nested
//! loops, and hoisting invariants out of them, takes time that grows with the square of the nesting
//! depth.

use super::{invalid, limit};
use crate::compiled::Refused;
use wasmparser::{FunctionBody, Operator};

// Limits. Beside each: the real program with the maximum.
const BODY_MAX: usize = 1 << 20; // 228,073: gojq; Go's tables of Unicode
const LOCALS_MAX: usize = 20_000; // 9,746: SQLite without optimisation; 466 with
const NESTING_MAX: usize = 10_000; // 2,402: gojq
const LOOPS_MAX: usize = 64; // 7: coreutils
const BLOCKS_MAX: usize = 50_000; // 4,479: gojq
const TARGETS_MAX: usize = 1_000_000; // 157,128: gojq
const MEETINGS_MAX: usize = 4_000_000; // 346,819: coreutils

/// Running totals, and scratch memory reused for each function.
#[derive(Default)]
pub(super) struct Totals {
    /// Targets of branch tables, over all functions.
    targets: usize,
    /// Block in which each local was set last.
    set: Vec<u32>,
    /// Whether each local is read in another block.
    wanders: Vec<bool>,
    /// Whether each open block is a loop.
    open: Vec<bool>,
}

/// Compilation effort of a function.
#[derive(Clone, Copy, Default)]
struct Measure {
    loops: usize,
    blocks: usize,
    nesting: usize,
    /// Locals that are read in other blocks than they were set in, times blocks.
    meetings: usize,
}

impl Totals {
    /// Inspects a function. Validation is left to the validator.
    pub(super) fn function(
        &mut self,
        index: u32,
        params: usize,
        body: &FunctionBody<'_>,
    ) -> Result<(), Refused> {
        let limit = |what: &str, count, max| {
            limit(&format!("{what} in function {index}"), count, max, "divide that function")
        };
        limit("bytes", body.range().len(), BODY_MAX)?;
        let mut locals = params;
        for group in body.get_locals_reader().map_err(invalid)? {
            let (count, _) = group.map_err(invalid)?;
            locals = locals.saturating_add(count as usize);
            limit("locals", locals, LOCALS_MAX)?;
        }
        let measure = self.measure(locals, body)?;
        limit("blocks inside of each other", measure.nesting, NESTING_MAX)?;
        limit("loops inside of each other", measure.loops, LOOPS_MAX)?;
        limit("branches", measure.blocks, BLOCKS_MAX)?;
        limit("targets of branch tables up to and", self.targets, TARGETS_MAX)?;
        let meetings = "meetings of locals and branches";
        limit(meetings, measure.meetings, MEETINGS_MAX)?;
        Ok(())
    }

    fn measure(&mut self, locals: usize, body: &FunctionBody<'_>) -> Result<Measure, Refused> {
        self.set.clear();
        self.set.resize(locals, 0);
        self.wanders.clear();
        self.wanders.resize(locals, false);
        self.open.clear();
        let (mut block, mut loops, mut wandering) = (0, 0, 0);
        let mut most = Measure::default();
        for operator in body.get_operators_reader().map_err(invalid)? {
            #[allow(clippy::wildcard_enum_match_arm, reason = "the others are straight-line code")]
            match operator.map_err(invalid)? {
                Operator::Block { .. } => self.open.push(false),
                Operator::Loop { .. } => {
                    (block, loops) = (block + 1, loops + 1);
                    self.open.push(true);
                }
                Operator::If { .. } => {
                    block += 1;
                    self.open.push(false);
                }
                Operator::End => {
                    block += 1;
                    loops -= usize::from(self.open.pop() == Some(true));
                }
                Operator::Else | Operator::BrIf { .. } => block += 1,
                Operator::BrTable { targets } => {
                    block += 1;
                    self.targets += targets.len() as usize;
                }
                Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
                    self.set.get_mut(local_index as usize).into_iter().for_each(|at| *at = block);
                }
                Operator::LocalGet { local_index } => {
                    let local = local_index as usize;
                    let elsewhere = self.set.get(local).is_some_and(|at| *at != block);
                    if elsewhere && !std::mem::replace(&mut self.wanders[local], true) {
                        wandering += 1;
                    }
                }
                _ => {}
            }
            most.loops = most.loops.max(loops);
            most.nesting = most.nesting.max(self.open.len());
        }
        let blocks = block as usize;
        Ok(Measure { blocks, meetings: blocks * wandering, ..most })
    }
}

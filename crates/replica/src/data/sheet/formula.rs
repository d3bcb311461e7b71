//! Formulas: parsed by the formualizer project within its limits, and compiled to a tree that names
//! only functions of [`super::functions`].

use super::cell::{COLUMNS_MAX, Cell, ROWS_MAX, Region};
use super::functions::{self, Function};
use super::scalar::{Fault, Number, Scalar};
use formualizer_parse::parser::ReferenceType;
use formualizer_parse::{
    ASTNode, ASTNodeType, BinaryOperator, ExcelErrorKind, LiteralValue, Parser, ParserLimits,
    UnaryOperator,
};

/// Maximum length of a formula, in bytes.
pub const FORMULA_MAX: usize = 8 << 10;

/// Maximum number of operators, functions, cells and constants in a formula.
const NODES_MAX: usize = 2048;

/// Maximum nesting depth; it bounds the recursion of every walk over a formula.
const DEPTH_MAX: usize = 100;

/// Formula that can be evaluated.
#[derive(Debug)]
pub(super) struct Formula {
    pub(super) tree: Expression,
    /// Regions that it may read.
    pub(super) reads: Vec<Region>,
}

#[derive(Debug)]
pub(super) enum Expression {
    Constant(Scalar),
    Region(Region),
    Negative(Box<Expression>),
    Percent(Box<Expression>),
    Binary(Operation, Box<(Expression, Expression)>),
    Call(&'static Function, Vec<Expression>),
}

/// Binary operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Power,
    Join,
    Equal,
    Unequal,
    Less,
    Greater,
    AtMost,
    AtLeast,
}

/// Reason why a formula cannot be evaluated: the fault displayed by its cell, and an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unsound {
    pub(super) fault: Fault,
    pub(super) what: String,
}

fn unsound<T>(fault: Fault, what: impl Into<String>) -> Result<T, Unsound> {
    Err(Unsound { fault, what: what.into() })
}

/// Parses a formula, which begins with `=`.
pub(super) fn parse(text: &str) -> Result<Formula, Unsound> {
    let limits = ParserLimits::default()
        .with_source_bytes(FORMULA_MAX)
        .with_tokens(2 * NODES_MAX)
        .with_ast_nodes(NODES_MAX)
        .with_ast_height(DEPTH_MAX);
    let tree = match Parser::builder().limits(limits).parse(text) {
        Ok(tree) => tree,
        Err(error) => return unsound(Fault::Syntax, error.message),
    };
    let mut reads = Vec::new();
    let tree = expression(tree, &mut reads)?;
    Ok(Formula { tree, reads })
}

fn expression(node: ASTNode, reads: &mut Vec<Region>) -> Result<Expression, Unsound> {
    match node.node_type {
        ASTNodeType::Literal(literal) => constant(literal).map(Expression::Constant),
        ASTNodeType::Omitted => Ok(Expression::Constant(Scalar::Empty)),
        ASTNodeType::Reference { original, reference } => {
            let region = region(&original, &reference)?;
            reads.push(region);
            Ok(Expression::Region(region))
        }
        ASTNodeType::UnaryOp { op, expr } => {
            let inner = expression(*expr, reads)?;
            unary(op, inner)
        }
        ASTNodeType::BinaryOp { op, left, right } => {
            let operation = operation(op)?;
            let both = (expression(*left, reads)?, expression(*right, reads)?);
            Ok(Expression::Binary(operation, Box::new(both)))
        }
        ASTNodeType::Function { name, args } => call(&name, args, reads),
        ASTNodeType::Call { .. } => unsound(Fault::Name, "only functions can be called"),
        ASTNodeType::Array(_) => {
            unsound(Fault::Value, "there are no arrays in formulas here: use cells")
        }
    }
}

// Variants that the parser may add later are unknown here; the same below.
#[allow(clippy::wildcard_enum_match_arm)]
fn unary(op: UnaryOperator, inner: Expression) -> Result<Expression, Unsound> {
    match op {
        UnaryOperator::Minus => Ok(Expression::Negative(Box::new(inner))),
        UnaryOperator::Percent => Ok(Expression::Percent(Box::new(inner))),
        UnaryOperator::Plus => Ok(inner),
        other => unsound(Fault::Value, format!("{:?} is not known here", other.as_str())),
    }
}

fn call(name: &str, args: Vec<ASTNode>, reads: &mut Vec<Region>) -> Result<Expression, Unsound> {
    let function = match functions::named(name) {
        Ok(function) => function,
        Err(what) => return unsound(Fault::Name, what),
    };
    if !(function.least..=function.most).contains(&args.len()) {
        let what = format!("{} takes other numbers of arguments: {}", name, function.arguments);
        return unsound(Fault::Syntax, what);
    }
    let args = args.into_iter().map(|arg| expression(arg, reads));
    args.collect::<Result<_, _>>().map(|args| Expression::Call(function, args))
}

#[allow(clippy::wildcard_enum_match_arm)]
fn constant(literal: LiteralValue) -> Result<Scalar, Unsound> {
    match literal {
        LiteralValue::Int(n) => Ok(number(n as f64)),
        LiteralValue::Number(n) => Ok(number(n)),
        LiteralValue::Text(text) => Ok(text.as_str().into()),
        LiteralValue::Boolean(is) => Ok(Scalar::Bool(is)),
        LiteralValue::Error(error) => Ok(Scalar::Error(fault(error.kind))),
        LiteralValue::Empty => Ok(Scalar::Empty),
        other => unsound(Fault::Value, format!("{other} is not known here")),
    }
}

fn number(n: f64) -> Scalar {
    Number::new(n).map_or(Scalar::Error(Fault::Number), Scalar::Number)
}

#[allow(clippy::wildcard_enum_match_arm)]
fn fault(kind: ExcelErrorKind) -> Fault {
    match kind {
        ExcelErrorKind::Ref => Fault::Reference,
        ExcelErrorKind::Name => Fault::Name,
        ExcelErrorKind::Div => Fault::Division,
        ExcelErrorKind::Na => Fault::Missing,
        ExcelErrorKind::Num => Fault::Number,
        ExcelErrorKind::Circ => Fault::Circular,
        ExcelErrorKind::Error => Fault::Syntax,
        _ => Fault::Value,
    }
}

#[allow(clippy::wildcard_enum_match_arm)]
fn operation(op: BinaryOperator) -> Result<Operation, Unsound> {
    Ok(match op {
        BinaryOperator::Add => Operation::Add,
        BinaryOperator::Subtract => Operation::Subtract,
        BinaryOperator::Multiply => Operation::Multiply,
        BinaryOperator::Divide => Operation::Divide,
        BinaryOperator::Power => Operation::Power,
        BinaryOperator::Concat => Operation::Join,
        BinaryOperator::Equal => Operation::Equal,
        BinaryOperator::NotEqual => Operation::Unequal,
        BinaryOperator::Less => Operation::Less,
        BinaryOperator::Greater => Operation::Greater,
        BinaryOperator::LessEqual => Operation::AtMost,
        BinaryOperator::GreaterEqual => Operation::AtLeast,
        _ => {
            return unsound(Fault::Value, format!("{:?} is not known here", op.as_str()));
        }
    })
}

fn region(original: &str, reference: &ReferenceType) -> Result<Region, Unsound> {
    let corners = match reference {
        ReferenceType::Cell { sheet: None, row, col, .. } => {
            Cell::at(*row, *col).map(|cell| (cell, cell))
        }
        ReferenceType::Range { sheet: None, start_row, start_col, end_row, end_col, .. } => {
            let first = Cell::at(start_row.unwrap_or(1), start_col.unwrap_or(1));
            let last = Cell::at(end_row.unwrap_or(ROWS_MAX), end_col.unwrap_or(COLUMNS_MAX));
            first.zip(last)
        }
        ReferenceType::NamedRange(_) => {
            return unsound(Fault::Name, format!("nothing is named {original:?}"));
        }
        ReferenceType::Cell { .. }
        | ReferenceType::Range { .. }
        | ReferenceType::Cell3D { .. }
        | ReferenceType::Range3D { .. }
        | ReferenceType::External(_)
        | ReferenceType::Table(_) => None,
    };
    match corners {
        Some((a, b)) => Ok(Region::between(a, b)),
        None => unsound(Fault::Reference, format!("{original:?} is not in this sheet")),
    }
}

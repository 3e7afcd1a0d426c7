//! `+ - * /` between CEL's kinds of numbers.
//!
//! CEL has no overload for an integer and a double, and JSON does not tell 12 from 12.0: an expression that works for one price would
//! fail for the next. Must stay true: operands change their kind only where that keeps their value; otherwise CEL's own refusal stands.

use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr as Node, IdedExpr, operators};
use cel::common::types::{CelDouble, CelInt, CelUInt, DYN_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};

use super::convert::EXACT_INTEGER_MAX;

const ADD: &str = "@add";
const SUBTRACT: &str = "@subtract";
const MULTIPLY: &str = "@multiply";
const DIVIDE: &str = "@divide";

/// CEL's standard library, built once, with arithmetic that takes an integer and a double together.
pub(super) fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        let arithmetic: [(&str, cel::common::functions::Function); 4] =
            [(ADD, add), (SUBTRACT, subtract), (MULTIPLY, multiply), (DIVIDE, divide)];
        for (name, function) in arithmetic {
            env.add_overload(name, name, vec![DYN_TYPE, DYN_TYPE], function).expect("no other function has a name that begins with @");
        }
        Arc::new(env)
    });
    &ENVIRONMENT
}

/// The operator as it is written, for messages.
pub(super) fn operator(name: &str) -> &str {
    match name {
        ADD | "add" => "+",
        SUBTRACT | "sub" => "-",
        MULTIPLY | "mul" => "*",
        DIVIDE | "div" => "/",
        "rem" => "%",
        other => other.trim_matches(|c| c == '_' || c == '@'),
    }
}

/// The interpreter's operators cannot be overloaded; calls to functions of ours stand in for them.
pub(super) fn allow_mixed_arithmetic(expr: &mut IdedExpr) {
    match &mut expr.expr {
        Node::Call(call) => {
            if call.args.len() == 2 && !is_accumulator(&call.args[0]) {
                let ours = match call.func_name.as_str() {
                    operators::ADD => Some(ADD),
                    operators::SUBSTRACT => Some(SUBTRACT),
                    operators::MULTIPLY => Some(MULTIPLY),
                    operators::DIVIDE => Some(DIVIDE),
                    _ => None,
                };
                if let Some(name) = ours {
                    call.func_name = name.to_owned();
                }
            }
            call.target.iter_mut().map(|t| &mut **t).chain(&mut call.args).for_each(allow_mixed_arithmetic);
        }
        Node::Select(select) => allow_mixed_arithmetic(&mut select.operand),
        Node::List(list) => list.elements.iter_mut().for_each(allow_mixed_arithmetic),
        Node::Map(map) => map.entries.iter_mut().for_each(|e| in_entry(&mut e.expr)),
        Node::Struct(s) => s.entries.iter_mut().for_each(|e| in_entry(&mut e.expr)),
        Node::Comprehension(each) => {
            [&mut each.iter_range, &mut each.loop_cond, &mut each.loop_step, &mut each.result].into_iter().for_each(allow_mixed_arithmetic);
        }
        Node::Ident(_) | Node::Literal(_) | Node::Unspecified => {}
    }
}

fn in_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => allow_mixed_arithmetic(&mut field.value),
        EntryExpr::MapEntry(entry) => [&mut entry.key, &mut entry.value].into_iter().for_each(allow_mixed_arithmetic),
    }
}

/// The list a `map` collects into: the interpreter recognises `@result + [x]` and would otherwise copy the list at each step.
fn is_accumulator(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Node::Ident(name) if name.starts_with('@'))
}

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn add<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, right] = level(ADD, args)?;
    let adder = left.as_adder().ok_or_else(|| refused(ADD, &left, &right))?;
    Ok(CowVal::Owned(adder.add(right.as_ref())?.into_owned()))
}

fn subtract<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, right] = level(SUBTRACT, args)?;
    let subtractor = left.as_subtractor().ok_or_else(|| refused(SUBTRACT, &left, &right))?;
    Ok(CowVal::Owned(subtractor.sub(right.as_ref())?.into_owned()))
}

fn multiply<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, right] = level(MULTIPLY, args)?;
    let multiplier = left.as_multiplier().ok_or_else(|| refused(MULTIPLY, &left, &right))?;
    Ok(CowVal::Owned(multiplier.mul(right.as_ref())?.into_owned()))
}

fn divide<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, right] = level(DIVIDE, args)?;
    let divider = left.as_divider().ok_or_else(|| refused(DIVIDE, &left, &right))?;
    Ok(CowVal::Owned(divider.div(right.as_ref())?.into_owned()))
}

fn refused(function: &str, left: &CowVal<'_, '_>, right: &CowVal<'_, '_>) -> ExecutionError {
    let types = [left, right].map(|v| v.get_type().name().to_owned());
    ExecutionError::no_such_overload(function, types.into())
}

/// Both operands, of one kind where their values allow it.
fn level<'b, 'v>(function: &str, args: Args<'b, 'v>) -> Result<[CowVal<'b, 'v>; 2], ExecutionError> {
    let [left, right] = <[CowVal<'b, 'v>; 2]>::try_from(args).map_err(|args| ExecutionError::invalid_argument_count(2, args.len()))?;
    let (Some(a), Some(b)) = (Number::of(left.as_ref()), Number::of(right.as_ref())) else { return Ok([left, right]) };
    let levelled = match (a, b) {
        (Number::Double(_), Number::Int(_) | Number::UInt(_)) => b.as_double().map(|b| [left, CowVal::owned(CelDouble::from(b))]),
        (Number::Int(_) | Number::UInt(_), Number::Double(_)) => a.as_double().map(|a| [CowVal::owned(CelDouble::from(a)), right]),
        (Number::Int(a), Number::UInt(_)) => u64::try_from(a).ok().map(|a| [CowVal::owned(CelUInt::from(a)), right]),
        (Number::UInt(_), Number::Int(b)) => u64::try_from(b).ok().map(|b| [left, CowVal::owned(CelUInt::from(b))]),
        _ => Some([left, right]),
    };
    levelled.ok_or_else(|| ExecutionError::no_such_overload(function, vec![a.name().into(), b.name().into()]))
}

#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    UInt(u64),
    Double(f64),
}

impl Number {
    fn of(value: &dyn Val) -> Option<Self> {
        let int = value.downcast_ref::<CelInt>().map(|i| Self::Int(*i.inner()));
        let uint = || value.downcast_ref::<CelUInt>().map(|u| Self::UInt(*u.inner()));
        let double = || value.downcast_ref::<CelDouble>().map(|d| Self::Double(*d.inner()));
        int.or_else(uint).or_else(double)
    }

    /// As a double, unless that would round it.
    fn as_double(self) -> Option<f64> {
        let double = match self {
            Self::Int(i) => i as f64,
            Self::UInt(u) => u as f64,
            Self::Double(d) => return Some(d),
        };
        (double.abs() <= EXACT_INTEGER_MAX).then_some(double)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Int(_) => "int",
            Self::UInt(_) => "uint",
            Self::Double(_) => "double",
        }
    }
}

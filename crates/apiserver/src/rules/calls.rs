//! What calls of functions cost at most.
//!
//! Source: google/cel-go `checker/cost.go` `functionCost`, `ext/lists.go`, `ext/sets.go`; kubernetes/apiserver
//! `pkg/cel/library/cost.go` `EstimateCallCost`.

use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

use super::{
    estimate::{Estimate, LIST_COST},
    functions::Overload,
    range::Range,
    types::Type,
};

/// Of each letter of a text that is read once. Source: google/cel-go `common/cost.go`.
const LETTER_COST: f64 = 0.1;
/// Of each letter of a regular expression. Source: google/cel-go `common/cost.go`.
const PATTERN_COST: f64 = 0.25;
/// The length of the regular expression of a format. Units: letters. Source: kubernetes/apiserver `pkg/cel/limits.go`.
const FORMAT_PATTERN_MAX: f64 = 128.0;
/// The length of the name of a format. Units: letters. Source: kubernetes/apiserver `pkg/cel/limits.go`.
const FORMAT_MAX: u64 = 64;
/// The length of an address. Units: bytes.
const ADDRESS: Range = Range { min: 4, max: 16 };

/// Something that is given to a function.
pub(super) struct Argument<'e> {
    pub(super) expression: &'e IdedExpr,
    pub(super) size: Range,
    pub(super) cost: Range,
}

/// All that is given to one of the functions of a name.
pub(super) struct Arguments<'e> {
    pub(super) name: &'e str,
    pub(super) overload: &'e Overload,
    /// What stands before the dot.
    pub(super) target: Option<&'e Argument<'e>>,
    pub(super) args: &'e [Argument<'e>],
}

/// What a call costs beside its arguments, and the size of what it gives.
pub(super) struct Call {
    pub(super) cost: Range,
    pub(super) size: Option<Range>,
}

impl From<Range> for Call {
    fn from(cost: Range) -> Self {
        Self { cost, size: None }
    }
}

impl Argument<'_> {
    /// What it costs to read it once.
    fn read(&self) -> Range {
        self.size.scaled(LETTER_COST)
    }

    /// The number that is written down; `None`: it is another number.
    fn number(&self) -> Option<i64> {
        match &self.expression.expr {
            Expr::Literal(LiteralValue::Int(number)) => Some(*number.inner()),
            _ => None,
        }
    }

    fn count(&self, unknown: u64) -> u64 {
        self.number().map_or(unknown, |number| u64::try_from(number).unwrap_or(0))
    }
}

impl Arguments<'_> {
    fn takes(&self, index: usize) -> Option<&Type<'static>> {
        self.overload.takes.get(index)
    }
}

impl Estimate<'_, '_> {
    /// What one way to call a function costs. What is not named here costs 1.
    pub(super) fn called(&mut self, expression: &IdedExpr, given: &Arguments<'_>) -> Call {
        self.operator(expression, given)
            .or_else(|| of_text(given))
            .or_else(|| self.of_list(given))
            .or_else(|| of_library(given))
            .unwrap_or_else(|| Range::exactly(1).into())
    }

    fn operator(&mut self, expression: &IdedExpr, given: &Arguments<'_>) -> Option<Call> {
        let (name, None, [left, right, rest @ ..]) = (given.name, given.target, given.args) else { return None };
        Some(match name {
            operators::LOGICAL_AND | operators::LOGICAL_OR => {
                Range { min: left.cost.min, max: left.cost.plus(right.cost).max }.into()
            }
            operators::CONDITIONAL => {
                let (condition, yes, no) = (left, right, rest.first()?);
                let entries = self.entries_of(yes.expression).zip(self.entries_of(no.expression));
                self.set_entries(expression, entries.map(|(yes, no)| yes.union(no)));
                let size = Some(yes.size.union(no.size));
                Call { cost: condition.cost.plus(yes.cost.union(no.cost)), size }
            }
            operators::ADD if matches!(given.takes(0), Some(Type::Text | Type::Bytes | Type::List(_))) => {
                let size = left.size.plus(right.size);
                let entries = self.entries_of(left.expression).zip(self.entries_of(right.expression));
                self.set_entries(expression, entries.map(|(left, right)| left.union(right)));
                let is_list = matches!(given.takes(0), Some(Type::List(_)));
                let cost = if is_list { Range::exactly(1) } else { size.scaled(LETTER_COST) };
                Call { cost, size: Some(size) }
            }
            operators::EQUALS => self.small_compared(left, right).unwrap_or_else(|| compared(left, right)).into(),
            operators::NOT_EQUALS => compared(left, right).into(),
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS
                if matches!(given.takes(0), Some(Type::Text | Type::Bytes)) =>
            {
                compared(left, right).into()
            }
            operators::IN if matches!(given.takes(1), Some(Type::List(_))) => right.size.into(),
            _ => return None,
        })
    }

    /// What it costs to compare values of one type of the library; `None`: they are none.
    fn small_compared(&self, left: &Argument<'_>, right: &Argument<'_>) -> Option<Range> {
        let of = self.found.of(left.expression)?;
        if self.found.of(right.expression)? != of {
            return None;
        }
        match of {
            Type::Opaque(_) => Some(Range::exactly(1)),
            Type::Object(object) => match object.name.as_str() {
                "kubernetes.NamedFormat" => Some(Range { min: 1, max: FORMAT_MAX }.scaled(LETTER_COST)),
                "kubernetes.Quantity" | "kubernetes.Semver" => Some(Range::exactly(1)),
                "kubernetes.URL" => {
                    let max = if right.size == Range::UNKNOWN { 1 } else { right.size.max };
                    Some(Range { min: 1, max }.scaled(LETTER_COST))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn of_list(&self, given: &Arguments<'_>) -> Option<Call> {
        let allocated = |factor: f64, size: Range| Call {
            cost: size.scaled(factor).plus(Range::exactly(1 + LIST_COST)),
            size: Some(size),
        };
        let sorted = |list: &Argument<'_>, by: Option<&Type<'static>>| {
            let is_text = matches!(by, Some(Type::List(of)) if matches!(**of, Type::Text | Type::Bytes));
            allocated(if is_text { 2.0 + LETTER_COST } else { 2.0 }, list.size.times(list.size))
        };
        Some(match (given.name, given.target, given.args) {
            ("join", Some(list), _) => {
                let items = self.item_size(list).map_or(Range::NOTHING, |(item, _)| list.size.times(item));
                let between = Range { min: list.size.min.saturating_sub(1), max: list.size.max.saturating_sub(1) };
                let size = given.args.first().map_or(items, |separator| items.plus(separator.size.times(between)));
                Call { cost: size.scaled(LETTER_COST), size: Some(size) }
            }
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(list), _) => {
                match self.item_size(list) {
                    Some((size, is_text)) => {
                        let each = if is_text { size.scaled(LETTER_COST) } else { Range::NOTHING };
                        list.size.times(each.plus(Range::exactly(1))).into()
                    }
                    None => list.read().into(),
                }
            }
            ("slice", Some(list), [start, end]) => {
                let length = end.count(list.size.max).wrapping_sub(start.count(0));
                allocated(1.0, Range::exactly(length))
            }
            ("lists.range", None, [count]) => allocated(1.0, Range::exactly(count.count(u64::MAX))),
            ("reverse", Some(list), []) => allocated(1.0, list.size),
            ("flatten", Some(list), depth) => {
                let depth = depth.first().map_or(1, |depth| depth.count(u64::MAX));
                let cost = Range::exactly(depth).times(list.size).plus(Range::exactly(1 + LIST_COST));
                Call { cost, size: Some(list.size) }
            }
            ("distinct", Some(list), []) => allocated(2.0, list.size.times(list.size)),
            ("sort", Some(list), []) => sorted(list, given.takes(0)),
            ("@sortByAssociatedKeys", Some(_), [keys]) => sorted(keys, given.takes(1)),
            ("sets.contains" | "sets.intersects", None, [one, other]) => {
                one.size.times(other.size).plus(Range::exactly(1)).into()
            }
            ("sets.equivalent", None, [one, other]) => {
                one.size.times(other.size).scaled(2.0).plus(Range::exactly(1)).into()
            }
            _ => return None,
        })
    }

    /// The size of the items of a list, and whether they are texts; `None`: it is no list.
    fn item_size(&self, list: &Argument<'_>) -> Option<(Range, bool)> {
        let Some(Type::List(item)) = self.found.of(list.expression) else { return None };
        let path = self.path(list.expression);
        let size = if path.is_empty() { None } else { self.size_at(&path.inside_copy("@items")) };
        Some((size.unwrap_or(Range::UNKNOWN), matches!(**item, Type::Text | Type::Bytes)))
    }
}

fn of_text(given: &Arguments<'_>) -> Option<Call> {
    Some(match (given.name, given.target, given.args) {
        ("startsWith" | "endsWith", Some(_), [part]) => part.read().into(),
        ("contains", Some(text), [part]) => text.read().times(part.read()).into(),
        ("matches", Some(text), [pattern]) => matched(text, pattern).into(),
        ("find" | "findAll", Some(text), [pattern, ..]) => {
            Call { cost: matched(text, pattern), size: Some(Range::up_to(text.size.max)) }
        }
        ("format", Some(text), _) => text.read().into(),
        ("bytes", None, [text]) if matches!(given.takes(0), Some(Type::Text)) => {
            let size = Range { min: text.size.min, max: text.size.max.wrapping_mul(4) };
            Call { cost: text.read(), size: Some(size) }
        }
        ("string", None, [bytes]) if matches!(given.takes(0), Some(Type::Bytes)) => {
            Call { cost: bytes.read(), size: Some(Range { min: bytes.size.min / 4, max: bytes.size.max }) }
        }
        ("strings.quote", None, [text]) => {
            let max = text.size.max.wrapping_mul(2).wrapping_add(2);
            Call { cost: text.read(), size: Some(Range { min: text.size.min.wrapping_add(2), max }) }
        }
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(text), _) => {
            Call { cost: text.read(), size: Some(text.size) }
        }
        ("replace", Some(text), [before, after, ..]) => {
            let size = replaced(text.size, before.size, after.size);
            Call { cost: text.size.scaled(2.0 * LETTER_COST), size: Some(size) }
        }
        ("split", Some(text), _) => {
            let limit = given.args.get(1).and_then(Argument::number);
            let max = limit.map_or(text.size.max, i64::cast_unsigned);
            Call { cost: text.size.scaled(2.0 * LETTER_COST), size: Some(Range::up_to(max)) }
        }
        _ => return None,
    })
}

fn of_library(given: &Arguments<'_>) -> Option<Call> {
    Some(match (given.name, given.target, given.args) {
        ("quantity" | "isQuantity" | "semver" | "isSemver" | "cidr" | "isIP" | "isCIDR" | "ip", None, [text, ..]) => {
            text.read().into()
        }
        ("url", None, [text]) => Call { cost: text.read(), size: Some(text.size) },
        ("ip.isCanonical", None, [text]) => text.size.scaled(2.0 * LETTER_COST).into(),
        ("containsIP" | "containsCIDR", Some(_), [other]) => within(given, other).into(),
        ("validate", Some(_), [text]) => text.read().scaled(FORMAT_PATTERN_MAX * PATTERN_COST).into(),
        _ => return None,
    })
}

fn compared(left: &Argument<'_>, right: &Argument<'_>) -> Range {
    let max = left.size.max.min(right.size.max);
    Range { min: u64::from(max > 0), max }.scaled(LETTER_COST)
}

fn matched(text: &Argument<'_>, pattern: &Argument<'_>) -> Range {
    let text = text.size.plus(Range::exactly(1)).scaled(LETTER_COST);
    text.times(pattern.size.scaled(PATTERN_COST))
}

/// What it costs to find out whether a block has an address or another block.
fn within(given: &Arguments<'_>, other: &Argument<'_>) -> Range {
    let mut cost = ADDRESS.plus(ADDRESS).scaled(LETTER_COST);
    if given.name == "containsCIDR" {
        cost = cost.plus(ADDRESS.scaled(LETTER_COST)).plus(Range::exactly(1));
    }
    let is_text = matches!(given.takes(1), Some(Type::Text));
    if is_text { cost.plus(other.read()) } else { cost }
}

/// The size of a text in which texts of one size are replaced by others: shortest where the longest ones give way to the shortest.
fn replaced(text: Range, before: Range, after: Range) -> Range {
    let end = |text: u64, before: u64, after: u64, stays: bool| match before {
        // There is one more place between letters than there are letters.
        0 => text.saturating_add(1).saturating_mul(after).saturating_add(text),
        _ if stays => text,
        before => text.div_ceil(before).saturating_mul(after),
    };
    Range {
        min: end(text.min, before.max, after.min, before.max <= after.min),
        max: end(text.max, before.min, after.max, after.max <= before.min),
    }
}

//! Texts for `format` that are written down: their clauses fit what is put into them.
//!
//! Source: google/cel-go `ext/formatting.go` `stringFormatValidator`, for the words, too.

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use kubefold_wire::golang::quoted;

use super::{found::Found, types::Type};

/// What is wrong, and with which part of an expression.
pub(super) struct Wrong {
    pub(super) at: u64,
    pub(super) why: String,
}

/// What is wrong with the calls of `format` in an expression whose types fit.
pub(super) fn wrong(expression: &IdedExpr, found: &Found<'_>) -> Vec<Wrong> {
    let mut all = Vec::new();
    visit(expression, &mut |part| {
        let Expr::Call(CallExpr { func_name, target: Some(target), args }) = &part.expr else { return };
        let Expr::Literal(LiteralValue::String(text)) = &target.expr else { return };
        if let ("format", [IdedExpr { expr: Expr::List(list), .. }]) = (func_name.as_str(), args.as_slice()) {
            let call = Call { at: part.id, args: &list.elements, found };
            all.extend(call.check(text.inner()).err());
        }
    });
    all
}

/// Shows each part of an expression, the whole first.
fn visit(expression: &IdedExpr, see: &mut impl FnMut(&IdedExpr)) {
    see(expression);
    match &expression.expr {
        Expr::Select(select) => visit(&select.operand, see),
        Expr::Call(call) => {
            if let Some(target) = &call.target {
                visit(target, see);
            }
            call.args.iter().for_each(|arg| visit(arg, see));
        }
        Expr::List(list) => list.elements.iter().for_each(|item| visit(item, see)),
        Expr::Map(map) => map.entries.iter().for_each(|entry| visit_entry(&entry.expr, see)),
        Expr::Struct(made) => made.entries.iter().for_each(|entry| visit_entry(&entry.expr, see)),
        Expr::Comprehension(fold) => {
            for part in [&fold.iter_range, &fold.accu_init, &fold.loop_cond, &fold.loop_step, &fold.result] {
                visit(part, see);
            }
        }
        _ => {}
    }
}

fn visit_entry(entry: &EntryExpr, see: &mut impl FnMut(&IdedExpr)) {
    match entry {
        EntryExpr::MapEntry(entry) => {
            visit(&entry.key, see);
            visit(&entry.value, see);
        }
        EntryExpr::StructField(field) => visit(&field.value, see),
    }
}

/// One call of `format`.
struct Call<'e, 'f, 'a> {
    at: u64,
    args: &'e [IdedExpr],
    found: &'f Found<'a>,
}

impl Call<'_, '_, '_> {
    fn wrong(&self, why: impl Into<String>) -> Wrong {
        Wrong { at: self.at, why: why.into() }
    }

    fn check(&self, text: &str) -> Result<(), Wrong> {
        let (mut rest, mut count) = (text, 0);
        while let Some((_, clause)) = rest.split_once('%') {
            if let Some(after) = clause.strip_prefix('%') {
                rest = after;
                continue;
            }
            if clause.is_empty() {
                return Err(self.wrong("unexpected end of string"));
            }
            let arg = self.args.get(count).ok_or_else(|| self.wrong(format!("index {count} out of range")))?;
            rest = self.clause(clause, arg)?;
            count += 1;
        }
        if self.args.len() > count {
            let (expected, got) = (count, self.args.len());
            return Err(
                self.wrong(format!("too many arguments supplied to string.format (expected {expected}, got {got})"))
            );
        }
        Ok(())
    }

    /// What follows the clause with which a text begins.
    fn clause<'t>(&self, text: &'t str, arg: &IdedExpr) -> Result<&'t str, Wrong> {
        let no = |why: String| self.wrong(format!("could not parse formatting clause: {why}"));
        let precision = |why: String| no(format!("error while parsing precision: {why}"));
        let mut rest = text;
        if let Some(after) = text.strip_prefix('.') {
            let digits = after.find(|digit: char| !digit.is_ascii_digit());
            let digits = digits.ok_or_else(|| precision("could not find end of precision specifier".to_owned()))?;
            let (digits, after) = after.split_at(digits);
            if digits.parse::<i64>().is_err() {
                let why = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
                let shown = quoted(digits);
                let why = format!("error while converting precision to integer: strconv.Atoi: parsing {shown}: {why}");
                return Err(precision(why));
            }
            rest = after;
        }
        // As Go reads it, a byte is a letter.
        let letter = rest.bytes().next().map_or('\0', char::from);
        let fits = match letter {
            's' => return self.text(arg).map(|()| rest.get(1..).unwrap_or_default()),
            'd' => Clause { takes: &[Type::Int, Type::Uint], said: "decimal clause can only be used on integers" },
            'f' => {
                Clause { takes: &[Type::Double, Type::Text], said: "fixed-point clause can only be used on doubles" }
            }
            'e' => Clause { takes: &[Type::Double, Type::Text], said: "scientific clause can only be used on doubles" },
            'b' => Clause {
                takes: &[Type::Int, Type::Uint, Type::Bool],
                said: "only integers and bools can be formatted as binary",
            },
            'x' | 'X' => Clause {
                takes: &[Type::Int, Type::Uint, Type::Text, Type::Bytes],
                said: "only integers, byte buffers, and strings can be formatted as hex",
            },
            'o' => Clause { takes: &[Type::Int, Type::Uint], said: "octal clause can only be used on integers" },
            letter => return Err(no(format!("unrecognized formatting clause \"{letter}\""))),
        };
        let of = self.of(arg);
        if of == Type::Dyn || fits.takes.contains(&of) {
            return Ok(rest.get(1..).unwrap_or_default());
        }
        Err(misfit(arg, fits.said, &of))
    }

    fn of(&self, part: &IdedExpr) -> Type<'_> {
        self.found.of(part).cloned().unwrap_or(Type::Dyn)
    }

    fn text(&self, arg: &IdedExpr) -> Result<(), Wrong> {
        let of = self.of(arg);
        if matches!(of, Type::Optional(_) | Type::Object(_) | Type::Opaque(_) | Type::Error) {
            let said = "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                        durations, and timestamps";
            return Err(misfit(arg, said, &of));
        }
        match &arg.expr {
            Expr::List(list) => list.elements.iter().try_for_each(|item| self.text(item)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => self.text(&entry.key).and_then(|()| self.text(&entry.value)),
                EntryExpr::StructField(_) => Ok(()),
            }),
            _ => Ok(()),
        }
    }
}

/// What a clause takes, and what it says of anything else.
struct Clause {
    takes: &'static [Type<'static>],
    said: &'static str,
}

fn misfit(arg: &IdedExpr, said: &str, of: &Type<'_>) -> Wrong {
    let of = of.declared();
    // Without the types that are part of it.
    let of = of.split_once('(').map_or(of.as_str(), |(of, _)| of);
    Wrong { at: arg.id, why: format!("error during formatting: {said}, was given {of}") }
}

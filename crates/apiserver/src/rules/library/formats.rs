//! Named formats: `format.dns1123Label().validate(self)`.
//!
//! Source: `pkg/cel/library/format.go`.

use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload,
    common::{
        types::{CelList, CelOptional, CelString, Type},
        value::{CowVal, Val},
    },
};
use kubefold_wire::names;

use super::{Kind, Of};
use crate::schema::has_format;

static TYPE: Type = Type::new_unspecified_type("kubernetes.NamedFormat");

#[derive(Clone, Copy, Debug)]
struct Format {
    name: &'static str,
    wrong: fn(&str) -> Vec<String>,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Kind for Format {
    fn of() -> &'static Type {
        &TYPE
    }
}

type NamedFormat = Of<Format>;

const FORMATS: [Format; 13] = [
    Format { name: "dns1123Label", wrong: names::dns_label },
    Format { name: "dns1123Subdomain", wrong: names::dns_subdomain },
    Format { name: "dns1035Label", wrong: names::dns1035_label },
    Format { name: "qualifiedName", wrong: names::qualified_name },
    Format { name: "dns1123LabelPrefix", wrong: |text| names::dns_label(&names::masked(text)) },
    Format { name: "dns1123SubdomainPrefix", wrong: |text| names::dns_subdomain(&names::masked(text)) },
    Format { name: "dns1035LabelPrefix", wrong: |text| names::dns1035_label(&names::masked(text)) },
    Format { name: "labelValue", wrong: names::label_value },
    Format { name: "uri", wrong: |text| unless("uri", text, "invalid URI") },
    Format { name: "uuid", wrong: |text| unless("uuid", text, "does not match the UUID format") },
    Format { name: "byte", wrong: |text| unless("byte", text, "invalid base64") },
    Format { name: "date", wrong: |text| unless("date", text, "invalid date") },
    Format { name: "datetime", wrong: |text| unless("datetime", text, "invalid datetime") },
];

type Make = for<'b, 'v> fn(Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError>;

/// What makes each of them: functions that CEL calls hold no values.
const MAKE: [Make; FORMATS.len()] = [
    made::<0>, made::<1>, made::<2>, made::<3>, made::<4>, made::<5>, made::<6>, made::<7>, made::<8>, made::<9>,
    made::<10>, made::<11>, made::<12>,
];

fn made<'b, 'v, const AT: usize>(_args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    Ok(CowVal::owned(Of(const { FORMATS[AT] })))
}

fn unless(format: &str, text: &str, why: &str) -> Vec<String> {
    if has_format(format, text) { Vec::new() } else { vec![why.to_owned()] }
}

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    for (format, make) in FORMATS.iter().zip(MAKE) {
        let name = format!("format.{}", format.name);
        env.add_overload(&name, &name, vec![], make)?;
    }
    cel::add_overload!(env, fn named: (CelString<'_>) -> CelOptional<'_>, name = "format.named")?;
    add_member_overload!(env, fn validate: (NamedFormat, CelString<'_>) -> CelOptional<'_>)
}

fn named(name: &CelString<'_>) -> CelOptional<'static> {
    let format = FORMATS.into_iter().find(|format| format.name == name.inner());
    format.map_or_else(CelOptional::none, |format| CelOptional::of(Box::new(Of(format))))
}

fn validate(format: &NamedFormat, text: &CelString<'_>) -> CelOptional<'static> {
    let wrong = (format.0.wrong)(text.inner());
    if wrong.is_empty() {
        return CelOptional::none();
    }
    let wrong = wrong.into_iter().map(|why| Box::new(CelString::from(why)) as Box<dyn Val>);
    CelOptional::of(Box::new(CelList::from(wrong.collect::<Vec<_>>())))
}

//! The form of an answer, and what of lists and bookmarks depends on nothing else. Whoever stores the objects writes them.

use kubefold_wire::{
    accept::{PARTIAL_OBJECT, PARTIAL_OBJECT_LIST, TABLE_V1, Transform},
    form::{Partial, unfit},
    status::Status,
};

use crate::{Now, Sheet};

/// How objects are written.
#[derive(Clone, Debug, Default)]
pub enum Representation {
    /// As they are.
    #[default]
    Whole,
    /// `PartialObjectMetadata` alone.
    Metadata(Partial),
    /// As rows of a `Table`.
    Table(Box<Sheet>),
}

/// The type of whole objects.
#[derive(Clone, Copy, Debug)]
pub struct TypeMeta<'a> {
    /// `Pod`.
    pub kind: &'a str,
    /// `apps/v1`.
    pub api_version: &'a str,
}

impl Representation {
    /// The form that was negotiated for an answer: a list, or single objects. `sheet` makes a table of this version of
    /// `meta.k8s.io`.
    ///
    /// Errors: 406 if the form does not fit the answer; those of `sheet`.
    pub fn new(
        transform: Option<Transform<'static>>,
        of_kind: (&str, &str),
        is_list: bool,
        sheet: impl FnOnce(&'static str) -> Result<Sheet, Status>,
    ) -> Result<Self, Status> {
        let (group, kind) = of_kind;
        let partial = if is_list { PARTIAL_OBJECT_LIST.kind } else { PARTIAL_OBJECT.kind };
        match transform {
            None => Ok(Self::Whole),
            Some(wanted) if wanted.kind == TABLE_V1.kind => Ok(Self::Table(Box::new(sheet(wanted.version)?))),
            Some(wanted) if wanted.kind == partial => Ok(Self::Metadata(Partial::of(wanted.version, group, kind))),
            Some(wanted) => Err(unfit(wanted, is_list, group, kind)),
        }
    }

    /// Appends `"kind":"PodList","apiVersion":"v1"` of a list.
    pub fn list_type(&self, of: TypeMeta<'_>, out: &mut Vec<u8>) {
        self.type_meta(of, "List", out);
    }

    /// Appends `"items":`, or what a Table has there. Every item has a `[` or a `,` before it.
    pub fn begin_items(&self, out: &mut Vec<u8>) {
        match self {
            Self::Table(sheet) => sheet.begin_rows(out),
            Self::Whole | Self::Metadata(_) => out.extend_from_slice(b"\"items\":"),
        }
    }

    /// Appends the end of the items and of the list. Where a kube-apiserver says `null`, so does this.
    pub fn end_items(&self, is_empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::Table(sheet) if is_empty && sheet.has_no_rows_of_none() => b"null}\n",
            Self::Metadata(_) if is_empty => b"null}\n",
            _ if is_empty => b"[]}\n",
            _ => b"]}\n",
        });
    }

    /// Appends an empty object with this metadata, as of a revision.
    pub fn bookmark(&self, of: TypeMeta<'_>, metadata: &str, revision: u64, now: Now, out: &mut Vec<u8>) {
        if let Self::Table(sheet) = self {
            return sheet.bookmark(metadata, revision, now, out);
        }
        out.push(b'{');
        self.type_meta(of, "", out);
        out.extend_from_slice(b",\"metadata\":");
        out.extend_from_slice(metadata.as_bytes());
        out.push(b'}');
    }

    /// The form of what follows the first event of a watch.
    #[must_use]
    pub fn of_later_events(self) -> Self {
        match self {
            Self::Table(sheet) => Self::Table(Box::new(sheet.without_columns())),
            other => other,
        }
    }

    fn type_meta(&self, of: TypeMeta<'_>, suffix: &str, out: &mut Vec<u8>) {
        match self {
            Self::Whole => {
                for part in ["\"kind\":\"", of.kind, suffix, "\",\"apiVersion\":\"", of.api_version, "\""] {
                    out.extend_from_slice(part.as_bytes());
                }
            }
            Self::Table(sheet) => sheet.type_meta(out),
            Self::Metadata(partial) => partial.type_meta(suffix, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Include, Printer};

    const POD: (&str, &str) = ("", "Pod");

    fn form(transform: Option<Transform<'static>>, is_list: bool) -> Result<Representation, Status> {
        let printer = Printer::built_in("", "Pod").unwrap();
        Representation::new(transform, POD, is_list, |version| Ok(Sheet::new(version, Include::None, POD, printer)))
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_form_that_does_not_fit_is_refused() {
        assert!(matches!(form(None, true), Ok(Representation::Whole)));
        assert!(matches!(form(Some(PARTIAL_OBJECT_LIST), true), Ok(Representation::Metadata(_))));
        assert!(matches!(form(Some(TABLE_V1), false), Ok(Representation::Table(_))));
        assert_eq!(
            form(Some(PARTIAL_OBJECT), true).unwrap_err().message,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.PodList)"
        );
        assert_eq!(
            form(Some(PARTIAL_OBJECT_LIST), false).unwrap_err().message,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.Pod)"
        );
    }

    #[test]
    fn lists_and_bookmarks_are_written_in_each_form() {
        let of = TypeMeta { kind: "Pod", api_version: "v1" };
        let list = |form: &Representation| {
            written(|out| {
                form.list_type(of, out);
                form.begin_items(out);
                form.end_items(true, out);
            })
        };
        let bookmark = |form: &Representation| written(|out| form.bookmark(of, "{}", 7, Now(0), out));
        let whole = Representation::Whole;
        assert_eq!(list(&whole), "\"kind\":\"PodList\",\"apiVersion\":\"v1\"\"items\":[]}\n");
        assert_eq!(bookmark(&whole), r#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#);
        let metadata = form(Some(PARTIAL_OBJECT_LIST), true).unwrap();
        let head = r#""kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1""#;
        assert_eq!(list(&metadata), format!("{head}\"items\":null}}\n"));
        let table = form(Some(TABLE_V1), true).unwrap();
        assert!(
            list(&table)
                .starts_with(r#""kind":"Table","apiVersion":"meta.k8s.io/v1""columnDefinitions":[{"name":"Name""#)
        );
        assert!(list(&table).ends_with("\"rows\":[]}\n"));
        assert!(bookmark(&table.of_later_events()).contains(r#""columnDefinitions":null,"rows":[{"cells":[""#));
    }
}

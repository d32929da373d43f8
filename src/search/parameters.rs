//! Clusterpedia's words for a search: labels in a label selector, and parameters of a URL.
//!
//! Source: Clusterpedia `staging/src/github.com/clusterpedia-io/api/clusterpedia/v1beta1/types.go`, `conversion.go`. What it
//! ignores is refused here: operators other than `=` and `in`, labels that it does not know, fields to order by.

use crate::search::{
    Condition, FieldTerm, GroupResource, Order, OrderBy, Owner, OwnerBy, Page, Position, Query, SearchError, fields,
    micros,
};
use kubefold_wire::{
    options::query_value,
    selector::{LabelSelector, Operator, Requirement},
};

/// What search labels begin with.
const PREFIXES: [&str; 2] = ["search.clusterpedia.io/", "internalstorage.clusterpedia.io/"];
/// How far above an object its owner may stand.
const SENIORITY_MAX: u32 = 16;
/// Values that a list of names may have.
const VALUES_MAX: usize = 1024;

/// A search as it was asked for: the parameters of its URL, and the search labels of its label selector.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// The query, without its question mark.
    pub query: &'a str,
    /// The time. Units: microseconds of Unix time.
    pub now: i64,
}

/// Says whether a label is one by which a search is written, and which no object has.
pub fn is_search_label(key: &str) -> bool {
    PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// The label by which the fleet view selects members.
const CLUSTER_LABEL: &str = "kubefold.io/cluster";

/// Says whether the query of a list or watch has anything of a search in it, which Kubernetes does not know.
pub fn searches(query: &str) -> bool {
    const PARAMETERS: [&str; 17] = [
        "clusters",
        "namespaces",
        "names",
        "fuzzyName",
        "ownerUID",
        "ownerName",
        "ownerGR",
        "ownerSeniority",
        "since",
        "before",
        "orderby",
        "withContinue",
        "withRemainingCount",
        "whereSQL",
        "whereSQLStatement",
        "onlyMetadata",
        "deleted",
    ];
    form_urlencoded::parse(query.as_bytes()).any(|(key, value)| {
        PARAMETERS.contains(&&*key) || (key == "labelSelector" && PREFIXES.iter().any(|prefix| value.contains(prefix)))
    })
}

/// What one parameter is given as.
struct Given {
    /// As the asker calls it.
    called: String,
    operator: Operator,
    /// As they are written.
    values: Vec<String>,
    is_label: bool,
}

impl Parameters<'_> {
    /// Reads all of it, `labelSelector` and `fieldSelector` included.
    ///
    /// Errors: anything that is not understood.
    pub fn read(self) -> Result<Query, SearchError> {
        let labels = self.text("labelSelector").unwrap_or_default();
        let mut query = self.read_search(&labels)?;
        for requirement in LabelSelector::parse(&labels)?.into_requirements() {
            let Requirement { key, operator, values } = requirement;
            if key == CLUSTER_LABEL {
                query.clusters.push(Condition { operator, values });
            } else if !is_search_label(&key) {
                query.labels.push(Requirement { key, operator, values });
            }
        }
        query.fields = FieldTerm::parse_all(&self.text("fieldSelector").unwrap_or_default())?;
        Ok(query)
    }

    /// Reads what is search alone: of the label selector `labels` the search labels, and no field selector.
    ///
    /// Errors: anything that is not understood.
    pub fn read_search(self, labels: &str) -> Result<Query, SearchError> {
        if let Some(sql) = self.keys().find(|key| key.starts_with("whereSQL")) {
            return Err(SearchError::Sql(sql.into_owned()));
        }
        let labels = Labels::read(labels)?;
        let of = |name: &str, label: &str| -> Vec<Given> {
            self.parameter(name).into_iter().chain(labels.get(label)).collect()
        };
        let mut query = Query {
            clusters: conditions(of("clusters", "clusters"))?,
            namespaces: conditions(of("namespaces", "namespaces"))?,
            names: conditions(of("names", "names"))?,
            fuzzy: words(of("fuzzyName", "fuzzy-name"))?,
            owner: owner(&of)?,
            // Clusterpedia has none of these.
            deleted: boolean(self.parameter("deleted").into_iter().collect())?.unwrap_or_default(),
            only_metadata: boolean(of("onlyMetadata", "only-metadata"))?.unwrap_or_default(),
            ..Query::default()
        };
        let time =
            |given: Vec<Given>| one(given)?.map(|value| micros(&value.called, &value.text, self.now)).transpose();
        query.created.since = time(of("since", "since"))?;
        query.created.before = time(of("before", "before"))?;
        if let (Some(since), Some(before)) = (query.created.since, query.created.before)
            && since > before
        {
            return Err(SearchError::Times);
        }
        query.order = self.order(of("orderby", "orderby"))?;
        query.page = self.page(&query.order, &labels, &of)?;
        Ok(query)
    }

    fn order(self, given: Vec<Given>) -> Result<Order, SearchError> {
        // Of a URL and a label the URL's comes first, and the label's decides between what is equal.
        let mut fields = Vec::new();
        for given in given {
            given.only_in("= or in names what to order by")?;
            let parted_by = if given.is_label { '_' } else { ' ' };
            for value in given.values.iter().filter(|value| !value.trim().is_empty()) {
                let by = OrderBy::parse(value, parted_by)?;
                if !fields.iter().any(|known: &OrderBy| known.field == by.field) {
                    fields.push(by);
                }
            }
        }
        Order::new(fields)
    }

    fn page(self, order: &Order, labels: &Labels, of: &impl Fn(&str, &str) -> Vec<Given>) -> Result<Page, SearchError> {
        let in_label = |names: &[&str]| -> Result<Option<usize>, SearchError> {
            let given = names.iter().filter_map(|name| labels.get(name)).collect();
            number(one(given)?)
        };
        let in_url = number(one(self.parameter("limit").into_iter().collect())?)?.filter(|limit| *limit > 0);
        let labelled = in_label(&["limit", "size"])?.filter(|limit| *limit > 0);
        let with_continue = boolean(of("withContinue", "with-continue"))?;
        let with_remaining = boolean(of("withRemainingCount", "with-remaining-count"))?.unwrap_or_default();
        let mut page = Page {
            limit: [in_url, labelled].into_iter().flatten().min(),
            offset: in_label(&["offset"])?.unwrap_or_default(),
            // A client that sets a limit in the URL, as kubectl always does, asks for pages, and goes on until there are none.
            with_continue: with_continue.unwrap_or_else(|| in_url.is_some()),
            with_remaining,
            // A label's limit is what its author wants to see in all.
            total: labelled.filter(|_| in_url.is_some() && with_continue != Some(true)),
            after: None,
        };
        if let Some(token) = self.text("continue").filter(|token| !token.is_empty()) {
            page.offset = 0;
            if token.bytes().all(|byte| byte.is_ascii_digit()) {
                page.offset = number(Some(Named { called: "continue".to_owned(), text: token }))?.unwrap_or_default();
            } else {
                let wrong = || SearchError::Value {
                    parameter: "continue".to_owned(),
                    value: token.clone(),
                    why: "neither a token of a list in this order nor a number of objects to leave out",
                };
                page.after = Some(Position::decode(&token, order).ok_or_else(wrong)?);
            }
        }
        Ok(page)
    }

    fn keys(&self) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
        form_urlencoded::parse(self.query.as_bytes()).map(|(key, _)| key)
    }

    fn text(self, name: &str) -> Option<String> {
        query_value(self.query, name)
    }

    fn parameter(self, name: &str) -> Option<Given> {
        let text = self.text(name)?;
        let values = fields::split(&text, ',').into_iter().map(|value| value.trim().to_owned()).collect();
        Some(Given { called: name.to_owned(), operator: Operator::In, values, is_label: false })
    }
}

/// The search labels of a label selector.
struct Labels(Vec<Requirement>);

impl Labels {
    /// Errors: one that there is not.
    fn read(selector: &str) -> Result<Self, SearchError> {
        const KNOWN: [&str; 20] = [
            "search.clusterpedia.io/clusters",
            "search.clusterpedia.io/namespaces",
            "search.clusterpedia.io/names",
            "search.clusterpedia.io/fuzzy-name",
            "search.clusterpedia.io/owner-uid",
            "search.clusterpedia.io/owner-name",
            "search.clusterpedia.io/owner-gr",
            "search.clusterpedia.io/owner-seniority",
            "search.clusterpedia.io/since",
            "search.clusterpedia.io/before",
            "search.clusterpedia.io/orderby",
            "search.clusterpedia.io/limit",
            "search.clusterpedia.io/size",
            "search.clusterpedia.io/offset",
            "search.clusterpedia.io/with-continue",
            "search.clusterpedia.io/with-remaining-count",
            "search.clusterpedia.io/only-metadata",
            // Where Clusterpedia began with them.
            "internalstorage.clusterpedia.io/fuzzy-name",
            "internalstorage.clusterpedia.io/owner-uid",
            "internalstorage.clusterpedia.io/owner-seniority",
        ];
        let mut found = LabelSelector::parse(selector)?.into_requirements();
        found.retain(|requirement| is_search_label(&requirement.key));
        for requirement in &mut found {
            let key = requirement.key.as_str();
            if !KNOWN.contains(&key) {
                return Err(SearchError::Unknown(requirement.key.clone()));
            }
            // A selector's values are a set; an order is none.
            let written = written(selector, key);
            requirement.values.sort_by_key(|value| written.iter().position(|word| word == value));
        }
        Ok(Self(found))
    }

    fn get(&self, name: &str) -> Option<Given> {
        let is_called = |key: &str| PREFIXES.iter().any(|prefix| key.strip_prefix(prefix) == Some(name));
        let requirement = self.0.iter().find(|requirement| is_called(&requirement.key))?;
        Some(Given {
            called: requirement.key.clone(),
            operator: requirement.operator,
            values: requirement.values.clone(),
            is_label: true,
        })
    }
}

/// The words behind a label's key, as they are written in a selector.
fn written<'t>(selector: &'t str, key: &str) -> Vec<&'t str> {
    let term = fields::split(selector, ',').into_iter().find_map(|term| term.trim().strip_prefix(key));
    let is_between = |c: char| c.is_whitespace() || "(),=".contains(c);
    term.unwrap_or_default().split(is_between).filter(|word| !word.is_empty()).collect()
}

/// One value, and what it is called.
struct Named {
    called: String,
    text: String,
}

impl Given {
    fn only_in(&self, allowed: &'static str) -> Result<(), SearchError> {
        let operator = match self.operator {
            Operator::In => return Ok(()),
            Operator::NotIn => "notin or !=",
            Operator::Exists => "exists",
            Operator::NotExists => "!",
            Operator::Greater => ">",
            Operator::Less => "<",
        };
        Err(SearchError::Operator { parameter: self.called.clone(), operator, allowed })
    }
}

/// The conditions of a text that is named by several values.
fn conditions(given: Vec<Given>) -> Result<Vec<Condition>, SearchError> {
    let mut conditions = Vec::new();
    for given in given {
        if matches!(given.operator, Operator::Greater | Operator::Less) {
            given.only_in("=, !=, in, notin, or none and ! for presence")?;
        }
        let mut values = given.values;
        values.retain(|value| !value.is_empty());
        if values.len() > VALUES_MAX {
            return Err(SearchError::TooMany { what: "values", found: values.len(), max: VALUES_MAX });
        }
        let is_of_values = matches!(given.operator, Operator::In | Operator::NotIn);
        // `clusters=` in a URL is as none at all.
        if !is_of_values || !values.is_empty() {
            conditions.push(Condition { operator: given.operator, values });
        }
    }
    Ok(conditions)
}

/// All values of a parameter that holds for each of them.
fn words(given: Vec<Given>) -> Result<Vec<String>, SearchError> {
    let mut words = Vec::new();
    for given in given {
        given.only_in("= and in are")?;
        words.extend(given.values.into_iter().filter(|value| !value.is_empty()));
    }
    Ok(words)
}

/// The one value of a parameter.
fn one(given: Vec<Given>) -> Result<Option<Named>, SearchError> {
    let mut found: Option<Named> = None;
    for given in given {
        given.only_in("it takes = and one value")?;
        let [text] = given.values.as_slice() else {
            return Err(SearchError::Values { parameter: given.called, found: given.values.len() });
        };
        if text.is_empty() {
            continue;
        }
        if found.as_ref().is_some_and(|known| known.text != *text) {
            return Err(SearchError::Twice(given.called));
        }
        found = Some(Named { called: given.called, text: text.clone() });
    }
    Ok(found)
}

fn number(named: Option<Named>) -> Result<Option<usize>, SearchError> {
    let Some(Named { called, text }) = named else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(SearchError::Value { parameter: called, value: text, why: "no number of objects" }),
    }
}

/// A flag; one without a value is set.
fn boolean(given: Vec<Given>) -> Result<Option<bool>, SearchError> {
    let mut found = None;
    for given in given {
        let is_bare = given.operator == Operator::Exists || given.values.iter().all(String::is_empty);
        if given.operator != Operator::Exists {
            given.only_in("it takes true or false")?;
        }
        let flag = match given.values.first().map(String::as_str) {
            _ if is_bare => true,
            Some("true" | "1") => true,
            Some("false" | "0") => false,
            other => {
                let value = other.unwrap_or_default().to_owned();
                return Err(SearchError::Value { parameter: given.called, value, why: "neither true nor false" });
            }
        };
        found = found.or(Some(flag));
    }
    Ok(found)
}

fn owner(of: &impl Fn(&str, &str) -> Vec<Given>) -> Result<Option<Owner>, SearchError> {
    let uid = one(of("ownerUID", "owner-uid"))?;
    let name = one(of("ownerName", "owner-name"))?;
    let resource = one(of("ownerGR", "owner-gr"))?.map(|named| GroupResource::parse(&named.text));
    let seniority = one(of("ownerSeniority", "owner-seniority"))?;
    let seniority = match &seniority {
        None => None,
        Some(Named { called, text }) => {
            Some(text.parse().ok().filter(|depth| *depth <= SENIORITY_MAX).ok_or_else(|| SearchError::Value {
                parameter: called.clone(),
                value: text.clone(),
                why: "no depth from 0 to 16",
            })?)
        }
    };
    let by = match (uid, name) {
        (Some(_), Some(_)) => return Err(SearchError::Twice("the owner".to_owned())),
        (Some(_), None) if resource.is_some() => return Err(SearchError::NoOwner("ownerGR goes with ownerName and")),
        (Some(uid), None) => OwnerBy::Uid(uid.text),
        (None, Some(name)) => OwnerBy::Name { name: name.text, resource },
        (None, None) if resource.is_some() => return Err(SearchError::NoOwner("ownerGR")),
        (None, None) if seniority.is_some() => return Err(SearchError::NoOwner("ownerSeniority")),
        (None, None) => return Ok(None),
    };
    Ok(Some(Owner { by, seniority: seniority.unwrap_or_default() }))
}

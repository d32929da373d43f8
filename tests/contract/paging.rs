//! Lists taken page by page: every page agrees, and together they are the whole.

use http::Method;
use serde_json::Value;

use crate::{
    check::{Check, get},
    checks::SHOP,
    differences::Differences,
    seen::{Mismatch, Seen, mismatches},
    target::Target,
};

/// Pages of one list at most.
const PAGES_MAX: usize = 200;

fn lists() -> Vec<Check> {
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
    let mut all: Vec<Check> = [
        format!("{SHOP}?limit=1"),
        format!("{SHOP}?limit=3"),
        format!("{SHOP}?limit=4"),
        "/api/v1/configmaps?limit=2".to_owned(),
        "/api/v1/namespaces/empty/configmaps?limit=1".to_owned(),
        "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets?limit=1".to_owned(),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles?limit=20".to_owned(),
        "/api/v1/configmaps?limit=1&labelSelector=app%3Dweb".to_owned(),
        "/api/v1/configmaps?limit=2&fieldSelector=metadata.namespace%3Dshop".to_owned(),
        "/api/v1/configmaps?limit=2&resourceVersion={rv}&resourceVersionMatch=Exact".to_owned(),
        "/api/v1/configmaps?limit=2&resourceVersion={rv}&resourceVersionMatch=NotOlderThan".to_owned(),
    ]
    .into_iter()
    .map(get)
    .collect();
    all.push(get(format!("{SHOP}?limit=2")).accept(metadata));
    all.push(get(format!("{SHOP}?limit=2")).accept("application/yaml"));
    all
}

/// What is wrong with a fleet's pages.
pub(crate) async fn verdicts(
    member: &Target,
    fleet: &Target,
    several: bool,
    declared: &mut Differences,
) -> Vec<String> {
    let mut report = Vec::new();
    for list in lists() {
        let (said, told) = tokio::join!(walk(member, &list), walk(fleet, &list));
        let mut wrong = Vec::new();
        if !several {
            let pages = Mismatch::new("pages", said.len().to_string(), told.len().to_string());
            if pages.said != pages.told && !declared.allow(&list, &pages) {
                wrong.push(pages.to_string());
            }
            for (number, (said, told)) in said.iter().zip(&told).enumerate() {
                let found = mismatches(said, told).into_iter().filter(|one| !declared.allow(&list, one));
                wrong.extend(found.map(|one| format!("page {number}: {one}")));
            }
        }
        wrong.extend(whole(fleet, &list, &told).await);
        report.extend(wrong.iter().map(|wrong| format!("{}: pages of {}\n    {wrong}", fleet.name, list.label())));
    }
    report
}

/// Every page, from the first to the one without a token.
async fn walk(target: &Target, list: &Check) -> Vec<Seen> {
    let mut pages: Vec<Seen> = Vec::new();
    let mut next = list.clone();
    // What chose the revision of the first page may not be said again.
    let (path, query) = list.path.split_once('?').expect("a query");
    let kept: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("resourceVersion")).collect();
    while pages.len() < PAGES_MAX {
        let page = target.ask(&next).await;
        let token = page.document().and_then(|list| list["metadata"]["continue"].as_str()).map(str::to_owned);
        pages.push(page);
        let Some(token) = token.filter(|token| !token.is_empty()) else { break };
        next.path = format!("{path}?{}&continue={token}", kept.join("&"));
    }
    pages
}

/// Pages have one revision, count down what is left, and together hold what the list holds that is taken at once.
async fn whole(target: &Target, list: &Check, pages: &[Seen]) -> Option<String> {
    let documents: Vec<&Value> = pages.iter().filter_map(Seen::document).collect();
    let field = |name: &str| documents.iter().map(|page| page["metadata"][name].clone()).collect::<Vec<_>>();
    let revisions = field("resourceVersion");
    if revisions.windows(2).any(|pair| pair[0] != pair[1]) || documents.len() != pages.len() {
        return Some(format!("revisions of the pages: {revisions:?}"));
    }
    let count = |page: &Value| page["items"].as_array().map_or(0, Vec::len) as u64;
    let total: u64 = documents.iter().map(|page| count(page)).sum();
    let mut left = total;
    for page in &documents {
        left -= count(page);
        let remaining = page["metadata"]["remainingItemCount"].as_u64();
        let selects = list.path.contains("Selector=");
        let expected = (left > 0 && !selects).then_some(left);
        if remaining != expected {
            return Some(format!("remainingItemCount is {remaining:?}, not {expected:?}"));
        }
    }
    let path = target.path(&list.path);
    let unpaged: Vec<&str> = path.split('&').filter(|pair| !pair.contains("resourceVersion")).collect();
    let unpaged = unpaged.join("&").replace("limit=", "limit=1000");
    let answer = target.api.request(Method::GET, &unpaged, "").await.ok();
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().into_iter().flatten();
        items.map(|item| format!("{}/{}", item["metadata"]["namespace"], item["metadata"]["name"])).collect()
    };
    let (pages, at_once) = (documents.iter().flat_map(|page| names(page)).collect::<Vec<_>>(), names(&answer));
    (pages != at_once).then(|| format!("{pages:?} in pages, and {at_once:?} at once"))
}

//! `kubefold ui` in a real browser: what a person sees of a fleet that changes, and with keys alone.

use std::{path::Path, time::Duration};

use http::Method;
use serde_json::json;
use testbed::{
    Browser, FleetFile, Kubefold, Member, Process, Relay, Testbed, eventually, program,
    samples::{config_map, deployment, namespace},
};

use crate::demo::{Demo, SECOND_PASS};

const SOON: Duration = Duration::from_secs(60);
const SPACE: &str = "ui";

/// A running `kubefold ui`, and the address that it printed.
struct Page {
    process: Process,
    address: String,
    _home: tempfile::TempDir,
}

impl Page {
    async fn start(kubeconfig: &Path) -> Self {
        let home = tempfile::tempdir().unwrap();
        let args = ["ui", "--no-browser", "--kubeconfig", kubeconfig.to_str().unwrap()];
        let process = Process::spawn("kubefold ui", &program(), &args, &home.path().join("log"));
        let address = eventually(SOON, async || {
            let output = process.output();
            let line = output.lines().find(|line| line.starts_with("http://")).map(str::to_owned);
            line.filter(|_| output.contains("Ctrl-C")).ok_or(output)
        })
        .await;
        Self { process, address, _home: home }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_sees_the_fleet_live_in_a_browser() {
    let bed = Testbed::shared_with_workloads(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    tokio::join!(namespace(east, SPACE), namespace(west, SPACE));
    let line = Relay::before(west).await;
    let file = FleetFile::default().member(east, 1).entry("west", &west.kubeconfig_through(&line), 1, "");
    let fleet = Kubefold::start(&file).await;
    let maps = format!("/api/v1/namespaces/{SPACE}/configmaps");
    east.api().await.create(&maps, &config_map("first-gone", json!({}))).await;
    let placed = format!("/apis/apps/v1/namespaces/{SPACE}/deployments");
    let placed = fleet.api().await.create(&placed, &deployment("placed", 2)).await;
    // Of equal shares the UID decides which is the home's.
    let clusters = placed["metadata"]["annotations"]["kubefold.io/clusters"].as_str().unwrap();
    let follower = &bed[clusters.split(',').nth(1).unwrap()];
    let mut page = Page::start(&fleet.kubeconfig()).await;
    let mut browser = Browser::start();

    only_the_address_opens_it(&mut browser, &page).await;
    searched_by_keys(&mut browser).await;
    west.api().await.create(&maps, &config_map("first-live", json!({}))).await;
    browser.see(".grid", "first-live").await;
    east.api().await.request(Method::DELETE, &format!("{maps}/first-gone"), "").await.ok();
    browser.miss(".grid", "first-gone").await;
    an_object_has_parts_and_logs(&mut browser, follower).await;

    line.cut().await;
    browser.press(&["f"]).await;
    browser.see("main", "1 of 2 members are ready").await;
    browser.see("tr:has(.bad, .odd)", "west").await;
    browser.press(&["/"]).await;
    browser.write("kind:configmaps first-").await;
    browser.see("aside", "west").await;
    browser.see(".grid", "first-live").await;
    assert_eq!(browser.audit().await, Vec::<String>::new(), "with warnings");
    line.restore().await;
    browser.press(&["Escape", "f"]).await;
    browser.see("main", "2 of 2 members are ready").await;

    browser.press(&["/"]).await;
    browser.write("kind:configmaps first-").await;
    browser.see(".grid", "first-live").await;
    fleet.kill9();
    browser.see("[role=alert]", "cannot reach kubefold").await;
    fleet.restart().await;
    browser.miss("[role=alert]", "cannot reach kubefold").await;
    east.api().await.create(&maps, &config_map("first-after", json!({}))).await;
    browser.see(".grid", "first-after").await;
    browser.see(".grid", "first-live").await;

    let output = page.process.output();
    page.process.terminate(SOON).await;
    assert_eq!(output.matches("token=").count(), 1, "the token is in the address alone: {output}");
    browser.see("[role=alert]", "is kubefold ui still running").await;
}

/// No token, no page; with it, the page has no token that a script could read.
async fn only_the_address_opens_it(browser: &mut Browser, page: &Page) {
    let (bare, _) = page.address.split_once('?').unwrap();
    assert_eq!(browser.open(bare).await, 401);
    browser.see("main", "Open the address that").await;
    assert_eq!(browser.open(&page.address).await, 200);
    browser.see("main", "2 of 2 members are ready").await;
    let state = browser.state().await;
    assert_eq!((&state["url"], &state["cookies"]), (&json!(bare), &json!("")), "{state}");
    assert_eq!(browser.audit().await, Vec::<String>::new(), "the fleet");
}

/// From the fleet to what a search finds, without a mouse.
async fn searched_by_keys(browser: &mut Browser) {
    browser.press(&["?"]).await;
    browser.see("dialog[open]", "Keys").await;
    assert_eq!(browser.audit().await, Vec::<String>::new(), "the help");
    browser.press(&["Escape", "/"]).await;
    assert_eq!(browser.state().await["focus"], "search");
    browser.write("first-").await;
    browser.see(".grid", "first-gone").await;
    browser.press(&["ArrowDown"]).await;
    assert_eq!(browser.state().await["focus"], "grid");
    assert_eq!(browser.audit().await, Vec::<String>::new(), "what a search finds");
}

/// `follower` has a part that is not the home's.
async fn an_object_has_parts_and_logs(browser: &mut Browser, follower: &Member) {
    browser.press(&["/"]).await;
    browser.write("kind:deployments place").await;
    browser.see(".grid", "placed").await;
    // A search that is about to begin leads nobody away from what was opened.
    browser.write("d").await;
    browser.press(&["ArrowDown", "Enter"]).await;
    browser.see("pre", "kind: Deployment").await;
    browser.miss("pre", "managedFields").await;
    browser.press(&["Escape"]).await;
    browser.see(".grid", "placed").await;
    browser.press(&["Enter"]).await;
    browser.see("pre", "kind: Deployment").await;
    browser.click(".tabs", "Parts").await;
    browser.see(".parts", "west").await;
    follower.kubectl(&["label", "deployment", "placed", "-n", SPACE, "by=hand"]).await.ok();
    browser.see("table", ".metadata.labels.by").await;
    browser.see("main", &format!("kubefold.io/differs: {}", follower.name())).await;
    assert_eq!(browser.audit().await, Vec::<String>::new(), "an object and its parts");
    browser.press(&["/"]).await;
    browser.write("kind:pods in:west placed").await;
    browser.see(".grid", "@west").await;
    browser.see(".grid", "Running").await;
    browser.press(&["ArrowDown", "Enter"]).await;
    browser.see("pre", "kind: Pod").await;
    browser.click(".tabs", "Logs").await;
    browser.see("pre", "hello from west").await;
    browser.click(".tabs", "Events").await;
    browser.see(".grid", "Last Seen").await;
}

/// The plan of a drain, its confirmation and its progress; and an order whose answer is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_drains_a_member_in_a_browser() {
    let demo = Demo::start(SECOND_PASS).await;
    let kubectl = demo.kubectl().in_namespace("shop");
    kubectl.run(&["create", "deployment", "web", "--image=nginx", "--replicas=4"]).await.ok();
    kubectl.run(&["rollout", "status", "deployment", "web", "--timeout=60s"]).await.ok();
    let page = Page::start(&demo.kubeconfig()).await;
    let mut browser = Browser::start();
    assert_eq!(browser.open(&page.address).await, 200);
    browser.see("main", "3 of 3 members are ready").await;
    browser.press(&["m"]).await;
    browser.see("main", "Nothing moves.").await;
    browser.click("main", "Plan to drain west").await;
    browser.see(".plan", "deployments.apps/web in shop").await;
    browser.see(".plan", "east 2").await;
    browser.see(".plan", "north 2").await;
    assert_eq!(browser.audit().await, Vec::<String>::new(), "a plan");

    // Nothing happens before the name is typed in full.
    browser.write("wes").await;
    browser.press(&["Enter"]).await;
    browser.see(".plan button[disabled]", "Drain west").await;
    let moves = demo.kubectl().run(&["get", "--raw", "/kubefold/v1/moves"]).await;
    assert!(moves.ok().contains(r#""cordoned":[]"#), "{moves}");

    browser.write("t").await;
    browser.press(&["Enter"]).await;
    browser.see("main", "1 of 1 have moved").await;
    browser.see("main", "Cordoned: west").await;
    eventually(SOON, async || {
        let left = kubectl.run(&["get", "pods", "-l", "app=web", "--no-headers"]).await;
        let has_moved = left.ok().lines().count() >= 4 && !left.stdout.contains("@west");
        has_moved.then_some(()).ok_or(left.stdout)
    })
    .await;
    assert_eq!(browser.audit().await, Vec::<String>::new(), "what has moved");

    // An order whose answer is lost: kubefold is gone before it is sent.
    browser.click("main", "Plan to rebalance").await;
    browser.see(".plan", "Rebalance: the plan").await;
    drop(demo);
    browser.write("rebalance").await;
    browser.press(&["Enter"]).await;
    browser.see(".plan [role=alert]", "it may have been taken, so look at what moves first").await;
    browser.see("[role=alert]", "cannot reach kubefold").await;
    browser.click(".plan", "Leave it").await;
    browser.click("main", "Plan to rebalance").await;
    browser.see(".plan", "There is no plan").await;
}

/// What the page works out by itself: queries, differences, ages, and rows of pages and events.
#[tokio::test(flavor = "multi_thread")]
async fn the_parts_of_the_page_that_need_no_browser() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let home = tempfile::tempdir().unwrap();
    // Node takes a file for a module where a package says so; a browser always does.
    std::fs::write(home.path().join("package.json"), r#"{"type": "module"}"#).unwrap();
    for folder in ["", "vendor"] {
        std::fs::create_dir_all(home.path().join(folder)).unwrap();
        for entry in std::fs::read_dir(root.join("src/cli/ui/page").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "js") {
                std::fs::copy(&path, home.path().join(folder).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    let mut node = tokio::process::Command::new("node");
    node.arg("--test").arg(root.join("tests/clients/node/page.test.mjs")).env("PAGE", home.path());
    let run = tokio::time::timeout(SOON, node.kill_on_drop(true).output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("# fail 0") && !said.contains("# pass 0"), "{said}");
}

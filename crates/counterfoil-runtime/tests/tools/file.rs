use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use counterfoil_core::ids::Digest32;
use counterfoil_core::{CanonicalJson, Json, Outcome};
use counterfoil_runtime::spec::{Action, FileChange, FileSpec};
use counterfoil_runtime::tool::{Invocation, ProbeAnswer, Tool, UndoPlan};
use counterfoil_runtime::tools::build;
use futures_util::FutureExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::*;

/// A root with a file tool in it, and the tool that undoes it.
struct Desk {
    folder: TempDir,
    tool: Arc<dyn Tool>,
    undo: Arc<dyn Tool>,
}

impl Desk {
    fn new(change: FileChange) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (tool, undo) = tools(folder.path(), change);
        Self { folder, tool, undo }
    }

    fn writing() -> Self {
        Self::new(FileChange::Write { path: text("${args.path}"), content: value(json!("${args.content}")) })
    }

    fn deleting() -> Self {
        Self::new(FileChange::Delete { path: text("${args.path}") })
    }

    fn moving() -> Self {
        Self::new(FileChange::Move { from: text("${args.from}"), to: text("${args.to}") })
    }

    fn put(&self, path: &str, content: &str) {
        fs::create_dir_all(self.folder.path().join(path).parent().unwrap()).unwrap();
        fs::write(self.folder.path().join(path), content).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join(path)).ok()
    }

    /// Everything in the root but our own corner.
    fn listing(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != ".counterfoil");
        names.sort();
        names
    }

    async fn run(&self, args: Value) -> Outcome {
        self.tool.invoke(call(args)).await
    }

    fn plan(&self, args: Value, result: &Json) -> UndoPlan {
        let plan = self.tool.undo_plan(&call(args), result).unwrap().unwrap();
        assert_eq!(plan.tool.as_str(), "bank.charge.undo");
        plan
    }

    async fn take_back(&self, plan: &UndoPlan) -> Outcome {
        self.undo.invoke(undo_call(plan)).await
    }
}

fn tools(root: &Path, change: FileChange) -> (Arc<dyn Tool>, Arc<dyn Tool>) {
    let built = build(&spec(Action::File(FileSpec { root: root.into(), change }))).unwrap();
    let [(name, tool), (undo_name, undo)] = &built[..] else { panic!("a tool and its undo") };
    assert_eq!((name.as_str(), undo_name.as_str()), ("bank.charge", "bank.charge.undo"));
    (Arc::clone(tool), Arc::clone(undo))
}

fn undo_call(plan: &UndoPlan) -> Invocation {
    Invocation { tool: plan.tool.clone(), args: plan.args.clone(), key: Digest32::of(b"the undo"), ..call(json!({})) }
}

fn other_key(args: Value) -> Invocation {
    Invocation { key: Digest32::of(b"another key"), ..call(args) }
}

fn stamp(content: &str) -> Value {
    json!({ "bytes": content.len(), "sha256": Digest32::of(content.as_bytes()) })
}

#[tokio::test]
async fn a_write_replaces_keeps_and_can_be_taken_back() {
    let desk = Desk::writing();
    desk.put("a.txt", "old");
    fs::set_permissions(desk.folder.path().join("a.txt"), fs::Permissions::from_mode(0o600)).unwrap();
    let args = json!({"path": "a.txt", "content": "new"});
    let success = done(desk.run(args.clone()).await);
    let expected = json!({"path": "a.txt", "bytes": 3, "sha256": Digest32::of(b"new"), "replaced": stamp("old")});
    assert_eq!(success.result.to_value(), expected);
    assert_eq!(desk.read("a.txt").unwrap(), "new");
    assert_eq!(desk.listing(), ["a.txt"], "no temporary file stays");
    let mode = fs::metadata(desk.folder.path().join("a.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "who may read it stays as it was");
    let kept = format!(".counterfoil/kept/{}", call(json!({})).key);
    assert_eq!(desk.read(&kept).unwrap(), "old");

    let plan = desk.plan(args, &success.result);
    for _ in 0..2 {
        let undone = done(desk.take_back(&plan).await);
        assert_eq!(undone.result.to_value(), json!({"path": "a.txt", "restored": stamp("old")}));
        assert_eq!(desk.read("a.txt").unwrap(), "old");
    }
}

#[tokio::test]
async fn a_new_file_is_taken_back_by_its_absence() {
    let desk = Desk::writing();
    let args = json!({"path": "deep/er/b.json", "content": {"n": 1, "a": [true]}});
    let success = done(desk.run(args.clone()).await);
    assert_eq!(desk.read("deep/er/b.json").unwrap(), r#"{"a":[true],"n":1}"#);
    assert_eq!(success.result.to_value()["replaced"], Value::Null);
    done(desk.take_back(&desk.plan(args, &success.result)).await);
    assert_eq!(desk.read("deep/er/b.json"), None);
}

#[tokio::test]
async fn undo_never_destroys_later_work() {
    let desk = Desk::writing();
    desk.put("a.txt", "old");
    let args = json!({"path": "a.txt", "content": "new"});
    let plan = desk.plan(args.clone(), &done(desk.run(args).await).result);
    for later in ["later", ""] {
        desk.put("a.txt", later);
        let failure = not_done(desk.take_back(&plan).await);
        assert_eq!((failure.code.as_str(), failure.retriable), ("changed_since", false));
        assert_eq!(desk.read("a.txt").unwrap(), later);
    }
    fs::remove_file(desk.folder.path().join("a.txt")).unwrap();
    assert_eq!(not_done(desk.take_back(&plan).await).code, "changed_since");
    assert_eq!(desk.read("a.txt"), None);
}

#[tokio::test]
async fn undo_trusts_what_was_kept_only_if_it_is_whole() {
    let desk = Desk::writing();
    desk.put("a.txt", "old");
    let args = json!({"path": "a.txt", "content": "new"});
    let plan = desk.plan(args.clone(), &done(desk.run(args).await).result);
    desk.put(&format!(".counterfoil/kept/{}", call(json!({})).key), "forged");
    assert_eq!(not_done(desk.take_back(&plan).await).code, "undo_refused");
    assert_eq!((desk.read("a.txt").unwrap().as_str(), desk.listing().len()), ("new", 1));

    for args in [
        json!({"kept": Digest32::of(b"nobody"), "path": "a.txt", "sha256": Digest32::of(b"new")}),
        json!({"kept": call(json!({})).key, "path": "other.txt", "sha256": Digest32::of(b"new")}),
        json!({"kept": call(json!({})).key, "path": "a.txt", "sha256": Digest32::of(b"else")}),
        json!({"kept": "../../x", "path": "a.txt", "sha256": null}),
    ] {
        let plan = UndoPlan { args: CanonicalJson::from_value(&args).unwrap(), ..plan.clone() };
        not_done(desk.take_back(&plan).await);
        assert_eq!(desk.read("a.txt").unwrap(), "new", "{args}");
    }
}

#[tokio::test]
async fn a_second_attempt_keeps_what_was_there_before_the_first() {
    let desk = Desk::writing();
    desk.put("a.txt", "old");
    let args = json!({"path": "a.txt", "content": "new"});
    let first = done(desk.run(args.clone()).await);
    let second = done(desk.run(args.clone()).await);
    assert_eq!(first, second);
    done(desk.take_back(&desk.plan(args.clone(), &second.result)).await);
    assert_eq!(desk.read("a.txt").unwrap(), "old");

    // Done and then changed by somebody: nobody can say that it is not done.
    done(desk.run(args.clone()).await);
    desk.put("a.txt", "later");
    assert_eq!(unknown(desk.run(args).await).code, "changed_since");
    assert_eq!(desk.read("a.txt").unwrap(), "later");
}

#[tokio::test]
async fn a_delete_keeps_and_can_be_taken_back() {
    let desk = Desk::deleting();
    desk.put("d/a.txt", "old");
    let mode = || fs::metadata(desk.folder.path().join("d/a.txt")).unwrap().permissions().mode();
    fs::set_permissions(desk.folder.path().join("d/a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    let args = json!({"path": "d/a.txt"});
    let success = done(desk.run(args.clone()).await);
    assert_eq!(success.result.to_value(), json!({"path": "d/a.txt", "removed": stamp("old")}));
    assert_eq!(desk.read("d/a.txt"), None);
    assert_eq!(done(desk.run(args.clone()).await), success, "again is still done");

    let plan = desk.plan(args.clone(), &success.result);
    assert_eq!(desk.undo.probe(undo_call(&plan)).await, ProbeAnswer::DidNotHappen);
    done(desk.take_back(&plan).await);
    assert_eq!((desk.read("d/a.txt").unwrap().as_str(), mode() & 0o777), ("old", 0o640));
    assert!(matches!(desk.undo.probe(undo_call(&plan)).await, ProbeAnswer::Happened(_)));

    for path in ["d/nope.txt", "nope/nope.txt"] {
        let missing = not_done(desk.tool.invoke(other_key(json!({ "path": path }))).await);
        assert_eq!(missing.code, "file_missing");
    }
    assert_eq!(desk.listing(), ["d"]);
}

#[tokio::test]
async fn a_move_keeps_what_it_overwrites_and_can_be_taken_back() {
    let desk = Desk::moving();
    desk.put("from.txt", "moved");
    desk.put("there/to.txt", "overwritten");
    let args = json!({"from": "from.txt", "to": "there/to.txt"});
    let success = done(desk.run(args.clone()).await);
    let expected = json!({
        "from": "from.txt", "path": "there/to.txt", "bytes": 5, "sha256": Digest32::of(b"moved"), "replaced": stamp("overwritten")
    });
    assert_eq!(success.result.to_value(), expected);
    assert_eq!((desk.read("from.txt"), desk.read("there/to.txt").as_deref()), (None, Some("moved")));
    assert_eq!(done(desk.run(args.clone()).await), success);

    let plan = desk.plan(args.clone(), &success.result);
    // A name that was freed may have been taken since.
    desk.put("from.txt", "somebody else's");
    assert_eq!(not_done(desk.take_back(&plan).await).code, "changed_since");
    assert_eq!(desk.read("from.txt").unwrap(), "somebody else's");
    fs::remove_file(desk.folder.path().join("from.txt")).unwrap();
    done(desk.take_back(&plan).await);
    assert_eq!((desk.read("from.txt").as_deref(), desk.read("there/to.txt").as_deref()), (Some("moved"), Some("overwritten")));

    let onto_itself = desk.tool.invoke(other_key(json!({"from": "from.txt", "to": "from.txt"}))).await;
    assert_eq!(not_done(onto_itself).code, "path_refused");
    let missing = desk.tool.invoke(other_key(json!({"from": "nope", "to": "there/to.txt"}))).await;
    assert_eq!(not_done(missing).code, "file_missing");
    assert_eq!(desk.read("there/to.txt").unwrap(), "overwritten");
}

#[tokio::test]
async fn a_probe_tells_from_the_files() {
    let desk = Desk::writing();
    desk.put("a.txt", "old");
    let args = json!({"path": "a.txt", "content": "new"});
    let probe = async || desk.tool.probe(call(args.clone())).await;
    assert!(desk.tool.can_probe());
    assert_eq!(probe().await, ProbeAnswer::DidNotHappen);
    let success = done(desk.run(args.clone()).await);
    assert_eq!(probe().await, ProbeAnswer::Happened(success));
    desk.put("a.txt", "later");
    assert!(matches!(probe().await, ProbeAnswer::CannotTell(_)));
    // As if a crash had come between the note and the rename.
    desk.put("a.txt", "old");
    assert_eq!(probe().await, ProbeAnswer::DidNotHappen);
    assert_eq!(desk.read("a.txt").unwrap(), "old", "asking changes nothing");
}

#[tokio::test]
async fn writing_what_is_already_there_is_done() {
    let desk = Desk::writing();
    desk.put("a.txt", "same");
    let args = json!({"path": "a.txt", "content": "same"});
    let success = done(desk.run(args.clone()).await);
    assert_eq!(desk.tool.probe(call(args.clone())).await, ProbeAnswer::Happened(success.clone()));
    done(desk.take_back(&desk.plan(args, &success.result)).await);
    assert_eq!(desk.read("a.txt").unwrap(), "same");
}

#[tokio::test]
async fn no_path_leaves_the_root() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "outside").unwrap();
    let desk = Desk::writing();
    desk.put("plain", "x");
    let root = desk.folder.path();
    symlink(outside.path(), root.join("folder-link")).unwrap();
    symlink(outside.path().join("secret"), root.join("file-link")).unwrap();
    symlink(outside.path().join("nothing-yet"), root.join("dangling")).unwrap();
    fs::create_dir(root.join("folder")).unwrap();
    let absolute = outside.path().join("secret");
    for path in [
        "../x",
        "folder/../../x",
        absolute.to_str().unwrap(),
        "",
        ".",
        "a//b",
        "a/",
        "./a",
        "a\u{0}b",
        ".counterfoil/kept/x",
        ".Counterfoil/lock",
        "folder-link/secret",
        "folder-link/new",
        "file-link",
        "dangling",
        "folder",
        "plain/below",
    ] {
        let failure = not_done(desk.run(json!({"path": path, "content": "evil"})).await);
        assert!(["path_refused", "file_io"].contains(&failure.code.as_str()) && !failure.retriable, "{path:?}: {failure:?}");
    }
    assert_eq!(fs::read_to_string(outside.path().join("secret")).unwrap(), "outside");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(desk.read("plain").unwrap(), "x");
    assert_eq!(desk.listing(), ["dangling", "file-link", "folder", "folder-link", "plain"], "and nothing is left behind");
}

#[tokio::test]
async fn a_link_in_place_of_our_own_corner_leads_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    let desk = Desk::writing();
    symlink(outside.path(), desk.folder.path().join(".counterfoil")).unwrap();
    let failure = not_done(desk.run(json!({"path": "a.txt", "content": "x"})).await);
    assert_eq!(failure.code, "path_refused");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    assert_eq!(desk.read("a.txt"), None);
}

#[tokio::test]
async fn links_swapped_in_while_writing_never_win() {
    let outside = tempfile::tempdir().unwrap();
    let desk = Desk::writing();
    let root = desk.folder.path().to_owned();
    fs::create_dir(root.join("d")).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (stopped, target, swapped) = (Arc::clone(&stop), outside.path().to_owned(), root.clone());
    let swapper = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let _ = fs::rename(swapped.join("d"), swapped.join("aside"));
            let _ = symlink(&target, swapped.join("d"));
            let _ = fs::remove_file(swapped.join("d"));
            let _ = fs::rename(swapped.join("aside"), swapped.join("d"));
        }
    });
    for number in 0..60u8 {
        let mut call = call(json!({"path": "d/f", "content": number.to_string()}));
        call.key = Digest32::of(&[number]);
        desk.tool.invoke(call).await;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapper.join().unwrap();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "nothing was ever written outside");
}

#[tokio::test]
async fn an_abandoned_change_that_has_not_begun_never_does() {
    let desk = Desk::writing();
    desk.put("a.txt", "old");
    desk.put(".counterfoil/lock", "");
    let lock = fs::File::open(desk.folder.path().join(".counterfoil/lock")).unwrap();
    lock.lock().unwrap();
    let args = json!({"path": "a.txt", "content": "new"});
    {
        let mut attempt = desk.run(args.clone()).boxed();
        // Polled once, so that its thread is on its way to the lock; then given up on.
        assert!((&mut attempt).now_or_never().is_none());
    }
    lock.unlock().unwrap();
    // The probe takes the lock too: whichever of the two comes first, the answer holds.
    assert_eq!(desk.tool.probe(call(args)).await, ProbeAnswer::DidNotHappen);
    assert_eq!(desk.read("a.txt").unwrap(), "old");
}

#[test]
fn a_root_that_is_not_there_is_found_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = FileSpec { root: folder.path().join("gone"), change: FileChange::Delete { path: text("x") } };
    let error = build(&spec(Action::File(file))).err().unwrap().to_string();
    assert!(error.starts_with("file: the root") && error.contains("cannot be used"), "{error}");
}

//! What has expired goes, also from where tools keep things of their own; what may still be undone stays.

use std::time::{Duration, Instant};

use crate::lab::{EXIT_REFUSED, Lab};

const CONFIG: &str = r#"
tools:
  note:
    file: { root: "notes", write: { path: "${args.path}", content: "${args.text}" } }
    retain: 1s
  report:
    file: { root: "notes", write: { path: "${args.path}", content: "${args.text}" } }
    retain: 1h
"#;

fn kept(lab: &Lab) -> Vec<String> {
    let folder = lab.path("notes/.counterfoil/kept");
    let mut names: Vec<String> =
        folder.read_dir().expect("the folder").map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

#[test]
fn what_was_overwritten_is_kept_as_long_as_it_can_be_restored() {
    let lab = Lab::new(CONFIG);
    std::fs::create_dir(lab.path("notes")).expect("a folder");
    lab.write("notes/a.txt", "old a");
    lab.write("notes/b.txt", "old b");
    let short = lab.call("note", r#"{"path":"a.txt","text":"new a"}"#, "k1").done();
    let long = lab.call("report", r#"{"path":"b.txt","text":"new b"}"#, "k2").done();
    let names = |effect: &str| [effect.to_owned(), format!("{effect}.note")];
    let mut both = [names(&short.effect()), names(&long.effect())].concat();
    both.sort();
    assert_eq!(kept(&lab), both);
    let end = Instant::now() + Duration::from_secs(60);
    while lab.json(&["effects", "prune"]).at("/pruned") == 0 {
        assert!(Instant::now() < end, "its time is over");
    }
    assert_eq!(kept(&lab), names(&long.effect()), "only what is gone from the ledger");
    lab.call("note", r#"{"path":"a.txt","text":"new a"}"#, "k1").error(EXIT_REFUSED, "key_expired");
    lab.run(&["effects", "undo", &long.effect(), "--why", "a test"]);
    let text = |name: &str| std::fs::read_to_string(lab.path(name)).expect("a file");
    assert_eq!((text("notes/a.txt").as_str(), text("notes/b.txt").as_str()), ("new a", "old b"));
}

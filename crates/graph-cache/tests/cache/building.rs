//! One process: what is built, kept, refused and replaced.

use std::fs;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;

use megabatch_graph_cache::{
    BuildOptions, BuildProgress, Builder, Error, FloatWidth, Graph, GraphFile, Identity, Result, Schema, Stale, Widths,
    build_cached, unwatched,
};

use crate::MadeUp;

fn build(path: &Path, builder: &dyn Builder) -> Result<GraphFile> {
    build_cached(path, builder, &BuildOptions::default(), &mut unwatched)
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn a_file_is_built_once_and_has_all_graphs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mbg");
    let builder = MadeUp::new(1, 50, 1);
    let mut seen = Vec::new();
    let file = build_cached(&path, &builder, &BuildOptions::default(), &mut |progress| {
        seen.push(progress);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(builder.built(), 50);
    assert_eq!(seen.last(), Some(&BuildProgress::Written { graphs: 50, total: 50, bytes: file.bytes() as u64 }));
    assert_eq!(seen[0], BuildProgress::Begun { resumed: 0, intact: 0 });
    assert_eq!(seen.len(), 52);
    for index in 0..50 {
        assert_eq!(file.graph(index).unwrap().to_graph(), builder.build(index).unwrap());
    }
    builder.built();
    build(&path, &builder).unwrap();
    assert_eq!(builder.built(), 0);
    assert_eq!(names_in(folder.path()), ["a.mbg"]);
}

#[test]
fn a_build_that_its_caller_ends_is_continued_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mbg");
    let builder = MadeUp::new(1, 50, 1);
    let mut end_at_five = |progress| match progress {
        BuildProgress::Written { graphs: 5, .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let ended = build_cached(&path, &builder, &BuildOptions::default(), &mut end_at_five);
    assert!(matches!(ended, Err(Error::Interrupted)) && !path.exists(), "{ended:?}");
    let mut begun = None;
    let file = build_cached(&path, &builder, &BuildOptions::default(), &mut |progress| {
        begun.get_or_insert(progress);
        ControlFlow::Continue(())
    });
    assert_eq!(begun, Some(BuildProgress::Begun { resumed: 5, intact: 0 }));
    let whole = folder.path().join("b.mbg");
    build(&whole, &builder).unwrap();
    assert!(fs::read(file.unwrap().path()).unwrap() == fs::read(whole).unwrap());
}

#[test]
fn threads_and_runs_leave_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for run_length in [1, 7, 100] {
        let files = [1, 2, 5].map(|threads| {
            let path = folder.path().join(format!("{threads}.mbg"));
            let options =
                BuildOptions { threads: NonZero::new(threads), stale: Stale::Replace, ..BuildOptions::default() };
            let mut builder = MadeUp::new(3, 40, run_length);
            builder.seed += run_length as u64;
            build_cached(&path, &builder, &options, &mut unwatched).unwrap();
            fs::read(path).unwrap()
        });
        assert!(files[0] == files[1] && files[0] == files[2], "runs of {run_length}");
    }
}

#[test]
fn what_has_changed_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mbg");
    struct Other<'b>(&'b MadeUp, fn(Identity) -> Identity, Option<Schema>);
    impl Builder for Other<'_> {
        fn identity(&self) -> Identity {
            self.1(self.0.identity())
        }
        fn schema(&self) -> &Schema {
            self.2.as_ref().unwrap_or(self.0.schema())
        }
        fn keys(&self) -> &[String] {
            self.0.keys()
        }
        fn build(&self, index: usize) -> Result<Graph> {
            self.0.build(index)
        }
    }
    let builder = MadeUp::new(1, 3, 1);
    build(&path, &builder).unwrap();
    let before = fs::read(&path).unwrap();
    let schema = Schema { names: vec!["A".to_owned()], ..builder.schema().clone() };
    let others: [(Other<'_>, &str); 4] = [
        (
            Other(&builder, |identity| Identity { data: 5, ..identity }, None),
            "; data: was XXH3-128 99aa06d3014798d86001c324468d497f, is XXH3-128 00000000000000000000000000000005",
        ),
        (
            Other(&builder, |identity| Identity { builder: "made-up/2".into(), ..identity }, None),
            "; builder: was made-up/1, is made-up/2",
        ),
        (
            Other(&builder, |identity| Identity { parameters: "{}".into(), ..identity }, None),
            r#"; parameters: was {"seed":1}, is {}"#,
        ),
        (
            Other(&builder, |identity| identity, Some(schema)),
            "; schema: was 0 names of nodes, is 1 names of nodes with A",
        ),
    ];
    for (other, message) in &others {
        let error = build(&path, other).unwrap_err();
        assert!(error.to_string().contains("these graphs were built from other inputs or options"), "{error}");
        assert!(error.to_string().contains(message), "{error}");
        let fresh = GraphFile::open(&path).unwrap().check_fresh(other).unwrap_err();
        assert_eq!(fresh.to_string(), error.to_string());
    }
    let more = build(&path, &MadeUp::new(1, 4, 1)).unwrap_err();
    assert!(more.to_string().ends_with("; keys: was 3 keys, is 4 keys, others"), "{more}");
    let widths = Widths { edges: FloatWidth::F16, ..Widths::default() };
    let narrow = BuildOptions { widths, ..BuildOptions::default() };
    let error = build_cached(&path, &builder, &narrow, &mut unwatched).unwrap_err();
    assert!(matches!(&error, Error::Stale { changes, .. } if changes[0].what == "widths"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    GraphFile::open(&path).unwrap().check_fresh(&builder).unwrap();
    let replace = BuildOptions { stale: Stale::Replace, ..BuildOptions::default() };
    let file = build_cached(&path, &others[1].0, &replace, &mut unwatched).unwrap();
    assert_eq!(file.identity().builder, "made-up/2");
}

#[test]
fn a_damaged_block_is_built_again_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mbg");
    for (run_length, damaged, rebuilt) in [(1, 13, 1), (5, 13, 4), (1, 0, 1), (1, 19, 1)] {
        fs::remove_file(&path).unwrap_or(());
        let builder = MadeUp::new(1, 20, run_length);
        let file = build(&path, &builder).unwrap();
        let block = file.graph(damaged).unwrap();
        let at = block.targets().as_ptr().addr() - file.graph(0).unwrap().nodes().as_ptr().addr();
        let blocks = fs::metadata(&path).unwrap().len() as usize - total(&file);
        let before = fs::read(&path).unwrap();
        let mut bytes = before.clone();
        bytes[blocks + at] ^= 1;
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes).unwrap();
        let reopened = GraphFile::open(&path).unwrap();
        assert_eq!(reopened.damaged().iter().map(|(index, _)| *index).collect::<Vec<_>>(), [damaged]);
        assert!(reopened.graph(damaged).is_err() && reopened.graph((damaged + 1) % 20).is_ok());
        builder.built();
        build(&path, &builder).unwrap();
        assert_eq!(builder.built(), rebuilt, "runs of {run_length}");
        assert!(fs::read(&path).unwrap() == before);
    }
}

/// Bytes of all blocks.
fn total(file: &GraphFile) -> usize {
    let last = file.graph(file.len() - 1).unwrap();
    let end = last.targets().as_ptr_range().end.addr().next_multiple_of(64);
    end - file.graph(0).unwrap().nodes().as_ptr().addr()
}

#[test]
fn what_is_around_the_blocks_is_made_anew_and_the_blocks_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mbg");
    let builder = MadeUp::new(1, 20, 1);
    build(&path, &builder).unwrap();
    let before = fs::read(&path).unwrap();
    // In the header, the description, the keys, the padding of the index; and the entry of one
    // graph.
    for (at, rebuilt) in [(30, 0), (4100, 0), (8200, 0), (16383, 0), (12288 + 64 * 3 + 20, 1)] {
        let mut bytes = before.clone();
        bytes[at] ^= 1;
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(GraphFile::open(&path), Err(Error::Damaged { .. })), "{at}");
        builder.built();
        build(&path, &builder).unwrap();
        assert_eq!(builder.built(), rebuilt, "{at}");
        assert!(fs::read(&path).unwrap() == before, "{at}");
    }
}

#[test]
fn files_that_are_not_ours_to_replace_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.csv");
    fs::write(&path, "Date,Open\n").unwrap();
    let replace = BuildOptions { stale: Stale::Replace, ..BuildOptions::default() };
    let builder = MadeUp::new(1, 3, 1);
    let error = build_cached(&path, &builder, &replace, &mut unwatched).unwrap_err();
    assert!(matches!(error, Error::NotGraphs { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"Date,Open\n");
    let missing = build(&folder.path().join("no/a.mbg"), &builder).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }), "{missing}");
    let protected = folder.path().join("a.mbg");
    build(&protected, &builder).unwrap();
    let mut permissions = fs::metadata(&protected).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&protected, permissions).unwrap();
    let error = build_cached(&protected, &MadeUp::new(2, 3, 1), &replace, &mut unwatched).unwrap_err();
    assert!(error.to_string().contains("cannot replace the file: the existing file is read-only"), "{error}");
}

#[test]
fn a_graph_that_cannot_be_built_ends_the_building_and_the_next_goes_on() {
    struct Failing<'b>(&'b MadeUp, usize);
    impl Builder for Failing<'_> {
        fn identity(&self) -> Identity {
            self.0.identity()
        }
        fn schema(&self) -> &Schema {
            self.0.schema()
        }
        fn keys(&self) -> &[String] {
            self.0.keys()
        }
        fn build(&self, index: usize) -> Result<Graph> {
            if index >= self.1 {
                return Err(Error::NotGraphs { path: format!("source of {index}").into() });
            }
            self.0.build(index)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mbg");
    let builder = MadeUp::new(1, 30, 1);
    for threads in [1, 4] {
        let options = BuildOptions { threads: NonZero::new(threads), ..BuildOptions::default() };
        let error = build_cached(&path, &Failing(&builder, 11), &options, &mut unwatched).unwrap_err();
        assert!(error.to_string().starts_with("source of 11:"), "{error}");
        assert_eq!(names_in(folder.path()), [".a.mbg.partial"]);
    }
    builder.built();
    build(&path, &builder).unwrap();
    assert_eq!(builder.built(), 30 - 11);
    let whole = folder.path().join("b.mbg");
    build(&whole, &builder).unwrap();
    assert!(fs::read(path).unwrap() == fs::read(whole).unwrap());
}

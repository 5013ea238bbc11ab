use super::store::{Answer, Store};
use super::*;

#[test]
fn sizes_have_three_significant_bits() {
    let cases = [(0, 0), (1, 1), (7, 7), (8, 8), (9, 10), (10, 10), (11, 12), (15, 16), (1024, 1024), (1025, 1280)];
    for (size, expected) in cases {
        assert_eq!(bucket(size), expected, "{size}");
    }
}

#[test]
fn the_middle_one_of_five_times_counts_and_the_first_of_all_does_not() {
    let mut times_ms = [90.0, 7.0, 5.0, 80.0, 1.0, 6.0].into_iter();
    assert_eq!(median_ms(|| Ok(times_ms.next().unwrap())).unwrap(), 6.0);
    assert_eq!(times_ms.next(), None);
}

#[test]
fn a_choice_is_found_again_by_all_that_it_was_made_for_and_by_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = |gpu: &str| Store { folder: folder.path().join("below"), gpu: gpu.to_owned() };
    let answer = Answer { choice: "b".to_owned(), times_us: BTreeMap::from([("a".to_owned(), 2.0)]) };
    assert!(store("A").read("q", &["ptx"]).is_none());
    store("A").write(&answer, "q", &["ptx"]).unwrap();
    assert_eq!(store("A").read("q", &["ptx"]).unwrap().unwrap(), "b");
    for (gpu, question, ptx) in [("B", "q", "ptx"), ("A", "r", "ptx"), ("A", "q", "other")] {
        assert!(store(gpu).read(question, &[ptx]).is_none(), "{gpu} {question} {ptx}");
    }
    let path = std::fs::read_dir(folder.path().join("below")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&path, "{").unwrap();
    let note = store("A").read("q", &["ptx"]).unwrap().unwrap_err();
    assert!(note.contains(&path.display().to_string()) && note.ends_with("it is measured anew"), "{note}");
    // One of another form.
    store("A").write(&answer, "q", &["ptx"]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap().replace("\"format\": 1", "\"format\": 2");
    std::fs::write(&path, text).unwrap();
    assert!(store("A").read("q", &["ptx"]).is_none());
}
